"""`tfperf export-parquet`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from tfperf.base.units import counted, format_bytes
from tfperf.cli import options


@click.command("export-parquet", short_help="Write all events and tables to a Parquet dataset.")
@options.PROFILE_OR_LOGS
@options.trace_options
@click.option("--force", is_flag=True, help="Replace the run if the dataset already has it.")
@click.option(
    "-o", "--output", type=options.PATH, required=True, metavar="DIR", help="Folder of the dataset; created if missing."
)
@click.option("--all-stats", is_flag=True, help="Also write all stats of all events, to the table stats.")
def command(path: Path, output: Path, force: bool, all_stats: bool, **values: Any) -> None:
    """Write all events and report tables of a profile to Parquet files, for DuckDB, dask, Spark and others.

    The run is added to the dataset; runs and hosts are folders. The default of PATH is ./logs.

    \b
    Example:
      tfperf export-parquet logs/ -o dataset/
      tfperf query dataset/ "select host, name, sum(self_ps) / 1e9 from events group by all order by 3 desc limit 9"
    """
    from tfperf.export.parquet import write_loaded

    load_it = partial(options.load_analysis, path, **values)
    written = write_loaded(output, load_it, all_stats=all_stats, force=force)
    size, events = format_bytes(written.size_bytes), counted(written.events, "event")
    options.say(f"wrote {events} and {counted(len(written.tables), 'table')} ({size}) of run {written.run} to {output}")
