"""`tfperf anonymize`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tfperf.base.storage.remote_path import Location
from tfperf.cli import options


@click.command("anonymize", short_help="Copy a profile with its names replaced, to send it to others.")
@options.PROFILE_OR_LOGS
@options.run_option("Copy")
@options.address_options
@click.option(
    "-o",
    "--output",
    type=options.PATH,
    default=Path("anonymous"),
    show_default=True,
    metavar="DIR",
    help="Logdir for the copy; created if missing.",
)
@options.FORCE
def command(path: Location, output: Path, run: str | Sequence[str] | None, force: bool) -> None:
    """Copy a profile, all hosts of the run, with the names in it replaced; structure and numbers stay.

    Words of a public list stay (types of ops, names that profilers and libraries write); all others become numbered
    ones, the same everywhere. tfperf finds the same steps, causes and numbers in the copy. Without PATH, the folder
    logs is read.

    \b
    Example:
      tfperf anonymize logs/ -o anonymous/
      tfperf analyze anonymous/
    """
    from tfperf.export.anonymize import anonymize

    for sentence in anonymize(path, output, run=run, force=force).sentences():
        options.say(sentence)
