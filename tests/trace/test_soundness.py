"""What makes a trace unsound; and that real ones are sound."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, Line, Plane, event, line, plane, trace_of

from tfperf.trace.find_steps import find_steps
from tfperf.trace.read import read_host
from tfperf.trace.soundness import Flaw, find_flaws, level_of

SHARED = Path(__file__).parents[3] / "shared" / "traces"
FETCH = "IteratorGetNextOp::DoCompute"


def marks(count: int = 5, each_us: float = 100) -> list[Event]:
    return [event("train", 100 * number, each_us, step_num=number) for number in range(count)]


def fetches(at_us: float) -> list[Event]:
    return [event(FETCH, 100 * number + at_us, 20) for number in range(5)]


def flaws(tmp_path: Path, *planes: Plane) -> tuple[Flaw, ...]:
    trace = trace_of(tmp_path, *planes)
    return find_flaws(trace, find_steps(trace))


def codes(tmp_path: Path, *lines: Line) -> list[str]:
    return [flaw.code for flaw in flaws(tmp_path, plane("/host:CPU", *lines))]


def test_an_ordinary_trace_is_sound(tmp_path: Path) -> None:
    assert codes(tmp_path, line("python", *marks(), *fetches(10)), line("other", event("work", 0, 400))) == []
    assert level_of(()) == "sound"


def test_events_with_impossible_times(tmp_path: Path) -> None:
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks(), event("work", 10, -5))))
    assert (flaw.code, flaw.level) == ("impossible_times", "unsound")
    assert flaw.text == "1 event of 6 with impossible times (omitted)"


def test_two_planes_of_one_name(tmp_path: Path) -> None:
    host = plane("/host:CPU", line("python", *marks()))
    (flaw,) = flaws(tmp_path, host, plane("/host:CPU", line("python", event("work", 0, 5), id=7)))
    assert flaw == Flaw("repeated_planes", "2 planes are called /host:CPU: a capture has one of each name")
    assert not flaws(tmp_path, host, plane("/host:CPU")), "the other is empty"


def test_threads_whose_clocks_disagree(tmp_path: Path) -> None:
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks()), line("late", event("work", 2_000_500, 5))))
    assert flaw == Flaw(
        "clocks_disagree", "some threads end 2.0 s before all others start: their clocks may disagree", "doubtful"
    )
    assert codes(tmp_path, line("python", *marks(), event("end", 2_000_500, 5)), line("late", event("w", 2e6, 5))) == []


def test_events_that_are_there_twice(tmp_path: Path) -> None:
    work = [event("work", 10 * number, 5) for number in range(20)]
    assert codes(tmp_path, line("python", *work, *work)) == ["repeated_events"]
    assert codes(tmp_path, line("python", *work), line("other", *work, id=2)) == []


def test_fetches_that_are_beside_no_step(tmp_path: Path) -> None:
    beside = line("rest", event("work", -3e6, 6e6))
    for at_us, expected in ((2_000_000, ["fetches_apart"]), (-2_000_000, ["fetches_apart"]), (900_000, []), (450, [])):
        assert codes(tmp_path, line("python", *marks()), line("data", *fetches(at_us)), beside) == expected, at_us
    (flaw,) = flaws(tmp_path, plane("/host:CPU", line("python", *marks()), line("data", *fetches(2e6)), beside))
    assert flaw == Flaw(
        "fetches_apart", "no call of tf.data is within 2.0 s of a step: clocks disagree", about_steps=True
    )
    assert codes(tmp_path, line("python", *marks(2)), line("data", *fetches(2e6)), beside) == [], (
        "too few steps to tell"
    )


@pytest.mark.parametrize(
    ("message", "is_error", "code", "level"),
    [
        ("Events dropped: 15", True, "lost_events", "unsound"),
        ("ring buffer overflow", False, "lost_events", "unsound"),
        ("CUPTI could not be loaded", True, "profiler_error", "doubtful"),
        ("CUPTI could not be loaded", False, "", "sound"),
    ],
)
def test_what_the_profiler_says(tmp_path: Path, message: str, *, is_error: bool, code: str, level: str) -> None:
    from msgspec.structs import replace

    trace = trace_of(tmp_path, plane("/host:CPU", line("python", *marks())))
    trace = replace(trace, **{"errors" if is_error else "warnings": (message, message)})
    found = find_flaws(trace, find_steps(trace))
    assert [flaw.code for flaw in found] == [code] * bool(code), "each message once"
    assert level_of(found) == level
    assert all(message in flaw.text for flaw in found)


def test_real_profiles_are_sound(root: Path) -> None:
    for file in [*(root / "sample_traces").rglob("*.xplane.pb"), *SHARED.rglob("*.xplane.pb")]:
        if file.parent.name != "corrupt_tpu":
            trace = read_host(file)
            assert find_flaws(trace, find_steps(trace)) == (), file
