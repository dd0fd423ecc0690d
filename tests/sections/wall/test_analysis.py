"""The capture is cut into parts without gaps or overlaps, on traces small enough to check by hand."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from builders import Event, Plane, event, host, known, plane, results_of, trace_of
from hypothesis import given
from hypothesis import strategies as st

from tfperf.analysis.registry import Results
from tfperf.base.units import PS_PER_MS
from tfperf.sections.overview.section import report_summary
from tfperf.sections.wall import WALL, build, modes_text, steady_text
from tfperf.sections.wall.analysis import OMITTED_PARTS, Wall

US = 1_000_000
START_NS = 1_795_314_224_000_000_000
SECTIONS = ["wall", "overview"]


def marked(*starts: float, kind: str = "train", length: float = 10, first: int = 0) -> list[Event]:
    """Marked steps of one length, with an op in each."""
    return [
        made
        for number, start in enumerate(starts, first)
        for made in (event(kind, start, length, step_num=number), event("MatMul:MatMul", start, length))
    ]


def results(tmp_path: Path, *planes: Plane) -> Results:
    return results_of(trace_of(tmp_path, *planes), sections=SECTIONS)


def rows(of: Results) -> dict[str, float]:
    data = known(WALL.data(of))
    return {str(part): 1000 * ms for part, ms in zip(data["part"], data["ms"], strict=True) if isinstance(ms, float)}


def in_order(events: list[Event]) -> Plane:
    return host(*sorted(events, key=lambda each: (each.start_us, -each.duration_us)))


def test_the_end_of_an_epoch_is_between_steps(tmp_path: Path) -> None:
    # Three steps of 10 us, a gap of 70 us, three more steps; the capture goes on for 20 us.
    events = [*marked(0, 10, 20, 100, 110, 120), event("MakeIterator:MakeIterator", 95, 4), event("Sleep", 140, 10)]
    of = results(tmp_path, host(*events))
    wall: Wall = of["wall"]
    (gap,) = wall.between
    assert (gap.start_ps, gap.end_ps, gap.content, gap.starts_epoch) == (30 * US, 100 * US, "nothing", True)
    assert (wall.loop_ps, wall.training_ps, wall.count) == (130 * US, 130 * US, 6)
    parts = rows(of)
    assert parts["averaged steps"] == pytest.approx(60)
    assert parts["between steps: nothing is recorded (Python, callbacks or I/O)"] == pytest.approx(70)
    assert parts["after the last step"] == pytest.approx(20)
    summary = report_summary(of)
    assert summary["steps_per_second"] == pytest.approx(1e6 * 6 / 130)
    assert summary["steps_per_second_within"] == pytest.approx(1e5)
    assert summary["wall_step_ms"] == pytest.approx(0.13 / 6)


def test_what_covers_most_of_a_gap_names_it(tmp_path: Path) -> None:
    events = [*marked(0, 10, 20, 100, 110, 120, 200, 210, 220)]
    events += [event("SaveV2:SaveV2", 40, 50), event("Upload", 135, 60)]
    wall: Wall = results(tmp_path, host(*events))["wall"]
    assert [gap.content for gap in wall.between] == ["checkpoint", "calls"]
    assert (wall.contents["checkpoint"].name, wall.contents["calls"].name) == ("SaveV2", "Upload")
    assert wall.contents["checkpoint"].covered_ps == 50 * US


def test_functions_of_python_name_a_gap(tmp_path: Path) -> None:
    frames = [event("$train.py:30 main", 0, 140), event("$train.py:8 report", 32, 66), event("$time sleep", 33, 60)]
    wall: Wall = results(tmp_path, in_order(marked(0, 10, 20, 100, 110, 120) + frames))["wall"]
    assert [gap.content for gap in wall.between] == ["python"]
    assert wall.contents["python"].name == "train.py:8 report, in it time.sleep"


def test_evaluation_is_apart(tmp_path: Path) -> None:
    # Training for 30 us and 40, evaluation for 40 us and 20, gaps included; 5 us from the first evaluation to training,
    # 15 us from training to the second one.
    test = [*marked(30, 45, 60, kind="test", length=10), *marked(130, 140, kind="test", length=10)]
    of = results(tmp_path, in_order([*marked(0, 10, 20, 75, 85, 95, 105), *test]))
    wall: Wall = of["wall"]
    assert (wall.kind, wall.count) == ("train", 7)
    assert (wall.training_ps, wall.evaluation_ps, wall.loop_ps) == (75 * US, 60 * US, 150 * US)
    assert sum(gap.end_ps - gap.start_ps for gap in wall.gaps_in_loop) == 20 * US
    assert report_summary(of)["steps_per_second"] == pytest.approx(1e12 * 7 / wall.training_ps)


@pytest.mark.parametrize(
    ("content", "between"), [("MakeIterator:MakeIterator", [(20, 50), (80, 95)]), ("XlaCompile", [])]
)
def test_time_before_an_evaluation_is_part_of_it_only_while_it_is_traced(
    content: str, between: list[tuple[int, int]], tmp_path: Path
) -> None:
    test = marked(50, 60, 70, kind="test", length=10)
    inside = [event(content, 22, 26), event(content, 81, 12)]
    wall: Wall = results(tmp_path, in_order([*marked(0, 10, 95, 105), *test, *inside]))["wall"]
    assert [(gap.start_ps // US, gap.end_ps // US) for gap in wall.between] == between
    assert wall.other_kinds_ps == (30 if between else 75) * US


def test_first_steps_are_no_part_of_the_rate(tmp_path: Path) -> None:
    """A long job does not repeat the first step of 500 us; the others take 10 us each, and 20 us between two epochs."""
    starts = [500 + 10 * n + (20 if n > 5 else 0) for n in range(10)]
    of = results(tmp_path, host(*marked(0, length=500), *marked(*starts, first=1)))
    wall: Wall = of["wall"]
    assert (wall.count, wall.steady_count, wall.training_ps) == (11, 10, 120 * US)
    assert report_summary(of)["steps_per_second"] == pytest.approx(1e6 * 10 / 120)
    assert steady_text(wall) == "10 training steps, excluding first steps"


def of_lengths(tmp_path: Path, *lengths: int) -> Wall:
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    steps = [made for n, start in enumerate(starts) for made in marked(start, length=lengths[n], first=n)]
    wall: Wall = results(tmp_path, host(*steps))["wall"]
    return wall


def test_the_fastest_step_is_one_that_follows_another_without_waiting(tmp_path: Path) -> None:
    # Steps of 30, 20 and 25 us, and 50 us later of 10 and 22.
    spans = [(0, 30), (30, 20), (50, 25), (125, 10), (135, 22)]
    events = [made for n, (start, length) in enumerate(spans) for made in marked(start, length=length, first=n)]
    assert results(tmp_path, host(*events))["wall"].fastest_ps == 20 * US
    assert results(tmp_path, host(*marked(0)))["wall"].fastest_ps is None


@pytest.mark.parametrize(("period", "every"), [(3, "third"), (4, "fourth")])
def test_slow_steps_that_come_regularly_have_a_period(tmp_path: Path, period: int, every: str) -> None:
    wall = of_lengths(tmp_path, *(50 if number % period == 1 else 10 for number in range(4 * period)))
    slow = wall.slow("averaged")
    assert (len(slow), wall.period(slow)) == (4, period)
    assert modes_text(wall, slow) == f"Every {every} step takes 0.050 ms, the others 0.010 ms"


def test_one_slow_step_is_no_second_mode(tmp_path: Path) -> None:
    assert not len(of_lengths(tmp_path, 10, 10, 10, 10, 90, 10).slow("averaged"))


def test_starting_and_stopping_the_profiler_are_parts_of_their_own(tmp_path: Path) -> None:
    start, stop = event("$profiler.py:9 start_trace", 0, 20), event("$profiler.py:30 stop_trace", 65, 15)
    parts = rows(results(tmp_path, host(start, *marked(30, 40, 50), stop)))
    assert (parts["starting the profiler"], parts["stopping the profiler"]) == pytest.approx((20, 15))
    assert (parts["before the first step"], parts["after the last step"]) == pytest.approx((10, 5))


def test_a_capture_without_steps_is_one_part(tmp_path: Path) -> None:
    of = results(tmp_path, host(event("MatMul:MatMul", 0, 40)))
    assert rows(of) == {"without any step": pytest.approx(40)}
    assert report_summary(of)["wall"]["before_ms"] == pytest.approx(0.04)
    assert report_summary(of)["steps_per_second"] is None


def test_a_capture_without_events_has_no_wall_time(tmp_path: Path) -> None:
    of = results(tmp_path, plane("/host:CPU"))
    assert WALL.data(of) is None
    assert set(report_summary(of)["wall"].values()) == {None}
    assert build(of).tables == ()


windows = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 60), st.sampled_from(["train", "test"])), min_size=1, max_size=25
)


@given(steps=windows, others=st.lists(st.tuples(st.integers(0, 500), st.integers(1, 200)), max_size=5))
def test_the_parts_add_up_to_the_capture(steps: list[tuple[int, int, str]], others: list[tuple[int, int]]) -> None:
    events = [event(kind, start, length, step_num=n) for n, (start, length, kind) in enumerate(steps)]
    events += [event(f"Other{n}", start, length) for n, (start, length) in enumerate(others)]
    with tempfile.TemporaryDirectory() as folder:
        of = results(Path(folder), in_order(events))
    wall: Wall = of["wall"]
    counted_ps = wall.part_ps("averaged", *OMITTED_PARTS)
    parts_ps = (wall.before_ps, counted_ps, wall.other_kinds_ps, wall.between_ps, wall.after_ps)
    assert sum(parts_ps) == wall.capture_ps
    assert min(parts_ps) >= 0
    assert wall.training_ps + wall.evaluation_ps >= 0
    assert wall.loop_ps <= wall.capture_ps
    assert sum(rows(of).values()) * 1000 * PS_PER_MS / 1e9 == pytest.approx(wall.capture_ps / 1e6 * 1000)
    times = dict(report_summary(of)["wall"])
    assert times.pop("ms") == pytest.approx(sum(times.values()))


def duration(of: Results) -> tuple[str, str]:
    fact = build(of).facts[0]
    return fact.title, f"{fact.value:.3f}"


def test_the_session_is_not_called_the_capture(tmp_path: Path) -> None:
    """Events of 120 us, in a session of 200 us."""
    job = host(*marked(*range(0, 120, 10)))
    assert duration(results(tmp_path, job)) == ("Capture", "0.120")
    session = plane("Task Environment", stats={"profile_start_time": START_NS, "profile_stop_time": START_NS + 200_000})
    assert duration(results(tmp_path, job, session)) == ("Profiler session", "0.200")
