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
    from tfperf.base.errors import TfperfError
    from tfperf.capture.run_agreement import check_run_name

    try:
        return None if name is None else check_run_name(name)
    except TfperfError as error:
        raise click.BadParameter(str(error)) from error


def run_name_option(default: str) -> Decorator:
    """Return the option that names the run that traces go to."""
    text = f"Name of the run; it is joined if it exists (default: {default})."
    return click.option("--run", metavar="NAME", callback=_run_name, help=text)


_OF_ENVIRONMENT = "TF_CONFIG"
"""Stands for no file, which click needs a value for."""
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


LISTS = together(
    click.option("--workers", "worker_list", metavar="A,B,...", help="Several, with commas; as --worker for each."),
    click.option("--workers-file", type=PATH, metavar="FILE", help="Several, one on each line; # begins a comment."),
    click.option(
        "--cluster-spec",
        is_flag=False,
        flag_value=_OF_ENVIRONMENT,
        type=PATH,
        metavar="[FILE]",
        help="All tasks of the cluster in this file, written as TF_CONFIG is (default: that of TF_CONFIG).",
    ),
)
"""Many jobs at once."""


def take_addresses(options: dict[str, Any]) -> list[Address]:
    """Return the addresses that --port, --worker and `LISTS` name, each once, and remove these options."""
    from tfperf.base.errors import CaptureError
    from tfperf.capture.worker_list import check_workers, workers_in, workers_of_cluster, workers_of_file

    names = ("port", "workers", "worker_list", "workers_file", "cluster_spec")
    port, workers, text, file, spec = (options.pop(name) for name in names)
    ways = {"--worker": workers, "--workers": text, "--workers-file": file, "--cluster-spec": spec}
    given = [name for name, value in ways.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} and {given[1]} exclude each other: name all workers in one way")
    try:
        if text is not None:
            addresses = workers_in(text, port)
        elif file is not None:
            addresses = workers_of_file(file, port)
        elif spec is not None:
            addresses = workers_of_cluster(None if str(spec) == _OF_ENVIRONMENT else spec, port)
        else:
            addresses = parse_addresses(port, workers)
        check_workers(addresses)
    except CaptureError as error:
        raise click.UsageError(str(error)) from error
    return addresses


def parse_addresses(port: int | None, workers: Sequence[str]) -> list[Address]:
    """Return the addresses of the jobs that --port and --worker name."""
    from tfperf.base.errors import CaptureError
    from tfperf.capture.address import parse_address

    try:
        return [parse_address(text) for text in ([f"localhost:{port}"] if port else []) + [*workers]]
    except CaptureError as error:
        raise click.UsageError(str(error)) from error
