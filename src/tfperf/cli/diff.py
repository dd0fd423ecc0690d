"""`tfperf diff`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click
from msgspec.structs import replace

from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.cli import options


@click.command("diff", short_help="Compare runs: is the job slower, and why?")
@click.argument("paths", type=options.TRACE_PATH, nargs=-1, required=True, metavar="BEFORE AFTER [MORE]...")
@click.option(
    "--run",
    "run_names",
    metavar="NAME",
    multiple=True,
    help="With one logdir, compare this run with the newest (repeatable: these runs); with several, read it in each.",
)
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
    type=click.Choice(options.DIFF_SECTIONS),
    multiple=True,
    metavar="NAME",
    help=f"Show only this section (repeatable): {', '.join(options.DIFF_SECTIONS)}.",
)
@click.option("--full", is_flag=True, help="Show all sections, not only the change (JSON and CSV always include all).")
@options.report_options
@options.TOP
def command(
    paths: tuple[Location, ...], format_name: str | None, output: Location | None, force: bool, **values: Any
) -> None:
    """Compare runs: whether the job is slower, by how much, with what confidence, and why.

    BEFORE, AFTER and MORE are each a logdir, a run folder, one *.xplane.pb file, or a baseline from `tfperf analyze
    --save-baseline`. More than two runs also show a trend. If only one logdir is given, its two newest runs or those
    of --run are compared.

    \b
    Example:
      tfperf diff logs_before/ logs_after/
      tfperf diff logs/
      tfperf diff logs/ --run monday --run tuesday
      tfperf diff logs_before/ logs_after/ --full
      tfperf diff logs_before/ logs_after/ -s ops -s tfdata
      tfperf diff monday.json tuesday.json logs/
      tfperf diff baseline.json logs/ -o diff.html
    """
    from tfperf.judge.diff_report import diff_report, run_summaries

    names: tuple[str, ...] = values.pop("run_names")
    if len(paths) < 2:
        paths, names = _runs_of(paths[0], names), ()
    values["run"] = names[0] if len(names) == 1 else names or None
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


def _runs_of(logdir: Location, names: Sequence[str]) -> tuple[Location, ...]:
    """Return the named runs of a logdir; a single one is compared with the newest, and without names the two newest."""
    from tfperf.trace.logdir import choose_run, find_runs

    found = find_runs(logdir) if isinstance(logdir, RemotePath) or logdir.is_dir() else []
    runs = [choose_run(found, name) for name in names] if found else []
    if found and len(runs) < 2 and found[-1].newer:
        options.say(f"Warning: {found[-1].newer_text}", always=True)
    if not names:
        runs = found[-2:]
    elif len(runs) == 1 and runs[0] != found[-1]:
        runs.append(found[-1])
    if len({run.folder for run in runs}) < 2:
        newest = f"{runs[0].name} is the newest run: pass another --run" if names and runs else ""
        raise click.UsageError(newest or "pass at least two runs: tfperf diff BEFORE AFTER")
    if len(names) < 2:
        newest = "the two newest runs" if not names else "this run with the newest one"
        options.say(f"comparing {newest} in {logdir}: {runs[0].name} and {runs[1].name}")
    return tuple(run.folder for run in runs)
