"""Which steps are drawn, of one host and of several."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, host_of, logdir_of, space, trace_of
from msgspec.structs import replace
from sections.timeline.pictures import gpu_host, pictures_of
from tpu_twin import tpu_twin

import tfperf
from tfperf.base.errors import TfperfError
from tfperf.sections.diagnosis.catalogue import CAUSE_MEANINGS
from tfperf.sections.timeline.analysis import CATEGORIES_OF_CAUSE, DrawnSteps, combine
from tfperf.sections.timeline.lanes import TITLES
from tfperf.trace.device.device_clock import DeviceClock
from tfperf.trace.read import read_host

TIMES = (90, 100, 110, 300)
"""Durations of steps, in us."""


def steps_of(times: tuple[int, ...] = TIMES) -> bytes:
    starts = [sum(times[:n]) for n in range(len(times))]
    return space(
        host(
            *(
                event("train", start, time, step_num=n)
                for n, (start, time) in enumerate(zip(starts, times, strict=True))
            )
        )
    )


def test_the_median_and_the_slowest_step_are_drawn(tmp_path: Path) -> None:
    titles = [picture.title for picture in gpu_host(tmp_path)["timeline"].pictures]
    assert titles == ["Train step 0, the median: 1.00 ms", "Train step 3, the slowest: 1.10 ms"]


def test_the_step_that_is_asked_for(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=steps_of())
    for step, expected in ((1, "1, as asked for"), ("slowest", "3, the slowest"), ("median", "1, the median")):
        analysis = tfperf.load(logdir, sections=("timeline",), step=step)  # type: ignore[arg-type]
        (picture,) = analysis["timeline"].pictures
        assert expected in picture.title
        (section,) = analysis.report(("timeline",)).sections
        assert [chart.title for chart in section.charts] == [picture.title]
        assert [(fact.key, fact.value) for fact in section.facts] == [("drawn_steps", f"{picture.step} of a")]
    missing = tfperf.load(logdir, sections=("timeline",), step=17)
    with pytest.raises(TfperfError, match=r"there is no step 17; the steps are 0\.\.3"):
        missing.report(("timeline",))


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("x", 0, 10)))
    assert host_of(trace, "timeline")["timeline"].why_none.startswith("there are no steps: ")
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
    assert section.notes == ("No step is drawn: there are too many hosts: --host NAME draws the steps of one.",)


def test_of_several_hosts_the_late_one_comes_first(tmp_path: Path) -> None:
    from sections.hosts.jobs import job

    job(tmp_path, a=[0] * 4, b=[20_000] * 4)
    analysis = tfperf.load(tmp_path / "logs", sections=("timeline",))
    (section,) = analysis.report(("timeline",)).sections
    assert [chart.title.partition(":")[0] for chart in section.charts][:1] == ["b"]
    assert len(section.charts) <= 3
    assert {chart.title.partition(":")[0] for chart in section.charts} == {"a", "b"}


def test_places_are_of_causes_and_categories_that_there_are(tmp_path: Path) -> None:
    assert CATEGORIES_OF_CAUSE.keys() <= CAUSE_MEANINGS.keys()
    assert {category for categories in CATEGORIES_OF_CAUSE.values() for category in categories} <= TITLES.keys()
    steps = [event("train", 1000 * n, 1000, step_num=n) for n in range(4)]
    waits = [event("IteratorGetNextOp::DoCompute", 1000 * n + 100, 400) for n in range(4)]
    (picture,) = pictures_of(tmp_path, host(*steps, *waits), step=1)
    assert picture.places["input_wait"] == (100_000, 500_000, 400_000)
    assert "output_copy" not in picture.places


def test_chips_are_drawn_on_the_clock_of_the_host(tmp_path: Path) -> None:
    """By 82 ms, a chip whose clock loses 100 ppm is 8.2 us behind the host."""
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(tpu_twin())
    trace = read_host(path)
    drifting = replace(trace, device_clocks={trace.devices[0]: DeviceClock(agrees_ps=0, drift=1e-4)})
    ends = []
    for each in (trace, drifting):
        drawn: DrawnSteps = host_of(each, "timeline")["timeline"]
        (picture,) = (picture for picture in drawn.pictures if picture.step == 1)
        ends.append((int(picture.links.from_ns[0]), int(picture.links.to_ns[0])))
    assert ends[1][0] == pytest.approx(ends[0][0], abs=1)
    assert ends[1][1] - ends[0][1] == pytest.approx(8200, abs=100)
