"""Hosts that cannot be of one capture: copies, other times, other profilers, other programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import Plane, event, host, line, logdir_of, plane, space, trace_of
from places import ROOT

import tfperf
from tfperf.judge.check import check_profile
from tfperf.trace.soundness import CaptureIdentity, capture_identity, foreign_hosts

SHARED = ROOT.parent / "shared" / "traces"

S = 1_000_000_000
START = 1_700_000_000 * S
CODES = {"copied_host", "other_capture", "other_profiler", "other_program"}


def identity(
    start_s: float | None = 0.0, stop_s: float = 1.0, digest: bytes = b"", functions: tuple[str, ...] = ()
) -> CaptureIdentity:
    if start_s is None:
        return CaptureIdentity(start_ns=None, span_ns=None, digest=digest, functions=frozenset(functions))
    span_ns = START + round(start_s * S), START + round(stop_s * S)
    return CaptureIdentity(start_ns=span_ns[0], span_ns=span_ns, digest=digest, functions=frozenset(functions))


def found(*captures: CaptureIdentity) -> dict[int, str]:
    names = [f"w-{number}" for number in range(len(captures))]
    return {place: flaw.code for place, flaw in foreign_hosts(names, captures).items()}


def test_equal_events_at_one_time_are_a_copy() -> None:
    first, other = identity(digest=b"a"), identity(digest=b"b")
    assert found(first, other, first) == {2: "copied_host"}
    (flaw,) = foreign_hosts(["one", "two"], [first, first]).values()
    assert flaw.text == "the file is a copy of that of host one: its figures are not of this run"
    assert flaw.level == "unsound"


def test_equal_events_at_other_times_are_no_copy() -> None:
    assert found(identity(0.0, 1.0, b"a"), identity(0.001, 1.0, b"a")) == {}


def test_captures_apart_are_of_different_runs() -> None:
    """Of three hosts, two overlap; a gap is said in seconds."""
    captures = [identity(7.0, 8.0), identity(0.0, 1.0), identity(0.9, 2.0)]
    assert found(*captures) == {0: "other_capture"}
    assert "the capture is 5.0 s after those of other hosts" in foreign_hosts(["a", "b", "c"], captures)[0].text
    assert found(*(identity(n * 0.9, n * 0.9 + 1.0) for n in range(4))) == {}, "each overlaps with the next"


def test_a_host_whose_clock_is_unknown_is_of_any_time() -> None:
    assert found(identity(0.0, 1.0), identity(None)) == {}


def test_a_file_without_a_time_is_of_another_profiler() -> None:
    assert found(identity(digest=b"a"), identity(0.1, 1.0, b"b"), identity(None, digest=b"c")) == {2: "other_profiler"}
    assert found(identity(None, digest=b"a"), identity(None, digest=b"b")) == {}


def test_programs_without_a_common_function_are_different() -> None:
    one, two, three = (identity(functions=names) for names in (("f", "g"), ("g", "h"), ("h", "i")))
    assert found(one, three) == {1: "other_program"}
    assert found(one, three, two) == {}, "the third calls functions of both"
    assert found(one, identity()) == {}, "a host without steps calls what it likes"


def dated(start_ns: int, *, stop_ns: int | None = None, functions: tuple[str, ...] = ()) -> tuple[Plane, ...]:
    steps = [event("train", 100 * number, 90, step_num=number) for number in range(5)]
    calls = [event(name, 100 * place + 1, 1) for place, name in enumerate(functions)]
    stats = {"profile_start_time": start_ns, "profile_stop_time": stop_ns or start_ns + S}
    return host(*steps, *calls), plane("Task Environment", stats=stats)


def test_what_tells_captures_apart(tmp_path: Path) -> None:
    planes = dated(START, functions=("EagerExecute: __inference_train_step_12", "PjitFunction(f)"))
    capture = capture_identity(trace_of(tmp_path, *planes), has_steps=True)
    assert (capture.start_ns, capture.span_ns) == (START, (START, START + S))
    assert capture.functions == {"__inference_train_step", "f"}
    assert capture.digest


def test_few_events_without_a_time_are_no_evidence(tmp_path: Path) -> None:
    """Of 5 events, nothing shows by chance or not; 200 with equal times are a copy."""
    few = [event("train", 100 * number, 90, step_num=number) for number in range(5)]
    many = [event("train", 100 * number, 90, step_num=number) for number in range(200)]
    assert capture_identity(trace_of(tmp_path, host(*few)), has_steps=True).digest == b""
    assert capture_identity(trace_of(tmp_path, host(*many)), has_steps=True).digest


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (dated(START), "the file is a copy of that of host w-0"),
        (dated(START + 60 * S), "the capture is 59.0 s after those of other hosts"),
    ],
)
def test_check_passes_nothing_over_hosts_of_different_captures(
    tmp_path: Path, other: tuple[Plane, ...], words: str
) -> None:
    path = logdir_of(tmp_path, **{"w-0": space(*dated(START)), "w-1": space(*other)})
    outcome = check_profile(path, limits=["step_time <= 1s"])
    assert outcome.exit_code == 1
    assert words in outcome.judged[0].why
    assert check_profile(tfperf.load(path, hosts=["w-1"]), limits=["step_time <= 1s"]).exit_code == 0


def test_check_passes_nothing_where_the_foreign_host_serves_others(tmp_path: Path) -> None:
    """It might be in the place of a host that breaches the limit."""
    helper = plane("/host:CPU", line("tf_data_service_worker/1", event("work", 0, 5)))
    idle = helper, plane("Task Environment", stats={"profile_start_time": START + 60 * S})
    path = logdir_of(tmp_path, **{"w-0": space(*dated(START)), "w-1": space(*idle)})
    (judged,) = check_profile(path, limits=["step_time <= 1s"]).judged
    assert (judged.status, judged.why[:20]) == ("unknown", "host w-1: the captur")


def test_check_passes_hosts_of_one_capture(tmp_path: Path) -> None:
    path = logdir_of(tmp_path, **{f"w-{n}": space(*dated(START + 1000 * n)) for n in range(3)})
    assert check_profile(path, limits=["step_time <= 1s"]).exit_code == 0


def _runs() -> list[Path]:
    folders = {path.parent for path in (SHARED / "multi_host").rglob("*.xplane.pb")}
    return sorted(folder for folder in folders if len(list(folder.glob("*.xplane.pb"))) > 1)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")
def test_real_runs_are_of_one_capture_and_their_copies_and_mixtures_are_not(tmp_path: Path) -> None:
    runs = _runs()
    for place, run in enumerate(runs):
        assert not CODES & {flaw.code for _, flaw in tfperf.load(run, sections=["steps"]).flaws}, run
        largest = max(run.glob("*.xplane.pb"), key=lambda path: path.stat().st_size)
        others = max(runs[place - 1].glob("*.xplane.pb"), key=lambda path: path.stat().st_size)
        for added, code in ((largest, "copied_host"), (others, "other_capture")):
            folder = tmp_path / f"{place}_{code}"
            shutil.copytree(run, folder)
            shutil.copy(added, folder / "zz.xplane.pb")
            assert ("zz", code) in {
                (name, flaw.code) for name, flaw in tfperf.load(folder, sections=["steps"]).flaws
            }, folder
