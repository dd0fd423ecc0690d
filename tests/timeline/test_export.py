"""`write_timeline`: from the arguments of a user to a file, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, logdir_of, space
from timeline.perfetto_reader import read_perfetto

import tfperf
from tfperf.timeline.export import write_timeline

STEPS = [event("train", 10 * i, 8, step_num=i) for i in range(3)]


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Two hosts; on `a` there is a short event in step 1."""
    return logdir_of(tmp_path, a=space(host(*STEPS, event("short", 11, 1))), b=space(host(*STEPS)))


def test_parts_of_a_profile(logdir: Path, tmp_path: Path) -> None:
    """Step 1 of host a, with events of 2 us and more."""
    output = tmp_path / "part.pftrace"
    result = tfperf.write_timeline(logdir, str(output), hosts=["a"], steps=(1, 1), threads=["py*"], min_duration_us=2)
    assert list(result.sentences()) == [
        f"wrote {output} ({output.stat().st_size} B): 2 tracks, 1 event, 1 step, 0 arrows",
        "omitted 2 of 4 events: outside the selected steps",
        "omitted 1 of 4 events: shorter than the minimum duration",
    ]
    assert [slice_.name for slice_ in read_perfetto(output).slices] == ["train 1", "train"]


def test_progress_counts_the_bytes_of_all_hosts(logdir: Path, tmp_path: Path) -> None:
    """The second host starts where the first ends."""
    calls: list[tuple[int, int]] = []
    write_timeline(logdir, tmp_path / "o.json", progress=lambda done, total: calls.append((done, total)))
    first, second = (path.stat().st_size for path in sorted(logdir.rglob("*.xplane.pb")))
    assert {total for _, total in calls} == {first + second}
    assert calls == sorted(calls)
    assert first <= calls[-1][0] <= first + second


def test_an_unknown_parameter_or_suffix_is_refused(logdir: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="write_timeline\\(\\) has no parameter 'stap'"):
        write_timeline(logdir, tmp_path / "o.json", stap=(1, 1))  # type: ignore[call-arg]
    with pytest.raises(tfperf.TfperfError, match=r"o\.txt has an unknown suffix"):
        write_timeline(logdir, tmp_path / "o.txt")


def test_what_is_odd_is_said(tmp_path: Path) -> None:
    """A profile without events, of a profiler that warns."""
    logdir = logdir_of(tmp_path, a=space(host(), errors=("buffer overflow",)))
    sentences = list(write_timeline(logdir, tmp_path / "o.json").sentences())
    assert sentences[1:] == ["the profile contains no events", "warning of the profiler: buffer overflow"]
