"""`tfperf anonymize`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tfperf.base.storage.remote_path import Location
from tfperf.cli import options


@click.command("anonymize", short_help="Copy a profile with anonymous names, to share it.")
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
    help="Logdir of the copy; created if missing.",
)
@options.FORCE
def command(path: Location, output: Path, run: str | Sequence[str] | None, force: bool) -> None:
    """Copy all hosts of a run with anonymous names. Structure and numbers do not change.

    Words on a public list are kept (op types, names that profilers and libraries write). Every other word is replaced
    by a numbered one, which is the same everywhere. The report of the copy has the same steps, causes and numbers. The
    default of PATH is ./logs.

    \b
    Example:
      tfperf anonymize logs/ -o anonymous/
      tfperf analyze anonymous/
    """
    from tfperf.export.anonymize import anonymize

    for sentence in anonymize(path, output, run=run, force=force).sentences():
        options.say(sentence)
