"""Datasets: what is in them, adding runs, and that they are written whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from builders import event, gpu, host, logdir_of, marks, space
from sections.hosts.jobs import host_of_job

import tfperf
from tfperf.base.errors import OutputError, TfperfWarning, TraceFormatError
from tfperf.export.parquet import write_parquet
from tfperf.export.query.sources import MARKER, Dataset

pytestmark = pytest.mark.usefixtures("asked_here")
STEPS = space(host(*marks(3)))


def files_of(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def run_of(tmp_path: Path, name: str, **hosts: bytes) -> Path:
    logdir = logdir_of(tmp_path / name, **hosts)
    folder = next(logdir.rglob("*.xplane.pb")).parent
    return folder.rename(folder.with_name(name))


def test_each_table_and_host_has_its_place(tmp_path: Path) -> None:
    written = write_parquet(run_of(tmp_path, "r1", a=STEPS, b=STEPS), tmp_path / "dataset", all_stats=True)
    files = files_of(tmp_path / "dataset")
    assert (written.run, written.events) == ("r1", 6)
    assert MARKER in files
    for file in ("host=a/events", "host=b/events", "host=a/stats", "steps", "hosts"):
        assert f"run=r1/{file}/part-0.parquet" in files
    assert {file.split("/")[-2] for file in files if "/" in file} == set(written.tables)
    assert {path.name for path in (tmp_path / "dataset").iterdir()} == {MARKER, "run=r1"}


def test_a_run_is_added_and_others_are_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "dataset"
    write_parquet(run_of(tmp_path, "r1", a=STEPS), target)
    before = {file: (target / file).stat().st_mtime_ns for file in files_of(target)}
    write_parquet(run_of(tmp_path, "r2", a=STEPS), target)
    assert {file: (target / file).stat().st_mtime_ns for file in before} == before
    assert tfperf.sql(target, "select run, count(*) n from events group by run order by run").n.tolist() == [3, 3]


def test_a_run_is_replaced_only_with_force(tmp_path: Path) -> None:
    target, run = tmp_path / "dataset", run_of(tmp_path, "r1", a=STEPS)
    write_parquet(run, target, all_stats=True)
    with pytest.raises(OutputError, match="already has the run r1; pass --force to replace it"):
        write_parquet(run, target)
    write_parquet(run, target, force=True)
    assert not list(target.rglob("stats")), "it has no stats any more"
    assert len(tfperf.sql(target, "select * from events")) == 3


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("mine")
    for target in (tmp_path / "other", tmp_path / "other" / "file"):
        with pytest.raises(OutputError, match="is not a tfperf dataset"):
            write_parquet(run_of(tmp_path, f"r{target.name}", a=STEPS), target)
    assert files_of(tmp_path / "other") == ["file"]


EXPORTING = """
import os, sys

rename, calls = os.rename, []

def stopped(*arguments, **options):
    calls.append(arguments)
    if len(calls) == 2:
        print("here", flush=True)
        sys.stdin.readline()
    rename(*arguments, **options)

os.rename = stopped
from tfperf.export.parquet import write_parquet
write_parquet(sys.argv[1], sys.argv[2], force=True)
"""
"""Waits before the second rename."""


@contextmanager
def export_stopped(run: Path, target: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that replaces a run, and waits before the new one takes its place."""
    command = [sys.executable, "-c", EXPORTING, str(run), str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"here\n"
            yield process
        finally:
            process.kill()


def runs_in(target: Path) -> dict[str, int]:
    rows = tfperf.sql(target, "select run, count(*) n from events group by run order by run")
    return dict(zip(rows.run, rows.n.tolist(), strict=True))


def test_a_run_is_not_lost_if_an_export_that_replaces_it_is_killed(tmp_path: Path) -> None:
    target, run, other = tmp_path / "dataset", run_of(tmp_path, "r1", a=STEPS), run_of(tmp_path, "r2", a=STEPS)
    write_parquet(run, target)
    before = files_of(target)
    with export_stopped(run, target):
        pass
    with pytest.warns(TfperfWarning, match=r"run=r1 is missing, because .* the next export restores it"):
        assert Dataset(target).names == ()
    with pytest.warns(TfperfWarning, match="was killed while writing to .*: .*run=r1"):
        write_parquet(other, target)
    assert [file for file in files_of(target) if "run=r2" not in file] == before
    assert runs_in(target) == {"r1": 3, "r2": 3}


def test_datasets_of_other_formats_are_refused(tmp_path: Path) -> None:
    target, run = tmp_path / "dataset", run_of(tmp_path, "r1", a=STEPS)
    target.mkdir()
    (target / MARKER).write_text('{"format": 1}')
    for use in (lambda: write_parquet(run, target), lambda: tfperf.sql(target, "select 1")):
        with pytest.raises(TraceFormatError, match="is a dataset of format 1, not 3; export its runs to a new folder"):
            use()


def test_odd_names_come_back(tmp_path: Path) -> None:
    names = ["a=b c", "100%", "\u00fc" * 40, "x'y\"z"]
    run = run_of(tmp_path, "2024-01-02", **dict.fromkeys(names, STEPS))
    write_parquet(run, tmp_path / "dataset")
    hosts = tfperf.sql(tmp_path / "dataset", "select distinct run, host from events order by host")
    assert hosts.host.tolist() == sorted(names)
    assert set(hosts.run) == {"2024-01-02"}, "no engine takes it for a date"


def test_row_groups_hold_one_plane(tmp_path: Path) -> None:
    data = space(host(*marks(1)), gpu(event("gemm", 5, 1)))
    write_parquet(run_of(tmp_path, "r1", a=data), tmp_path / "dataset")
    file = pq.ParquetFile(next((tmp_path / "dataset").glob("*/*/events/*.parquet")))
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    column = file.schema_arrow.names.index("plane")
    limits = [(group.column(column).statistics.min, group.column(column).statistics.max) for group in groups]
    assert limits == [("/host:CPU",) * 2, ("/device:GPU:0",) * 2]
    assert groups[0].column(0).compression == "ZSTD"


def test_hosts_have_their_clocks(tmp_path: Path) -> None:
    a, b = host_of_job([0] * 4, [9_000] * 4), host_of_job([9_000] * 4, [9_000] * 4, clock_us=1_000)
    write_parquet(run_of(tmp_path, "r1", a=a, b=b), tmp_path / "dataset")
    rows = tfperf.sql(tmp_path / "dataset", "select host, clock_start_ns, clock_ahead_ns from host_files order by host")
    assert rows.clock_ahead_ns.tolist() == [0, 1_000_000]
    assert rows.clock_start_ns.tolist() == [1_795_314_224_000_000_000, 1_795_314_224_001_000_000]
