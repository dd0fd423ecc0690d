"""`tfperf timeline`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfperf.cli.options import FORCE, say
from tfperf.cli.parameters import DURATION, STEP_RANGE

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tfperf.timeline.export import TimelineParts
    from tfperf.timeline.viewer_server import FileServer


def _microseconds(context: click.Context, parameter: click.Parameter, seconds: float | None) -> float:
    return (seconds or 0.0) * 1e6


@click.command("timeline", short_help="Write a profile for trace viewers (Perfetto, chrome://tracing).")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--run", metavar="NAME", help="Take this run instead of the newest.")
@click.option("--host", "hosts", metavar="NAME", multiple=True, help="Only this host (repeatable).")
@click.option("--step-marker", metavar="NAME", help="Events of this name are the steps (* is a wildcard).")
@click.option("--steps", metavar="A..B", type=STEP_RANGE, help="Only what overlaps these steps, both included (3..5).")
@click.option("--threads", metavar="PATTERN", multiple=True, help="Only these threads or planes (* is a wildcard).")
@click.option(
    "--min-duration",
    "min_duration_us",
    type=DURATION,
    callback=_microseconds,
    help="Only events of at least this duration, as 10us.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A .pftrace, .json or .json.gz file.")
@click.option("--open", "show", is_flag=True, help="Show it in the browser, in the viewer of Perfetto.")
@FORCE
def command(
    *,
    path: Path,
    run: str | None,
    step_marker: str | None,
    output: Path | None,
    show: bool,
    force: bool,
    **parts: Unpack[TimelineParts],
) -> None:
    """Write all events of a profile to a file for a trace viewer, by default Perfetto (https://ui.perfetto.dev).

    The suffix of the file gives the format: .pftrace for Perfetto; .json or .json.gz for chrome://tracing and others.

    \b
    Example:
      tfperf timeline logs/ -o trace.pftrace
      tfperf timeline logs/ --steps 3..5 --min-duration 10us -o part.json.gz
      tfperf timeline logs/ --open
    """
    from tfperf.timeline.export import write_timeline
    from tfperf.timeline.output_file import format_of
    from tfperf.timeline.viewer_server import FileServer

    if output is None and not show:
        raise click.UsageError("name the file to write with -o, for example -o trace.pftrace, or show it with --open")
    if output is not None and format_of(output) is None:
        raise click.UsageError(f"{output.name}: end the file name in .pftrace, .perfetto-trace, .json or .json.gz")
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder:
        target = output or Path(folder, "tfperf.pftrace")
        server = FileServer(target) if show else None
        result = write_timeline(path, target, run=run, step_marker=step_marker, force=force, **parts)
        for sentence in result.sentences():
            say(sentence)
        if server is None:
            say("to view it, open https://ui.perfetto.dev and drop the file there, or pass --open")
        else:
            _serve(server)


def _serve(server: FileServer) -> None:
    from tfperf.timeline.viewer_server import open_browser

    say(f"{'opened' if open_browser(server.viewer_url) else 'open in a browser on this machine:'} {server.viewer_url}")
    say("waiting for the browser to fetch the file (Ctrl-C stops)")
    if not server.serve():
        say("the file was not fetched")
