"""Measure `tfperf export-parquet` beside `tfperf analyze` and xprof's database of events, on one trace of over 100 MB.

    python benchmarks/parquet.py [--cache DIR] [--trace FILE] [--rounds N]

Every figure is a process of its own, from start to exit; the programs take turns, and the median counts. xprof writes
one file of one host; its tables of the report, tfperf's dataset has beside the events. The self times of both are
compared with those that events on one line leave each other, computed here from starts and durations. Exits with 1 if
a bar is missed. The bars are for two cores and nothing else on the machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import FULL_STEPS, Bar, bar_line, captured, default_cache, say, seconds, trace_file

HOSTS = 8
XPROF = """
import sys

from xprof.cli.tools.oss.events_db_tool import events_db
events_db.xspace_to_parquet(
    input_path=sys.argv[1], output_path=sys.argv[2],
    options=events_db.ParquetExportOptions(compression_type=events_db.ArrowCompressionType.ZSTD, compression_level=3),
)
"""
TOTALS = "select name, count(*), sum(duration_ps) from '{}' group by name order by 3 desc limit 20"


def size_of(path: Path) -> int:
    """Return the size of the Parquet files of a folder, or of a file."""
    return sum(file.stat().st_size for file in path.rglob("*.parquet")) if path.is_dir() else path.stat().st_size


def totals(many: Path) -> float:
    """Return how long DuckDB takes to add up all events by name."""
    import duckdb

    began = time.perf_counter()
    duckdb.execute(TOTALS.format(many / "*/*.parquet")).fetchall()
    return time.perf_counter() - began


def right_self_times(folder: Path, self_column: str, names: Sequence[str]) -> float:
    """Return the share of events with children on their line whose self time is less than their duration."""
    import duckdb

    start, duration, line = names
    return float(
        duckdb.execute(
            f"with ordered as (select {self_column} as own, {duration} as duration, "
            f"lead({start}) over (partition by {line} order by {start}, {duration} desc) - {start} as next "
            f"from '{folder}/*.parquet' where {duration} > 0) "
            "select avg((own < duration)::int) from ordered where next < duration"
        ).fetchall()[0][0]
    )


def main() -> int:
    """Measure, print the figures and the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the traces (%(default)s)")
    parser.add_argument("--trace", type=Path, help="measure this trace instead")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    trace: Path = arguments.trace or trace_file(captured(arguments.cache.resolve(), FULL_STEPS))
    print(f"{trace.stat().st_size / 1e6:.0f} MB; load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory(prefix="tfperf-parquet-") as name:
        folder = Path(name)
        logs = folder / "logs"
        logs.mkdir()
        shutil.copy(trace, logs / "host.xplane.pb")
        tfperf = [sys.executable, "-m", "tfperf"]
        xprof_file, dataset = folder / "xprof.parquet", folder / "dataset"
        commands = {
            "analyze": [*tfperf, "analyze", str(logs), "-o", str(folder / "report.txt"), "--force"],
            "export-parquet": [*tfperf, "export-parquet", str(logs), "-o", str(dataset), "--force"],
            "xprof": [sys.executable, "-c", XPROF, str(logs / "host.xplane.pb"), str(xprof_file)],
            "count": [*tfperf, "query", str(logs), "select count(*) from events"],
        }
        taken: dict[str, list[float]] = {way: [] for way in commands}
        for number in range(arguments.rounds):
            for way, command in commands.items():
                say(f"round {number + 1} of {arguments.rounds}: {way}")
                taken[way].append(seconds(command))
        wall = {way: statistics.median(each) for way, each in taken.items()}
        events = next(dataset.glob("run=*/host=*/events"))
        many = folder / "many"
        for number in range(HOSTS):
            (many / f"host=h{number}").mkdir(parents=True)
            for part in events.iterdir():
                os.link(part, many / f"host=h{number}" / part.name)
        totals_s = statistics.median(totals(many) for _ in range(5))
        own = right_self_times(events, "self_ps", ("start_ps", "duration_ps", "line_id"))
        for way, wall_s in wall.items():
            print(f"{way:15} {wall_s:6.2f} s")
        print(f"dataset {size_of(dataset) / 1e6:.1f} MB, events {size_of(events) / 1e6:.1f} MB, xprof "
              f"{size_of(xprof_file) / 1e6:.1f} MB")  # fmt: skip
        bars = [
            Bar("export-parquet / analyze", wall["export-parquet"] / wall["analyze"], 2.5),
            Bar("size of the events / size of the trace", size_of(events) / trace.stat().st_size, 0.35),
            Bar(f"name totals of {HOSTS} hosts in DuckDB", totals_s, 1.0, " s"),
            Bar("export-parquet / xprof's database", wall["export-parquet"] / wall["xprof"], 1.0),
            Bar("size of the dataset / xprof's database", size_of(dataset) / size_of(xprof_file), 1.0),
            Bar("events with others inside whose self time is shorter", own, 0.999, at_least=True),
        ]
    for bar in bars:
        print(bar_line(bar))
    return 0 if all(bar.held for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
