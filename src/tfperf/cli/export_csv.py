"""`tfperf export-csv`."""

from __future__ import annotations

from pathlib import Path

import click

from tfperf.cli.options import FORCE, load_analysis, trace_options


@click.command("export-csv", short_help="Write every table of a profile as a CSV file.")
@trace_options
@FORCE
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Folder for the files; made if need be.",
)
def command(path: Path, output: Path, force: bool, **options: object) -> None:
    """Write every table of a profile as a CSV file: raw numbers, units in the column names.

    \b
    Example:
      tfperf export-csv logs/ -o tables/
    """
    from tfperf.render.csv_file import csv_files
    from tfperf.render.output import write_folder
    from tfperf.render.safe_text import safe

    files = csv_files(load_analysis(path, **options).report())
    write_folder(files, output, force=force)
    click.echo(f"wrote {len(files)} files to {safe(str(output))}: {', '.join(files)}", err=True)
