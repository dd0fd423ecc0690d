"""`tfperf doctor`."""

from __future__ import annotations

from pathlib import Path

import click

from tfperf.cli.options import chosen_format, report_options, show


@click.command("doctor", short_help="Say what can be profiled here, and how to mend what cannot.")
@click.option("--port", type=click.IntRange(1, 65535), help="Look at the job with this profiler port on this machine.")
@click.option("--worker", metavar="HOST:PORT", help="Look at the job at HOST:PORT, [IPV6]:PORT or unix:/PATH.")
@click.option(
    "--tls-ca",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Encrypt, and trust the certificates in this file.",
)
@click.option(
    "--logdir", type=click.Path(path_type=Path), default="logs", show_default=True, help="Where traces are to go."
)
@report_options
@click.pass_context
def command(
    context: click.Context,
    port: int | None,
    worker: str | None,
    tls_ca: Path | None,
    logdir: Path,
    format_name: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Say what this machine, and with --port a running job, can deliver, and how to mend what is not in order.

    Versions, GPUs and what their tracer needs, ports, and the log folder. Nothing is changed; a job is profiled for
    50 ms. Exit code 1 if a check fails.

    \b
    Example:
      tfperf doctor
      tfperf doctor --port 6009
      tfperf doctor --format json
    """
    from tfperf.capture.address import parse_address
    from tfperf.capture.doctor import Question, examine
    from tfperf.errors import CaptureError
    from tfperf.reports.doctor import doctor_report

    if port is not None and worker is not None:
        raise click.UsageError("name one job: --port PORT on this machine, or --worker HOST:PORT")
    try:
        text = f"localhost:{port}" if port is not None else worker
        job = None if text is None else parse_address(text)
    except CaptureError as error:
        raise click.UsageError(str(error)) from error
    report = doctor_report(examine(Question(logdir, job, tls_ca)))
    show(report, chosen_format(format_name, output), output, force=force)
    if report.summary["status"] == "fail":
        context.exit(1)
