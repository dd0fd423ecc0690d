"""`tfperf capture`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from tfperf.base.errors import CaptureError
from tfperf.cli import INTERRUPTED, manners, options, shows_progress
from tfperf.report.render import FORMATS

if TYPE_CHECKING:
    from tfperf.capture.address import Address
    from tfperf.capture.remote import CaptureRequest
    from tfperf.live.sampling import Sampled


@click.command("capture", short_help="Profile running jobs, or explain why no trace was received.")
@click.option(
    "--port",
    type=options.PORT,
    help="Port of a profiler server on this machine (default: the only one found), or of workers without a port.",
)
@click.option(
    "--worker",
    "workers",
    metavar="HOST:PORT",
    multiple=True,
    help="HOST:PORT, [IPV6]:PORT or unix:/PATH (repeatable: all start at the same time).",
)
@options.LISTS
@click.option("--all-or-nothing", is_flag=True, help="Keep no traces and exit with 1 unless all workers send one.")
@options.logdir_option("Traces are saved as: LOGDIR/plugins/profile/RUN/HOST_PORT.xplane.pb.")
@options.run_name_option("the time")
@click.option("--duration", type=options.DURATION, default="4s", show_default=True, help="Duration of the profile.")
@click.option("--delay", type=options.DURATION, default=0.0, help="Delay before the profile starts.")
@click.option(
    "--timeout",
    type=options.DURATION,
    default="60s",
    show_default=True,
    help="Maximum wait for a server, in addition to --delay and --duration.",
)
@click.option(
    "--retries", type=options.COUNT, default=0, show_default=True, help="Number of retries if no trace is received."
)
@click.option(
    "--wait-for-activity",
    type=options.DURATION,
    is_flag=False,
    flag_value="10m",
    default=0.0,
    metavar="[DURATION]",
    help="Wait until an idle job is active (up to 10m by default).",
)
@click.option("--max-size", type=options.SIZE, help="Reject larger traces (default: 2 GiB, the limit of the format).")
@options.TLS_CA
@options.tracer_options
@click.option(
    "--continuous", is_flag=True, help="Profile until Ctrl-C, one trace per DURATION, and keep the last ones."
)
@click.option(
    "--keep", type=options.AT_LEAST_ONE, default=5, show_default=True, help="Number of traces that --continuous keeps."
)
@click.option(
    "--on-slow-step",
    type=options.DURATION,
    metavar="LIMIT",
    help="With --continuous: keep only traces with a longer step, for example 50ms.",
)
@click.option("--analyze", is_flag=True, help="Also count the steps and print the report of `tfperf analyze`.")
@options.report_options
@options.TOP
def command(
    logdir: Path, analyze: bool, format_name: str | None, output: Path | None, force: bool, **values: Any
) -> None:
    """Profile running jobs over the network, or explain why no trace was received. Requires neither TensorFlow nor JAX.

    Each job needs a profiler server: `tfperf.serve()` in its code, `tf.profiler.experimental.server.start(6009)` or
    `jax.profiler.start_server(6009)`.
    All workers start at the same time, and their files are stored in one run. Workers that fail are listed on stderr.
    Ctrl-C ends the profile early and keeps the recorded events. Exit code 1 if no worker sends a trace, or one sends
    less than requested; 130 if Ctrl-C leaves one without a trace.

    \b
    Example:
      tfperf capture
      tfperf capture --port 6009 --duration 2s
      tfperf capture --workers w0:6009,w1:6009 --analyze
      tfperf capture --workers-file hosts.txt --port 6009 --run $SLURM_JOB_ID
      tfperf capture --cluster-spec --all-or-nothing
      tfperf capture --port 6009 --continuous --on-slow-step 50ms
    """
    from tfperf.live.sampling import sample_continuously, sample_once

    continuous, keep, slow_step_s, top = (values.pop(name) for name in ("continuous", "keep", "on_slow_step", "top"))
    if slow_step_s is not None and not continuous:
        raise click.UsageError("--on-slow-step requires --continuous")
    if continuous and values["run"]:
        raise click.UsageError("--run cannot be used with --continuous, which creates many runs")
    if continuous and values["all_or_nothing"]:
        raise click.UsageError("--all-or-nothing cannot be used with --continuous, which records many profiles")
    request = _request(**values)
    options.check_output(output, format_name, force=force, made=logdir)
    if continuous:
        sampled = sample_continuously(request, logdir, options.say, keep=keep, slow_step_s=slow_step_s)
    else:
        with _countdown(request):
            sampled = sample_once(request, logdir, options.say)
    if analyze:
        sampled = sampled.analyzed()
    format_name = options.chosen_format(format_name, output)
    is_shown = True
    if sampled.kept or format_name != "table":
        if FORMATS[format_name].has_pictures:
            sampled = sampled.with_pictures()
        is_shown = options.show_surely(sampled.report(), format_name, output, force=force, top=top)
    if sampled.kept and not analyze:
        options.say(f"next: tfperf analyze {logdir}")
    raise Exit(_exit_code(sampled, is_partial_fine=not continuous) or int(not is_shown))


def _exit_code(sampled: Sampled, *, is_partial_fine: bool) -> int:
    """Return 0 if there are traces, and report missing ones; raises CaptureError if too many are missing."""
    count = f"received traces from {len(sampled.kept)} of {len(sampled.captured)} workers"
    if any(result.reason == "interrupted" for result in sampled.captured):
        options.say(f"interrupted; {count}", always=True)
        return INTERRUPTED
    if is_partial_fine and sampled.is_partial:
        options.say(f"Warning: {count}; missing: {sampled.missing_reasons}", always=True)
        return 0
    sampled.raise_problem()
    return 0


def _request(**values: Any) -> CaptureRequest:
    from tfperf.capture.remote import CaptureRequest

    addresses = options.take_addresses(values) or [_only_server_here()]
    levels = options.take_tracer_options(values)
    durations = {f"{name}_s": values.pop(name) for name in ("duration", "delay", "timeout", "wait_for_activity")}
    if max_size := values.pop("max_size"):
        values["max_reply_bytes"] = int(max_size)
    return CaptureRequest(workers=addresses, options=levels, **durations, **values)


def _only_server_here() -> Address:
    """Return the profiler server of this machine, and print it; raise an error unless there is exactly one."""
    from tfperf.capture.client import SERVER_SNIPPET
    from tfperf.capture.machine import Machine
    from tfperf.capture.remote import find_servers

    if not Machine().shows_listeners():
        raise click.UsageError("select a job with --port PORT (this machine) or --worker HOST:PORT")
    servers = find_servers()
    if not servers:
        problem = "found no profiler server of yours on this machine"
        raise CaptureError("not_listening", f"{problem}; {SERVER_SNIPPET}, or select a job with --port or --worker")
    if len(servers) > 1:
        raise click.UsageError(
            f"found several profiler servers on this machine; select one with {', or '.join(map(str, servers))}"
        )
    options.say(f"found {servers[0].listener} on port {servers[0].address.port}")
    return servers[0].address


@contextmanager
def _countdown(request: CaptureRequest) -> Iterator[None]:
    """Show the remaining time of the profile on a terminal, except during the wait for an idle job."""
    if not shows_progress() or request.wait_for_activity_s:
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, Task
    from rich.text import Text

    class Left(ProgressColumn):
        def render(self, task: Task) -> Text:
            left_s = (task.total or 0.0) - (task.elapsed or 0.0)
            return Text(f"{left_s:.0f} s left" if left_s > 0 else "waiting for the trace")

    console = Console(stderr=True, no_color=True if manners().color == "never" else None)
    with Progress("{task.description}", Left(), console=console, transient=True) as progress:
        shown = ", ".join(map(str, request.workers[:3])) + ", ..." * (len(request.workers) > 3)
        progress.add_task(f"profiling {shown}:", total=request.delay_s + request.duration_s)
        yield
