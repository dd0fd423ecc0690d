"""What `tfperf check` tells CI systems, apart from the report: a JUnit file, and GitHub Actions."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfperf.errors import OutputError

if TYPE_CHECKING:
    from tfperf.gate.check import Outcome


def notify(outcome: Outcome, junit: Path | None, *, github: bool, force: bool) -> bool:
    """Tell the CI systems what a gate came to; return whether all could be told."""
    from tfperf.gate.ci_output import annotation_text, write_junit, write_summary

    notified = True
    if junit is not None:
        notified &= done(partial(write_junit, outcome, junit, force=force))
    if github:
        # Before the report: a name in it must not be able to stop these commands.
        _say(annotation_text(outcome))
        notified &= done(lambda: _say(write_summary(outcome, os.environ)))
    return notified


def done(write: Callable[[], None]) -> bool:
    """Write something; if that cannot be, say so and go on: the verdict is the exit code, whatever else fails."""
    from tfperf.render.safe_text import safe

    try:
        write()
    except OutputError as error:
        _say(f"Error: {safe(str(error))}")
        return False
    return True


def _say(text: str) -> None:
    """Write lines to stderr; if its reader has left, nothing more is told and the exit code stays."""
    if not text:
        return
    try:
        click.echo(text, err=True)
    except OSError:
        from tfperf.render.output import discard

        discard(sys.stderr)
