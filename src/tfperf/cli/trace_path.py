"""The argument that names a profile: a logdir, a run folder or a file; some commands look in `logs` without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfperf.cli.options import DEFAULT_LOGDIR, NonEmptyPath, say
from tfperf.errors import TraceNotFoundError


class _TracePath(NonEmptyPath):
    """The path of a profile; a whole file system is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from tfperf.trace.logdir import refuse_broad

        path = super().convert(value, param, ctx)
        try:
            refuse_broad(path)
        except TraceNotFoundError as error:
            self.fail(str(error), param, ctx)
        except OSError:
            pass  # What opens it says why it cannot be read.
        return path


TRACE_PATH = _TracePath(path_type=Path, readable=False)


def _or_logs(context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Return the path that was given, else the folder where `tfperf run` and `tfperf capture` write."""
    if path is not None or context.resilient_parsing:
        return path
    if not Path(DEFAULT_LOGDIR).is_dir():
        raise click.UsageError(
            f"no PATH is given, and the folder {DEFAULT_LOGDIR}, where tfperf run and capture write, is not here: "
            "name a logdir, a run folder or a *.xplane.pb file"
        )
    say(f"no PATH is given: reading {DEFAULT_LOGDIR}")
    return Path(DEFAULT_LOGDIR)


required = click.argument("path", type=TRACE_PATH)
or_logs = click.argument("path", type=TRACE_PATH, required=False, callback=_or_logs)
"""Reports look in `logs`; a gate does not, for it must judge no stray profile."""
