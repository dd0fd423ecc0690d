"""`tfperf diff`."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from msgspec.structs import replace

from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.cli import options

SECTIONS = (
    "change",
    "overview",
    "categories",
    "steps",
    "ops",
    "kernels",
    "tfdata",
    "functions",
    "memory",
    "environment",
)


@click.command("diff", short_help="Compare runs: is the job slower, and why?")
@click.argument("paths", type=options.TRACE_PATH, nargs=-1, required=True, metavar="BEFORE AFTER [MORE]...")
@options.read_options
@options.host_options
@click.option(
    "--stat", type=options.STATISTIC, default="mean", show_default=True, help="Statistic of the step times to compare."
)
@click.option("--skip-first", type=options.COUNT, default=0, metavar="N", help="Skip the first N steps.")
@click.option(
    "-s",
    "--section",
    "sections",
    type=click.Choice(SECTIONS),
    multiple=True,
    metavar="NAME",
    help=f"Show only this section (repeatable): {', '.join(SECTIONS)}.",
)
@click.option("--full", is_flag=True, help="Show all sections, not only the change (JSON and CSV always include all).")
@options.report_options
@options.TOP
def command(
    paths: tuple[Location, ...], format_name: str | None, output: Location | None, force: bool, **values: Any
) -> None:
    """Compare runs: whether the job is slower, by how much, with what confidence, and why.

    BEFORE, AFTER and MORE are each a logdir, a run folder, one *.xplane.pb file, or a baseline from `tfperf analyze
    --save-baseline`. More than two runs also show a trend. If only one logdir is given, its two newest runs are
    compared.

    \b
    Example:
      tfperf diff logs_before/ logs_after/
      tfperf diff logs/
      tfperf diff logs_before/ logs_after/ --full
      tfperf diff logs_before/ logs_after/ -s ops -s tfdata
      tfperf diff monday.json tuesday.json logs/
      tfperf diff baseline.json logs/ -o diff.html
    """
    from tfperf.judge.diff_report import diff_report, run_summaries

    if len(paths) < 2:
        paths = _two_newest(paths[0])
    sections, full = values.pop("sections"), values.pop("full")
    if sections and full:
        raise click.UsageError("--full cannot be used with -s")
    options.check_output(output, format_name, force=force)
    stat, top, skip_first = (values.pop(name) for name in ("stat", "top", "skip_first"))
    runs = run_summaries(paths, skip_first=skip_first, read=partial(options.load_analysis, **values))
    report = diff_report(runs, stat=stat)
    if sections:
        chosen = tuple(section for section in report.sections if section.name in sections)
        report = replace(report, sections=chosen)
    view = "sections" if sections else "whole" if full else "answer"
    options.show(report, format_name, output, force=force, top=top, view=view)


def _two_newest(logdir: Location) -> tuple[Location, ...]:
    from tfperf.trace.logdir import find_runs

    runs = find_runs(logdir)[-2:] if isinstance(logdir, RemotePath) or logdir.is_dir() else []
    if len(runs) < 2:
        raise click.UsageError("pass at least two runs: tfperf diff BEFORE AFTER")
    if runs[-1].newer:
        options.say(f"Warning: {runs[-1].newer_text}", always=True)
    options.say(f"comparing the two newest runs in {logdir}: {runs[0].name} and {runs[1].name}")
    return tuple(run.folder for run in runs)
