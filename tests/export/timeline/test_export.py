"""`write_timeline`: from the arguments of a user to a file, and what is said about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, logdir_of, space
from export.timeline.perfetto_reader import read_perfetto
from synthetic_tpu import ARRAY_BYTES, F_COPIES, JUMP, Offload, offload_tpu
from tpu_twin import tpu_twin

import tfperf
from tfperf.export.timeline.export import ExportResult, write_timeline

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
    assert sentences[1:] == ["the profile contains no events", "profiler warning: buffer overflow"]


def written(tmp_path: Path, data: bytes) -> tuple[ExportResult, list[dict[str, Any]], dict[int, str]]:
    """Export a host; return the events of the file, and the names of its processes."""
    result = write_timeline(logdir_of(tmp_path, a=data), tmp_path / "o.json")
    events = json.loads((tmp_path / "o.json").read_text())["traceEvents"]
    return result, events, {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}


def arrows(events: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """Both ends of each arrow, the source first."""
    ends: dict[int, list[dict[str, Any]]] = {}
    for each in events:
        if each["ph"] in ("s", "f"):
            ends.setdefault(each["id"], []).append(each)
    return {number: sorted(pair, key=lambda end: end["ph"], reverse=True) for number, pair in ends.items()}


@pytest.mark.parametrize(
    "data",
    [
        offload_tpu(Offload(jumps=(JUMP,))),
        offload_tpu(Offload(flows=False, waits=True, runs=12, run_ms=0.08, early=0.4)),
        tpu_twin(),
    ],
    ids=["flows", "ids, clocks apart", "twin"],
)
def test_an_arrow_leads_to_each_run_of_a_tpu(data: bytes, tmp_path: Path) -> None:
    """From the event that enqueues it, which comes before it."""
    result, events, groups = written(tmp_path, data)
    tracks = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    runs = [each for each in events if each["ph"] == "X" and tracks[each["pid"], each["tid"]] == "XLA Modules"]
    arriving = [
        (target["pid"], target["tid"], target["ts"])
        for source, target in arrows(events).values()
        if groups[source["pid"]] == "/host:CPU" and source["ts"] <= target["ts"]
    ]
    assert len(runs) >= 3
    assert {arriving.count((run["pid"], run["tid"], run["ts"])) for run in runs} == {1}
    assert result.backward_arrows == 0


def test_what_the_compiler_estimates_for_a_tpu_is_left_out(tmp_path: Path) -> None:
    """Two of these events would last until long after the capture."""
    result = write_timeline(logdir_of(tmp_path, a=tpu_twin()), tmp_path / "o.json")
    assert result.omitted["compiler estimates for TPU programs, which are not measurements"] == 3 * 73 * 8 + 2


def test_memory_of_a_tpu_is_a_counter_of_each_chip(tmp_path: Path) -> None:
    _, events, _ = written(tmp_path, offload_tpu())
    counters = {each["name"] for each in events if each["ph"] == "C" and each["name"].startswith("memory")}
    assert counters == {"memory of TPU:0", "memory of TPU:1"}


def test_copies_of_a_tpu_are_in_flight_from_start_to_done_on_every_chip(tmp_path: Path) -> None:
    """The line of the profiler that has them is on the first chip only, and on a clock that jumps."""
    result, events, groups = written(tmp_path, offload_tpu(Offload(jumps=(JUMP,))))
    copies = [each for each in events if each["ph"] == "X" and groups[each["pid"]] == "TPU copies"]
    tracks = [each["args"]["name"].partition(" ")[0] for each in events if each["name"] == "thread_name"]
    assert {name for name in tracks if name.startswith("TPU:")} == {"TPU:0", "TPU:1"}
    lasts = {(each["name"], round(each["dur"] / 1000, 6)) for each in copies}
    ways = {"copy-start": "chip", "copy-start.2": "chip", "copy-start.1": "host", "copy-start.3": "host"}
    assert lasts == {(f"{name} to the {ways[name]}", length) for name, (_, length) in F_COPIES.items()}
    assert result.copies == len(copies) == 2 * 5 * 4
    waited = {each["name"]: each["args"]["waited for (ns)"] for each in copies}
    assert waited["copy-start.2 to the chip"] == 280_000_000
    assert {each["args"]["bytes"] for each in copies} == {ARRAY_BYTES}


def test_copies_of_a_tpu_outside_of_what_is_asked_for_are_left_out(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=offload_tpu())
    assert write_timeline(logdir, tmp_path / "1.json", steps=(1, 1)).copies == 2 * 4
    assert write_timeline(logdir, tmp_path / "2.json", threads=["/device:TPU:1"]).copies == 5 * 4
    assert write_timeline(logdir, tmp_path / "3.json", min_duration_us=300_000).copies == 2 * 5 * 2
