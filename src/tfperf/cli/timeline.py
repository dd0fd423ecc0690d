"""`tfperf timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.cli import options


@click.command("timeline", short_help="Write a profile for trace viewers (Perfetto, chrome://tracing).")
@options.PROFILE_OR_LOGS
@options.run_option("Write")
@options.HOST
@options.STEP_MARKER
@options.address_options
@click.option(
    "--steps", metavar="A..B", type=options.step_range, help="Only what overlaps these steps, both included (3..5)."
)
@click.option("--step", type=options.WHICH_STEP, metavar="N|median|slowest", help="Only what overlaps this step.")
@click.option("--threads", metavar="PATTERN", multiple=True, help="Only these threads or planes (* is a wildcard).")
@click.option(
    "--min-duration",
    "min_duration_us",
    type=options.DURATION,
    default=0.0,
    help="Only events of at least this duration, for example 10us.",
)
@click.option("-o", "--output", type=options.OUTPUT, help="A .pftrace, .json or .json.gz file.")
@click.option("--open", "show", is_flag=True, help="Show it in Perfetto, in the browser.")
@options.FORCE
def command(path: Location, output: Location | None, show: bool, **values: Any) -> None:
    """Write all events of a profile to a file for a trace viewer, by default Perfetto (https://ui.perfetto.dev).

    The suffix of the file gives the format: .pftrace for Perfetto; .json or .json.gz for chrome://tracing and others.
    Without PATH, the folder logs is read.

    \b
    Example:
      tfperf timeline logs/ -o trace.pftrace
      tfperf timeline logs/ --steps 3..5 --min-duration 10us -o part.json.gz
      tfperf timeline logs/ --step slowest -o step.pftrace
      tfperf timeline logs/ --open
    """
    import tempfile
    import webbrowser

    from tfperf.export.timeline.export import format_of, write_timeline
    from tfperf.export.timeline.viewer_server import FileServer, has_browser

    if output is None and not show:
        raise click.UsageError("name the file to write with -o, for example -o trace.pftrace, or show it with --open")
    if output is not None and format_of(output) is None:
        raise click.UsageError(f"{output.name}: end the file name in .pftrace, .perfetto-trace, .json or .json.gz")
    if values["step"] is not None and values["steps"] is not None:
        raise click.UsageError("--step and --steps both say what to write: omit one of them")
    if show and isinstance(output, RemotePath):
        raise click.UsageError("--open shows a file of this machine: omit -o, or name such a file")
    values["min_duration_us"] *= 1e6
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder:
        target = output or Path(folder, "tfperf.pftrace")
        server = FileServer(target) if show and isinstance(target, Path) else None
        result = write_timeline(path, target, **values)
        for sentence in result.sentences():
            options.say(sentence)
        if server is None:
            options.say("to view it, open https://ui.perfetto.dev and drop the file there, or pass --open")
            return
        url = server.viewer_url
        is_open = has_browser() and webbrowser.open(url)
        options.say(f"{'opened' if is_open else 'open in a browser on this machine:'} {url}", always=not is_open)
        options.say("waiting for the browser to fetch the file (Ctrl-C stops)")
        server.serve()
