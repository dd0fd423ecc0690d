"""Chrome's JSON, checked by the rules of its format."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import Plane, event, host, line, plane, u64
from export.timeline.example_files import exported, host_file, whole_trace

from tfperf.export.timeline.export import export
from tfperf.trace.logdir import HostFile

Events = list[dict[str, Any]]

NEEDED = {
    "M": {"pid", "name", "args"},
    "X": {"pid", "tid", "ts", "dur", "name", "cat", "args"},
    "i": {"pid", "tid", "ts", "s", "name", "cat", "args"},
    "s": {"pid", "tid", "ts", "id", "cat", "name"},
    "f": {"pid", "tid", "ts", "id", "cat", "name", "bp"},
    "C": {"pid", "ts", "name", "args"},
}


def checked(data: bytes) -> Events:
    """Parse a file; every event has just what its kind needs, threads have names, arrows two ends."""
    events: Events = json.loads(data)["traceEvents"]
    arrows: dict[str, Counter[tuple[int, str, str]]] = {"s": Counter(), "f": Counter()}
    named = {(entry["pid"], entry.get("tid")) for entry in events if entry["ph"] == "M"}
    for entry in events:
        assert set(entry) - {"ph", "tid"} == NEEDED[entry["ph"]] - {"tid"}
        if entry["ph"] == "M":
            continue
        assert isinstance(entry["ts"], float)
        assert entry["ts"] >= 0
        assert (entry["pid"], entry.get("tid")) in named
        if entry["ph"] in arrows:
            arrows[entry["ph"]][entry["id"], entry["cat"], entry["name"]] += 1
    assert arrows["s"] == arrows["f"]
    assert set(arrows["s"].values()) <= {1}
    return events


def shown(folder: Path, *planes: Plane) -> Events:
    return checked(exported(folder, *planes, name="o.json")[1].read_bytes())


def kind(events: Events, ph: str) -> Events:
    return [entry for entry in events if entry["ph"] == ph]


def test_slices_instants_and_names(tmp_path: Path) -> None:
    events = shown(tmp_path, host(event("a", 1.5, 2.000001, n=3), event("mark", 2, 0, text="x", real=0.5)))
    (process,) = [entry for entry in kind(events, "M") if entry["name"] == "process_name"]
    (thread,) = [entry for entry in kind(events, "M") if entry["name"] == "thread_name"]
    assert (process["args"], thread["args"]) == ({"name": "/host:CPU"}, {"name": "python"})
    place = {"pid": process["pid"], "tid": thread["tid"], "cat": "host"}
    assert kind(events, "X") == [{"ph": "X", "ts": 1.5, "dur": 2.000001, "name": "a", "args": {"n": 3}, **place}]
    assert kind(events, "i") == [
        {"ph": "i", "s": "t", "ts": 2.0, "name": "mark", "args": {"text": "x", "real": 0.5}, **place}
    ]


def test_arrows_and_counters(tmp_path: Path) -> None:
    memory = event("MemoryAllocation", 4, 0, allocator_name="cpu", bytes_allocated=5, bytes_reserved=1)
    launch = host(event("launch", 0, 2, correlation_id=u64(9)), memory)
    events = shown(tmp_path, launch, plane("/device:GPU:0", line("stream", event("gemm", 5, 9, correlation_id=u64(9)))))
    (start,), (finish,) = kind(events, "s"), kind(events, "f")
    slices = {entry["name"]: entry for entry in kind(events, "X")}
    for arrow, name in ((start, "launch"), (finish, "gemm")):
        assert [arrow[key] for key in ("pid", "tid", "ts")] == [slices[name][key] for key in ("pid", "tid", "ts")]
    assert finish["bp"] == "e"
    (counter,) = [entry for entry in kind(events, "C") if entry["name"] == "memory of cpu"]
    assert (counter["name"], counter["ts"], counter["args"]) == ("memory of cpu", 4.0, {"bytes": 6})


def test_numbers_that_json_readers_round_are_texts(tmp_path: Path) -> None:
    stats = {"exact": 2**53, "large": 2**53 + 1, "least": -(2**63), "most": u64(2**64 - 1)}
    reals = {"inf": float("inf"), "nan": float("nan"), "tiny": 1e-300}
    (entry,) = kind(shown(tmp_path, host(event("a", 0, 1, **stats, **reals))), "X")
    assert entry["args"] == {
        "exact": 2**53,
        "large": str(2**53 + 1),
        "least": str(-(2**63)),
        "most": str(2**64 - 1),
        "inf": "inf",
        "nan": "nan",
        "tiny": 1e-300,
    }


def test_hostile_names(tmp_path: Path) -> None:
    names = ["", '"}],\\', "a\0\n\x1b", "\N{SNOWMAN}\U0001f600", "</script>", "x" * 100_000]
    named = [event(name, i, 0.5, **{name or "empty": name}) for i, name in enumerate(names)]
    events = shown(
        tmp_path, plane('/host:CPU "\n', line('t"\\', *named, id=2**63 - 1), line("u", event("u", 0, 1), id=-1))
    )
    slices = [entry for entry in kind(events, "X") if entry["name"] != "u"]
    assert [entry["name"] for entry in slices] == names
    assert [entry["args"] for entry in slices] == [{name or "empty": name} for name in names]
    assert {entry["tid"] for entry in kind(events, "X")} == {1, 2}


def test_crossing_events_are_on_threads_of_their_own(tmp_path: Path) -> None:
    events = shown(tmp_path, plane("/device:GPU:0", line("stream", event("a", 0, 10), event("b", 5, 10))))
    assert len({entry["tid"] for entry in kind(events, "X")}) == 2
    assert [entry["args"]["name"] for entry in events if entry["name"] == "thread_name"] == ["stream", "stream (2)"]


def test_hosts_have_processes_of_their_own(tmp_path: Path) -> None:
    files = [host_file(tmp_path, host(event(name, 0, 1)), host=name) for name in ("w0", "w1")]
    export(files, tmp_path / "o.json")
    events = checked((tmp_path / "o.json").read_bytes())
    assert [entry["args"]["name"] for entry in events if entry["name"] == "process_name"] == [
        "w0 /host:CPU",
        "w1 /host:CPU",
    ]
    assert len({(entry["pid"], entry["tid"]) for entry in kind(events, "X")}) == 2


def test_an_empty_profile_is_valid(tmp_path: Path) -> None:
    assert [entry["name"] for entry in shown(tmp_path, plane("/host:CPU"))] == ["tfperf"]


def test_batches_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfperf.export.timeline.chrome.BATCH", 3)
    events = [event(f"e{i}", i, i % 2, **({"n": i, "text": f"t{i}"} if i % 3 else {})) for i in range(20)]
    entries = [entry for entry in shown(tmp_path, host(*events)) if entry["ph"] in "Xi"]
    assert [(entry["name"], entry["ts"]) for entry in entries] == [(f"e{i}", i) for i in range(20)]
    assert [entry["args"] for entry in entries] == [{"n": i, "text": f"t{i}"} if i % 3 else {} for i in range(20)]


def test_a_compressed_sample_comes_back_whole(samples: Path, tmp_path: Path) -> None:
    (path,) = (samples / "input_bound").rglob("*.xplane.pb")
    output = tmp_path / "o.json.gz"
    result = export([HostFile("h", path)], output)
    assert result.size_bytes == output.stat().st_size
    events = checked(gzip.decompress(output.read_bytes()))
    trace = whole_trace(path)
    columns = (trace.name.tolist(), trace.start_ps.tolist(), trace.duration_ps.tolist())
    expected = [(trace.names[name], start / 1e6, us / 1e6) for name, start, us in zip(*columns, strict=True)]
    found = [entry for entry in events if entry["ph"] in "Xi" and entry["cat"] != "step"]
    assert Counter(expected) == Counter(
        (entry["args"].get("long_name", entry["name"]), entry["ts"], entry.get("dur", 0.0)) for entry in found
    )
    assert len(kind(events, "s")) == result.arrows
