"""`tfperf diff`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfperf.cli.options import chosen_format, load_analysis, read_options, refuse_existing, report_options, show


@click.command("diff", short_help="Compare runs: is a job slower, and why?")
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="BEFORE AFTER [MORE]...")
@read_options
@click.option(
    "--stat",
    type=click.Choice(("mean", "median", "p95")),
    default="mean",
    show_default=True,
    help="Statistic of the step times to compare.",
)
@click.option("--skip-first", type=click.IntRange(min=0), default=0, metavar="N", help="Omit the first N steps.")
@report_options
@click.option(
    "--top", type=click.IntRange(min=1), help="Rows of long tables (default: 10 for table and markdown, else all)."
)
def command(paths: tuple[Path, ...], format_name: str | None, output: Path | None, force: bool, **options: Any) -> None:
    """Compare runs: is the job slower, by how much, how certain is that, and what explains the change.

    Each of BEFORE, AFTER and MORE is a logdir, a run folder, one *.xplane.pb file, or a baseline that
    `tfperf analyze --save-baseline` wrote. More than two runs also give a trend.

    \b
    Example:
      tfperf diff logs_before/ logs_after/
      tfperf diff baseline.json logs/ -o diff.html
    """
    from tfperf.compare.diff_report import diff_report, run_summaries

    if len(paths) < 2:
        raise click.UsageError("give at least two runs: tfperf diff BEFORE AFTER")
    format_name = chosen_format(format_name, output)
    refuse_existing(output, force=force)
    stat, top, skip_first = (options.pop(name) for name in ("stat", "top", "skip_first"))
    runs = run_summaries(paths, skip_first=skip_first, read=lambda path: load_analysis(path, **options))
    show(diff_report(runs, stat=stat), format_name, output, force=force, top=top)
