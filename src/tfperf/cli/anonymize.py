"""`tfperf anonymize`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfperf.base.storage.remote_path import Location
from tfperf.cli import options


@click.command("anonymize", short_help="Copy a profile with anonymous names, to share it.")
@options.PROFILE_OR_LOGS
@options.run_option("Copy")
@options.HOST
@options.HOSTS
@options.JOBS
@options.STRICT
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
def command(path: Location, output: Path, *, strict: bool, **values: Any) -> None:
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

    copied = anonymize(path, output, strict=strict, **values)
    for sentence in copied.sentences():
        options.say(sentence)
    options.say_missing(copied.missing_text, strict=strict)
