"""Which steps are drawn, of one host and of several."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import (
    PS_PER_US,
    Event,
    event,
    host,
    host_of,
    iterator_call,
    line,
    logdir_of,
    marks,
    plane,
    read_back,
    space,
    trace_of,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sections.timeline.pictures import US, gpu_host, pictures_of
from synthetic_tpu import synthetic_tpu
from tpu_twin import tpu_twin

import tfperf
from tfperf.analysis.registry import Host
from tfperf.base.errors import TfperfError
from tfperf.report.model import Ribbon, StepPicture
from tfperf.sections.diagnosis.catalogue import CAUSE_MEANINGS
from tfperf.sections.timeline.analysis import (
    CATEGORIES_OF_CAUSE,
    DrawnSteps,
    MemoryInUse,
    categories_ns,
    combine,
    longest_places,
    ribbons,
)
from tfperf.sections.timeline.lanes import PARTS, TITLES, Window
from tfperf.trace.device.device_clock import DeviceClock
from tfperf.trace.steps.categories import CATEGORY_TITLES

STEPS = marks(4, 1000)
TIMES = (90, 100, 110, 300)
"""Durations of steps, in us."""


def steps_of(times: tuple[int, ...] = TIMES) -> bytes:
    return space(host(*(event("train", sum(times[:n]), time, step_num=n) for n, time in enumerate(times))))


def test_the_median_and_the_slowest_step_are_drawn(tmp_path: Path) -> None:
    titles = [picture.title for picture in gpu_host(tmp_path)["timeline"].pictures]
    assert titles == ["Training step 0, the median: 1.00 ms", "Training step 3, the slowest: 1.10 ms"]


def test_the_step_that_is_asked_for(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=steps_of())
    for step, expected in ((1, "1, as requested"), ("slowest", "3, the slowest"), ("median", "1, the median")):
        analysis = tfperf.load(logdir, sections=("timeline",), step=step)  # type: ignore[arg-type]
        (picture,) = analysis["timeline"].pictures
        assert expected in picture.title
        (section,) = analysis.report(("timeline",)).sections
        assert [chart.title for chart in section.charts] == [picture.title]
        assert [(fact.key, fact.value) for fact in section.facts] == [("drawn_steps", f"{picture.step} on a")]
    missing = tfperf.load(logdir, sections=("timeline",), step=17)
    with pytest.raises(TfperfError, match=r"step 17 does not exist; the steps are 0\.\.3"):
        missing.report(("timeline",))


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("x", 0, 10)))
    assert host_of(trace, "timeline")["timeline"].why_none.startswith("the profile has no step markers, ")
    logdir = logdir_of(tmp_path, a=steps_of())
    analysis = tfperf.load(logdir, sections=("timeline",), attribution="tensorflow")
    (section,) = analysis.report(("timeline",)).sections
    assert "omit --attribution" in section.notes[0]


def test_pictures_are_made_where_they_are_asked_for(tmp_path: Path) -> None:
    assert "timeline" not in tfperf.load(logdir_of(tmp_path, a=steps_of())).sections


def test_pictures_of_hosts_stand_side_by_side(tmp_path: Path) -> None:
    first = gpu_host(tmp_path)["timeline"]
    assert combine([first, first]).pictures == first.pictures * 2
    assert repr(first) == "<DrawnSteps: 2 pictures>"


def test_no_step_of_very_many_hosts_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is any picture made that is then thrown away."""
    for number in range(65):
        (tmp_path / f"w-{number}.xplane.pb").write_bytes(steps_of())
    monkeypatch.setattr("tfperf.sections.timeline.analysis.draw_step", None)
    (section,) = tfperf.load(tmp_path, sections=("timeline",), jobs=1).report(("timeline",)).sections
    assert section.notes == ("No step is drawn: the profile has too many hosts; select one with --host NAME.",)


def test_of_several_hosts_the_late_one_comes_first(tmp_path: Path) -> None:
    from sections.hosts.jobs import job

    job(tmp_path, a=[0] * 4, b=[20_000] * 4)
    analysis = tfperf.load(tmp_path / "logs", sections=("timeline",))
    (section,) = analysis.report(("timeline",)).sections
    together, *charts = section.charts
    assert [chart.title.partition(":")[0] for chart in charts][:1] == ["b"]
    assert len(charts) <= 3
    assert {chart.title.partition(":")[0] for chart in charts} == {"a", "b"}
    assert isinstance(together, StepPicture)
    assert together.title.endswith("of 2 hosts on one clock: the others wait for b")
    last, waiting = together.ribbons
    assert (last.title, waiting.title) == ("b: the last host", "a: waits 20.0 ms")
    assert [last.titles[kind] for kind in last.category] == ["Own work"]
    waits = (waiting.end_ns - waiting.start_ns)[waiting.category == 1].tolist()
    assert waits == [20_000_000]


def test_places_are_of_causes_and_categories_that_there_are(tmp_path: Path) -> None:
    assert CATEGORIES_OF_CAUSE.keys() <= CAUSE_MEANINGS.keys()
    assert {category for categories in CATEGORIES_OF_CAUSE.values() for category in categories} <= TITLES.keys()
    waits = [event("IteratorGetNextOp::DoCompute", 1000 * n + 100, 400) for n in range(4)]
    (picture,) = pictures_of(tmp_path, host(*STEPS, *waits), step=1)
    assert picture.places["input_wait"] == (100_000, 500_000, 400_000)
    assert "output_copy" not in picture.places


def test_chips_are_drawn_on_the_clock_of_the_host(tmp_path: Path) -> None:
    """By 82 ms, a chip whose clock loses 100 ppm is 8.2 us behind the host."""
    trace = read_back(tmp_path, tpu_twin())
    drifting = replace(trace, device_clocks={trace.devices[0]: DeviceClock(agrees_ps=0, drift=1e-4)})
    ends = []
    for each in (trace, drifting):
        drawn: DrawnSteps = host_of(each, "timeline")["timeline"]
        (picture,) = (picture for picture in drawn.pictures if picture.step == 1)
        ends.append((int(picture.links.from_ns[0]), int(picture.links.to_ns[0])))
    assert ends[1][0] == pytest.approx(ends[0][0], abs=1)
    assert ends[1][1] - ends[0][1] == pytest.approx(8200, abs=100)


# --- the ribbon of a step has the intervals that the table of steps adds up ---


def stretches(ribbon: Ribbon) -> list[tuple[str, int, int]]:
    columns = zip(ribbon.category.tolist(), ribbon.start_ns.tolist(), ribbon.end_ns.tolist(), strict=True)
    return [(ribbon.titles[category], start // US, end // US) for category, start, end in columns]


def totals_ns(ribbon: Ribbon) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for category, start, end in zip(ribbon.category, ribbon.start_ns, ribbon.end_ns, strict=True):
        totals[ribbon.titles[category]] += int(end - start)
    return totals


def check_against_table(analyzed: Host) -> None:
    """The ribbon covers each step from its start to its end, and holds what the table says."""
    breakdown = analyzed["steps"]
    for row in range(len(breakdown.steps)):
        (ribbon,) = ribbons(analyzed, row)
        totals = totals_ns(ribbon)
        for key, title in TITLES.items():
            if key != "input" and key not in breakdown.unknown:
                assert totals.get(title, 0) == pytest.approx(
                    int(breakdown.time_ps[key][row]) / 1000, abs=len(ribbon.category)
                )
        if not breakdown.unknown:
            assert ribbon.start_ns[0] == 0
            assert bool((ribbon.start_ns[1:] == ribbon.end_ns[:-1]).all())


def test_a_step_on_two_devices(tmp_path: Path) -> None:
    analyzed = gpu_host(tmp_path, "steps")
    (ribbon,) = ribbons(analyzed, 0)
    assert stretches(ribbon) == [
        ("Input wait", 0, 200), ("All others", 200, 210), ("Kernel launch", 210, 220), ("Host to device", 220, 300),
        ("Device compute", 300, 720), ("Device collectives", 720, 800), ("Host compute", 800, 810),
        ("Output", 810, 850), ("Host compute", 850, 890), ("All others", 890, 1000),
    ]  # fmt: skip
    check_against_table(analyzed)
    assert categories_ns(analyzed, 0)["Device compute"] == 420 * US


def test_each_core_of_a_tpu_has_a_ribbon_and_the_table_their_average(tmp_path: Path) -> None:
    analyzed = host_of(read_back(tmp_path, synthetic_tpu()), "steps")
    both = ribbons(analyzed, 1)
    assert [ribbon.title for ribbon in both] == ["Step of TPU:0 by category", "Step of TPU:1 by category"]
    table = analyzed["steps"].time_ps
    for key in ("device_compute", "input_wait", "device_collectives"):
        mean = np.mean([totals_ns(ribbon).get(TITLES[key], 0) for ribbon in both])
        assert mean == pytest.approx(int(table[key][1]) / 1000, abs=20)


def test_very_many_stretches_are_few_and_add_up_to_the_same(tmp_path: Path) -> None:
    """A step of 20,000 ops: with a gap after each there are 40,000 stretches."""
    ops = [event("a:MatMul", 100_000 + 5 * n, 2 + n % 3) for n in range(20_000)]
    analyzed = host_of(trace_of(tmp_path, host(*marks(3, 100_000), *ops)), "steps")
    (ribbon,) = ribbons(analyzed, 1)
    assert len(ribbon.category) <= 3 * 1_000
    totals = totals_ns(ribbon)
    assert totals["Host compute"] == pytest.approx(sum(2 + n % 3 for n in range(20_000)) * US, abs=len(ribbon.category))
    assert sum(totals.values()) == 100_000 * US


def test_a_place_is_the_longest_stretch_of_a_category(tmp_path: Path) -> None:
    both = (("a:MatMul", 100, 200), ("b:MatMul", 500, 300))
    ops = [event(name, 1000 * n + start, us) for n in range(4) for name, start, us in both]
    analyzed = host_of(trace_of(tmp_path, host(*STEPS, *ops)), "steps")
    (ribbon,) = ribbons(analyzed, 0)
    assert longest_places(ribbon, {"host_ops": ("host_compute",), "output_copy": ("output",)}) == {
        "host_ops": (500 * US, 800 * US, 500 * US)
    }


@given(st.lists(st.tuples(st.sampled_from(["x:MatMul", "IteratorGetNextOp::DoCompute", "tf.function-graph_building"]),
                          st.integers(0, 4_000), st.integers(0, 900)), max_size=30))  # fmt: skip
def test_ribbons_of_random_traces_equal_the_table(
    tmp_path_factory: pytest.TempPathFactory, busy: list[tuple[str, int, int]]
) -> None:
    planes = host(*STEPS, *(event(name, start, duration) for name, start, duration in busy))
    check_against_table(host_of(trace_of(tmp_path_factory.mktemp("ribbon"), planes), "steps"))


def test_titles_are_those_of_the_table_and_of_the_parts_of_input() -> None:
    assert {*TITLES} == {*CATEGORY_TITLES, *PARTS}


# --- links between blocks ---


def linked(picture: StepPicture) -> list[tuple[str, str, str]]:
    """Return kind, name at the start and name at the end of each link."""
    level, links = picture.levels[-1], picture.links

    def name_at(row: int, ns: int) -> str:
        columns = zip(level.row.tolist(), level.start_ns.tolist(), level.name.tolist(), strict=True)
        found: str = next(picture.names[name].name for at, start, name in columns if (at, start) == (row, ns))
        return found

    ends = zip(
        links.from_row.tolist(), links.from_ns.tolist(), links.to_row.tolist(), links.to_ns.tolist(), strict=True
    )
    return [
        (links.kinds[kind], name_at(*each[:2]), name_at(*each[2:]))
        for kind, each in zip(links.kind.tolist(), ends, strict=True)
    ]


def test_launches_lead_to_what_they_launched(tmp_path: Path) -> None:
    picture = gpu_host(tmp_path)["timeline"].pictures[0]
    launch = "launches", "cuLaunchKernel"
    of_device = [
        (*launch, "ampere_sgemm_128x64_nn"),
        (*launch, "relu_kernel"),
        (*launch, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("launches", "MemcpyH2D", "MemcpyH2D"),
    ]
    assert linked(picture) == [*of_device, ("launches", "MemcpyD2H", "MemcpyD2H"), *of_device]


def test_a_send_leads_to_the_receive_that_it_ends(tmp_path: Path) -> None:
    threads = (
        line("python", *STEPS, id=1),
        line("a", event("w/_1:_Send", 2100, 20), event("w/_1:_Send", 2500, 20), id=2),
        line("b", event("w/_2:_Recv", 2050, 100), event("v/_4:_Recv", 2300, 100), event("w/_2:_Recv", 2450, 90), id=3),
    )
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert linked(picture) == [("sends to", "w/_1:_Send", "w/_2:_Recv")] * 2
    assert picture.links.from_ns.tolist() == [100 * US, 500 * US]
    assert picture.links.to_ns.tolist() == [50 * US, 450 * US]


def test_a_fetch_leads_to_the_thread_that_made_its_element(tmp_path: Path) -> None:
    """When the third element is asked for, one waits in the buffer: of three hand-overs that ended, the last."""
    fetches = [event("IteratorGetNextOp::DoCompute", 1000 * n + 100, 100, id=1) for n in range(4)]
    calls = [
        iterator_call("Prefetch", 1000 * n + 110, 50, 7, buffered_elements=1 if n else 0, buffer_limit=2)
        for n in range(4)
    ]
    made = [event("PrefetchProduce", start, 80) for start in (0, 900, 1900, 2900)]
    inner = [iterator_call("Prefetch::Map", start + 5, 60, 8, 7) for start in (0, 900, 1900, 2900)]
    threads = line("python", *STEPS, *fetches, *calls, id=1), line("tf_data_prefetch", *made, *inner, id=2)
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert linked(picture) == [], "it was made in the step before, which is not drawn"
    late = [event("PrefetchProduce", start, 80) for start in (0, 900, 2001, 2900)]
    inner = [iterator_call("Prefetch::Map", start + 5, 60, 8, 7) for start in (0, 900, 2001, 2900)]
    threads = line("python", *STEPS, *fetches, *calls, id=1), line("tf_data_prefetch", *late, *inner, id=2)
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert linked(picture) == [("receives the element of", "IteratorGetNextOp::DoCompute", "PrefetchProduce")]
    assert picture.links.to_ns.tolist() == [1 * US]


def test_nothing_is_linked_where_nothing_tells(tmp_path: Path) -> None:
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", line("python", *STEPS)), step=2)
    assert linked(picture) == []
    assert picture.links.omitted == 0


# --- memory in use during a step ---


def noted(at: float, allocator: str, used: int, **stats: Any) -> Event:
    return event("MemoryAllocation", at, 0, allocator_name=allocator, bytes_allocated=used, **stats)


def test_what_is_in_use_when_the_step_starts_counts(tmp_path: Path) -> None:
    notes = (
        noted(10, "cpu", 100),
        noted(150, "cpu", 300, bytes_reserved=50),
        noted(250, "cpu", 7),
        noted(160, "gpu", 900),
    )
    memory = MemoryInUse(trace_of(tmp_path, host(*notes)))
    gpu, cpu = memory.curves(Window(100 * PS_PER_US, 200 * PS_PER_US))
    assert (cpu.title, cpu.times_ns.tolist(), cpu.used_bytes.tolist()) == ("cpu", [0, 50_000], [100, 350])
    assert (gpu.title, gpu.times_ns.tolist(), gpu.used_bytes.tolist()) == ("gpu", [60_000], [900])


def test_peaks_of_very_many_notes_stay(tmp_path: Path) -> None:
    notes = [noted(n, "cpu", 9_999 if n == 777 else 10) for n in range(2_000)]
    (curve,) = MemoryInUse(trace_of(tmp_path, host(*notes))).curves(Window(0, 2_000 * PS_PER_US))
    assert len(curve.times_ns) == 400
    assert int(curve.used_bytes.max()) == 9_999


def test_without_notes_there_is_no_curve(tmp_path: Path) -> None:
    memory = MemoryInUse(trace_of(tmp_path, host(event("x", 0, 10), noted(500, "cpu", -3), noted(900, "cpu", 5))))
    assert memory.curves(Window(0, 100 * PS_PER_US)) == ()
