"""Two traces of a file that is decoded once are those of a file that is read twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import event, line, plane, ref, space
from msgspec.structs import asdict
from places import ROOT
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import synthetic_tpu
from trace_rows import memory

from tfperf.export.query.sql_tables import STATS
from tfperf.formats.wire import planes
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.known_stats import DEFAULT
from tfperf.trace.read import AlsoRead, read_host, read_host_twice

SAMPLES = sorted((ROOT / "sample_traces").rglob("*.xplane.pb"))
SHARED = [
    path
    for path in sorted((ROOT.parent / "shared" / "traces").rglob("*.xplane.pb"))
    if "corrupt" not in str(path) and path.stat().st_size < 2_000_000
]


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if hasattr(value, "__struct_fields__"):
        return {key: plain(each) for key, each in asdict(value).items()}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def everything(trace: HostTrace, *without: str) -> dict[str, Any]:
    return {key: plain(value) for key, value in asdict(trace).items() if key not in without}


def check(path: Path, stats: frozenset[str] = DEFAULT) -> None:
    received: list[HostTrace] = []
    own = read_host_twice(path, stats=stats, also=AlsoRead(STATS, received.append))
    alone = read_host(path, stats=stats)
    assert everything(own) == everything(alone)
    (also,) = received
    whole = read_host(path, stats=STATS, instants=True)
    # It has what the other trace asked for too.
    others = ("allocations", "hlo_protos", "name_stats", "cut_names")
    assert everything(also, *others) == everything(whole, *others)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.parts[-5])
def test_samples(path: Path) -> None:
    check(path)


@pytest.mark.skipif(not SHARED, reason="there are no shared traces")
def test_shared_traces() -> None:
    for path in SHARED:
        check(path)


@pytest.mark.parametrize("data", [synthetic_gpu(), synthetic_tpu()], ids=["gpu", "tpu"])
def test_devices(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data)
    check(path)


@pytest.mark.parametrize("limit", [1, 100, 1 << 20])
def test_odd_files(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines on two clocks, out of order and in parts; instants, impossible times, allocations, long texts."""
    monkeypatch.setattr(planes, "BATCH_BYTES", limit)
    long = "x" * 5000
    events = [
        event("late", 50, 10, hlo_op=ref(long), _c=3),
        event("early", 10, 0, _p=3, step_num=1),
        event(long, 0, -5),
        event("train", 0, 90, step_num=1, kernel_type=ref(long)),
        memory(20, addr=1, tf_op=ref("a")),
    ]
    lines = [line("a", *events, id=1, timestamp_ns=5), line("b", event("x", 0, 1), id=2, timestamp_ns=10**18)]
    again = [line("a", event("y", 20, 2), event("PjitFunction(f)", 30, 3), id=1, timestamp_ns=7)]
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", *lines, *again), plane("/device:GPU:0", line("s", event("k", 5, 0)))))
    check(path)
    check(path, frozenset())
