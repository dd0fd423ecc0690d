"""`tfperf top`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from tfperf.base.errors import CaptureError
from tfperf.cli import options, stdout_screen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfperf.capture.address import Address
    from tfperf.live.board import TopRequest


@click.command("top", short_help="Watch running jobs in a live view.")
@click.option(
    "--port",
    type=options.PORT,
    help="Port of a profiler server on this machine (default: all that are found), or of workers without a port.",
)
@click.option(
    "--worker", "workers", metavar="HOST:PORT", multiple=True, help="HOST:PORT, [IPV6]:PORT or unix:/PATH (repeatable)."
)
@options.LISTS
@click.option("--interval", type=options.DURATION, default="5s", show_default=True, help="Time between samples.")
@click.option("--duration", type=options.DURATION, default="500ms", show_default=True, help="Duration of a sample.")
@click.option("--samples", type=options.AT_LEAST_ONE, metavar="N", help="Exit after N samples of each worker.")
@click.option("--once", is_flag=True, help="Take one sample, print one screen as text, and exit.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(("screen", "jsonl")),
    default="screen",
    show_default=True,
    help="jsonl: one JSON object per sample.",
)
@click.option(
    "--metrics-port", type=options.PORT, help="Also serve OpenMetrics on this port of 127.0.0.1, at /metrics."
)
@options.logdir_option("Folder for recorded samples (key r, or --record).")
@click.option("--record", is_flag=True, help="Record every sample to the logdir.")
@options.TLS_CA
def command(once: bool, format_name: str, metrics_port: int | None, **values: Any) -> None:
    """Watch running jobs in a live view. Requires neither TensorFlow nor JAX; the view requires Textual:
    pip install 'tfperf[top]'.

    Each job needs a profiler server: `tfperf.serve()` in its code, `tf.profiler.experimental.server.start(6009)` or
    `jax.profiler.start_server(6009)`.
    Every --interval, all workers are profiled for --duration at the same time. tfperf does not sample a worker that is
    still sending a reply, and retries a worker that is gone. It samples less often if it measures that samples slow a
    job down. No file is written unless you record a sample or write its page. Press ? for a list of keys, q to quit.

    \b
    Example:
      tfperf top
      tfperf top --port 6009
      tfperf top --workers w0:6009,w1:6009 --interval 10s
      tfperf top --port 6009 --once
      tfperf top --port 6009 --format jsonl >> samples.jsonl
      tfperf top --cluster-spec --metrics-port 9123
    """
    screen = stdout_screen()
    if once and (format_name == "jsonl" or values["samples"] or metrics_port):
        raise click.UsageError("--once cannot be used with --format, --samples or --metrics-port")
    if format_name == "screen" and not once and not can_be_redrawn():
        raise click.UsageError(
            "the live view requires a terminal; use --once for one screen as text, or --format jsonl"
        )
    if format_name == "screen" and not once and find_spec("textual") is None:
        raise click.UsageError(
            "the live view requires Textual: pip install 'tfperf[top]'; --once and --format jsonl do not"
        )
    request = _request(**values)
    from tfperf.live.top import show_live, show_once, write_lines

    if once:
        from tfperf.report.render import write

        write(show_once(request, screen), None)
    elif format_name == "jsonl":
        if not write_lines(request, metrics_port):
            raise Exit(1)
    else:
        show_live(request, screen, metrics_port)


def can_be_redrawn() -> bool:
    """Return whether stdin and stdout are a terminal with cursor control."""
    import os
    import sys

    streams = (sys.stdin, sys.stdout)
    return all(each is not None and each.isatty() for each in streams) and os.environ.get("TERM", "") not in (
        "",
        "dumb",
    )


def _request(
    *, interval: float, duration: float, record: bool, logdir: Path, samples: int | None, **values: Any
) -> TopRequest:
    from tfperf.live.board import TopRequest

    if duration > interval / 2:
        asked = f"--duration {duration:g}s is more than half of --interval {interval:g}s"
        raise click.UsageError(f"{asked}: use a shorter duration or a longer interval")
    tls_ca = values.pop("tls_ca")
    addresses = options.take_addresses(values) or _servers_here()
    return TopRequest(
        workers=tuple(addresses),
        duration_s=duration,
        interval_s=interval,
        tls_ca=tls_ca,
        logdir=logdir,
        records_all=record,
        samples=samples,
    )


def _servers_here() -> Sequence[Address]:
    """Return the profiler servers of this machine, and print them."""
    from tfperf.capture.client import SERVER_SNIPPET
    from tfperf.capture.machine import Machine
    from tfperf.capture.remote import find_servers

    if not Machine().shows_listeners():
        raise click.UsageError("select a job with --port PORT (this machine) or --worker HOST:PORT")
    servers = find_servers()
    if not servers:
        problem = "found no profiler server of yours on this machine"
        raise CaptureError("not_listening", f"{problem}; {SERVER_SNIPPET}, or select a job with --port or --worker")
    options.say(f"found {', '.join(f'{each.listener} on port {each.address.port}' for each in servers)}")
    return [each.address for each in servers]
