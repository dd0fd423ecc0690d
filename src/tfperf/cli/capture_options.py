"""Options of the commands that profile a job: which job, how to reach it, and what to record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tfperf.cli.options import Decorator, together
from tfperf.cli.typed import PATH, Integer

if TYPE_CHECKING:
    from tfperf.capture.address import Address
    from tfperf.capture.tracer_options import TracerOptions

PORT = Integer(1, 65535)
TLS_CA = click.option("--tls-ca", metavar="FILE", type=PATH, help="Use TLS; trust the certificates in this PEM file.")


def _run_name(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    from tfperf.capture.run_agreement import check_run_name
    from tfperf.errors import TfperfError

    try:
        return None if name is None else check_run_name(name)
    except TfperfError as error:
        raise click.BadParameter(str(error)) from error


def run_name_option(default: str) -> Decorator:
    """Return the option that names the run that traces go to."""
    text = f"Name of the run; it is joined if it exists (default: {default})."
    return click.option("--run", metavar="NAME", callback=_run_name, help=text)


_HOST_LEVELS = "0 off, 1 the program's own marks, 2 ops, 3 everything."
tracer_options = together(
    click.option("--host-tracer-level", type=Integer(0, 3), default=2, show_default=True, help=_HOST_LEVELS),
    click.option("--device-tracer-level", type=Integer(0, 1), default=1, show_default=True, help="0 off, 1 on."),
    click.option("--python-trace", is_flag=True, help="Record every Python call (slows the job down a lot)."),
)
"""What to record."""


def take_tracer_options(options: dict[str, Any]) -> TracerOptions:
    """Return what `tracer_options` said, and remove it from the options of the command."""
    from tfperf.capture.tracer_options import TracerOptions

    names = ("host_tracer_level", "device_tracer_level", "python_trace")
    return TracerOptions(*(int(options.pop(name)) for name in names))


def parse_addresses(port: int | None, workers: Sequence[str]) -> list[Address]:
    """Return the addresses of the jobs that --port and --worker name."""
    from tfperf.capture.address import parse_address
    from tfperf.errors import CaptureError

    try:
        return [parse_address(text) for text in ([f"localhost:{port}"] if port else []) + [*workers]]
    except CaptureError as error:
        raise click.UsageError(str(error)) from error
