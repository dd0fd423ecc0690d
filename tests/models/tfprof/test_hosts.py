"""What each host did in a step."""

from __future__ import annotations

from pathlib import Path

from tfprof_builders import CPU, STREAMS, model, node, ran, run_metadata

from tfperf.models.tfprof.run_metadata import HostStep
from tfperf.models.tfprof.sources import Sources, read_model

WORKERS = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]


def test_hosts_of_one_file(tmp_path: Path) -> None:
    records = {
        WORKERS[0]: [ran("x", 100, 10), ran("RecvTensor", 105, 30), ran("RecvTensor", 0, 99)],
        "/device:GPU:0/stream:all": [ran("x", 100, 50)],
        WORKERS[1]: [ran("x", 90, 5), ran("RecvTensor", 95, 1)],
    }
    assert model(tmp_path, [node("x", "A")], {3: run_metadata(records)}).hosts == [
        HostStep(step=3, host="/job:worker/replica:0/task:0", start=100, end=150, received_micros=30, received=1),
        HostStep(step=3, host="/job:worker/replica:0/task:1", start=90, end=96, received_micros=1, received=1),
    ]


def test_local_sessions_are_told_apart_by_their_files(tmp_path: Path) -> None:
    model(tmp_path, [node("x", "A")])
    files = [tmp_path / "one", tmp_path / "two"]
    for start, file in enumerate(files, start=1):
        file.write_bytes(run_metadata({CPU: [ran("x", start, 10)]}))
    hosts = read_model(Sources(graph=tmp_path / "graph.pb", run_metadata={0: files})).hosts
    assert [(each.host, each.start, each.end) for each in hosts] == [("file 1", 1, 11), ("file 2", 2, 12)]


def test_a_host_without_times_is_left_out(tmp_path: Path) -> None:
    records = {CPU: [ran("x", 0, 10)], STREAMS: [ran("x", 0, 3)]}
    assert model(tmp_path, [node("x", "A")], {0: run_metadata(records)}).hosts == []
