"""`tfperf timeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.cli import options


@click.command("timeline", short_help="Convert a profile for trace viewers (Perfetto, chrome://tracing).")
@options.PROFILE_OR_LOGS
@options.run_option("Write")
@options.HOST
@options.host_options
@options.STEP_MARKER
@options.address_options
@options.STEPS
@click.option(
    "--step", type=options.WHICH_STEP, metavar="N|median|slowest", help="Write only events that overlap this step."
)
@click.option(
    "--threads", metavar="PATTERN", multiple=True, help="Write only these threads or planes (* is a wildcard)."
)
@click.option(
    "--min-duration",
    "min_duration_us",
    type=options.DURATION,
    default=0.0,
    help="Write only events of at least this duration, for example 10us.",
)
@click.option("-o", "--output", type=options.OUTPUT, help="A .pftrace, .json or .json.gz file.")
@click.option("--open", "show", is_flag=True, help="Open the profile in Perfetto, in a browser.")
@options.FORCE
def command(path: Location, output: Location | None, show: bool, **values: Any) -> None:
    """Write all events of a profile to a file for a trace viewer, such as Perfetto (https://ui.perfetto.dev).

    The suffix of the file selects the format: .pftrace for Perfetto; .json or .json.gz for chrome://tracing and others.
    The default of PATH is ./logs.

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
        raise click.UsageError("no output given: pass a file with -o, for example -o trace.pftrace, or --open")
    if output is not None and format_of(output) is None:
        raise click.UsageError(f"{output.name}: end the file name in .pftrace, .perfetto-trace, .json or .json.gz")
    if values["step"] is not None and values["steps"] is not None:
        raise click.UsageError("--step cannot be used with --steps")
    if show and isinstance(output, RemotePath):
        raise click.UsageError("--open requires a local file: omit -o, or pass a local file")
    values["min_duration_us"] *= 1e6
    with tempfile.TemporaryDirectory(prefix="tfperf-") as folder:
        target = output or Path(folder, "tfperf.pftrace")
        server = FileServer(target) if show and isinstance(target, Path) else None
        strict = values.pop("strict")
        result = write_timeline(path, target, strict=strict, **values)
        options.say_missing(result.missing_text, strict=strict)
        for sentence in result.sentences():
            options.say(sentence)
        if server is None:
            options.say("to view it, open https://ui.perfetto.dev and drop the file there, or use --open")
            return
        url = server.viewer_url
        is_open = has_browser() and webbrowser.open(url)
        options.say(f"{'opened' if is_open else 'open in a browser on this machine:'} {url}", always=not is_open)
        options.say("waiting for the browser to fetch the file (Ctrl-C stops)")
        server.serve()
