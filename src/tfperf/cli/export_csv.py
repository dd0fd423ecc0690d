"""`tfperf export-csv`."""

from __future__ import annotations

from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from tfperf.base.storage.remote_path import Location
from tfperf.base.units import counted
from tfperf.cli import options
from tfperf.report.render import write_folder


@click.command("export-csv", short_help="Write every table of a profile to a CSV file.")
@options.PROFILE_OR_LOGS
@options.trace_options
@options.FORCE
@click.option(
    "-o",
    "--output",
    type=options.OUTPUT,
    metavar="DIR",
    help="Folder for the files; created if missing.  [default: RUN-csv, or RUN-csv-2, ... if it exists]",
)
@click.option(
    "--csv-safe/--no-csv-safe",
    default=True,
    show_default=True,
    help="Prefix names that a spreadsheet would evaluate as formulas with an apostrophe.",
)
def command(path: Location, output: Location | None, force: bool, csv_safe: bool, **values: Any) -> None:
    """Write every table of a profile to a CSV file, with raw numbers and units in the column names.

    The default of PATH is ./logs.

    \b
    Example:
      tfperf export-csv logs/
      tfperf export-csv logs/ -o tables/
    """
    from tfperf.report.render.data_files import csv_files

    analysis = options.load_analysis(path, **values)
    files = csv_files(analysis.report(), for_spreadsheets=csv_safe)
    if output is None:
        suffixes = chain([""], (f"-{number}" for number in count(2)))
        folders = (Path(f"{analysis.run.name}-csv{suffix}") for suffix in suffixes)
        output = next(folder for folder in folders if not folder.exists())
    write_folder(files, output, force=force)
    options.say(f"wrote {counted(len(files), 'file')} to {output}: {', '.join(files)}")
    if analysis.steps_text:
        options.say(analysis.steps_text)
