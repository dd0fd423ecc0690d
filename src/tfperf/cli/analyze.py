"""`tfperf analyze`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfperf.base.files import TRACE_SUFFIX
from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.base.units import counted
from tfperf.cli import options
from tfperf.report.render import FORMATS, Format

if TYPE_CHECKING:
    from tfperf.report.model import Report
    from tfperf.trace.logdir import Run

_GROUPS = click.Choice(("pattern", "op", "type", "scope", "layer", "kernel"))


@click.command("analyze", short_help="Say where the step time goes and what to change.")
@options.PROFILE_OR_LOGS
@options.trace_options
@click.option(
    "-s", "--section", "sections", type=options.SECTION, multiple=True, help="Only this section (repeatable)."
)
@click.option("--full", is_flag=True, help="All sections, not only the diagnosis (for people; programs get all).")
@options.report_options
@options.TOP
@click.option(
    "--by",
    type=_GROUPS,
    default="pattern",
    show_default=True,
    help="How ops are added up (-s ops); kernel: each kernel by op and launch shape (-s kernels).",
)
@click.option(
    "--filter",
    "filters",
    type=options.regex,
    metavar="REGEX",
    multiple=True,
    help="Only ops whose name or type matches, in the syntax of RE2 (repeatable: any may match).",
)
@click.option(
    "--peaks",
    type=options.PATH,
    metavar="FILE",
    help="Peaks of devices, which come before those that tfperf knows (TOML or JSON; docs/roofline.md).",
)
@click.option(
    "--step",
    type=options.WHICH_STEP,
    metavar="N|median|slowest",
    help="Draw this step on the page (-o step.html), not the median one and the slowest.",
)
@click.option(
    "--save-baseline",
    "baseline",
    type=options.OUTPUT,
    metavar="FILE",
    help="Also save a baseline for `tfperf check --baseline` and `tfperf diff` (JSON).",
)
@click.option("--skip-first", type=options.COUNT, metavar="N", help="Omit the first N steps from the baseline.")
@click.option("--list", "list_runs", is_flag=True, help="List the runs and hosts of PATH instead.")
@click.option("--open", "opens", is_flag=True, help="Show the report as a page, in the browser.")
def command(path: Location, format_name: str | None, output: Location | None, force: bool, **values: Any) -> None:
    """Say where the step time goes, whether the job is input-bound, and what to change.

    PATH is a logdir, a run folder or one *.xplane.pb file, here or at an address such as s3://bucket/logs
    (docs/remote.md); without it, the folder logs is read. Of a logdir, the newest
    run is analyzed; all hosts of a run are combined.

    \b
    Example:
      tfperf analyze logs/
      tfperf analyze logs/ --full
      tfperf analyze logs/ -s overview -s tfdata
      tfperf analyze logs/ -s ops --by layer
      tfperf analyze logs/ -s ops --by op --top 50
      tfperf analyze logs/ -s kernels --by kernel
      tfperf analyze logs/ -s roofline --peaks peaks.toml
      tfperf analyze logs/ -o report.html
      tfperf analyze logs/ --step slowest -o step.html
      tfperf analyze logs/ --open
      tfperf analyze logs/ --format json -o report.json
      tfperf analyze logs/ --save-baseline baseline.json
      tfperf analyze logs/ --hosts 'worker-*' --jobs 8
    """
    baseline: Location | None = values["baseline"]
    if values["list_runs"] and values["baseline"]:
        raise click.UsageError("--list analyzes nothing, so there is no baseline to save")
    if values["full"] and values["sections"]:
        raise click.UsageError("--full shows all sections, -s some of them: omit one of the two")
    if values["skip_first"] is not None and values["baseline"] is None:
        raise click.UsageError("--skip-first is about the baseline: pass --save-baseline FILE too")
    view = "sections" if values["sections"] else "whole" if values["full"] else "answer"
    if values["opens"]:
        format_name = _page_format(format_name, output)
    form = FORMATS[options.chosen_format(format_name, output)]
    if values["step"] is not None and not form.has_pictures:
        raise click.UsageError("--step is about what a page draws: write one with -o step.html, or pass --open")
    options.check_output(output, format_name, force=force)
    options.refuse_existing(baseline, force=force)
    if values["list_runs"]:
        from tfperf.trace.logdir import find_runs

        report = runs_report(path, find_runs(path))
    else:
        values["sections"] = _shown_sections(form, view, values)
        report = _report(path, force=force, wants_summary=form.name == "json", **values)
    if values["opens"] and output is None:
        output = new_page(path.resolve().name)
    options.show(report, format_name, output, force=force, view=view, top=values["top"])
    if values["opens"] and isinstance(output, Path):
        show_page(output)


def _shown_sections(form: Format, view: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections to analyze, so that hidden ones cost no time; empty: all except pictures."""
    from tfperf.analysis.registry import LEADS, section_names

    sections: tuple[str, ...] = values["sections"]
    if view == "answer" and form.answers:
        if values["by"] != "pattern" or values["filters"]:
            problem = "--by and --filter are about ops and kernels, which are not shown"
            raise click.UsageError(f"{problem}: pass -s ops, -s kernels or --full")
        return LEADS
    if form.has_pictures and not sections:
        return section_names()
    return tuple(dict.fromkeys((*sections, "timeline"))) if values["step"] is not None else sections


def _page_format(format_name: str | None, output: Location | None) -> str:
    if format_name not in (None, "html") or (output and options.chosen_format(format_name, output) != "html"):
        raise click.UsageError("--open shows a page: omit --format, and end the name of -o in .html")
    if isinstance(output, RemotePath):
        raise click.UsageError("--open shows a file of this machine: omit -o, or name such a file")
    if output == Path("-"):
        raise click.UsageError("--open shows a file, not stdout: omit -o, or name a file that ends in .html")
    return "html"


def _report(path: Location, *, force: bool, wants_summary: bool, **values: Any) -> Report:
    sections, baseline = values["sections"], values["baseline"]
    reading = {key: values[key] for key in options.READING}
    # The summary of a JSON document always contains the batch size.
    needed = (*sections, "batch") if sections and wants_summary else sections
    # A baseline needs more sections than the report shows.
    if baseline:
        from tfperf.judge.summarize import summary_sections

        needed = (*summary_sections(), *needed)
    analysis = options.load_analysis(path, sections=needed, peaks=values["peaks"], step=values["step"], **reading)
    report = analysis.report(sections, by=values["by"], filters=values["filters"])
    if baseline:
        from tfperf.judge.run_summary import baseline_text
        from tfperf.judge.summarize import summarize_run
        from tfperf.report.render import write

        summary = summarize_run(analysis, str(path), skip_first=values["skip_first"] or 0)
        write(baseline_text(summary), baseline, force=force)
        options.say(f"wrote {baseline}: baseline of {counted(sum(host.step_count for host in summary.hosts), 'step')}")
    return report


def runs_report(path: Location, runs: Sequence[Run]) -> Report:
    """Return a report of the runs with their files, the newest last."""
    from tfperf.report.model import Column, Report, Section, table_of
    from tfperf.trace.logdir import run_names, runs_of_one_cluster

    run_columns = (
        Column("run", "Run", str, "", "name for --run"),
        Column("time", "Time", str, "", "when it was captured: the time in its name, else when its files were written"),
        Column("hosts", "Hosts", int, "count", "hosts of the run"),
        Column("size_bytes", "Size", int, "bytes", "size of all its files"),
        Column("is_default", "Default", bool, "", "whether it is read where no --run is given"),
        Column("folder", "Folder", str, "", "folder of the run", level="data"),
    )
    file_columns = (
        Column("host", "Host", str, "", "name for --host"),
        Column("size_bytes", "Size", int, "bytes", "size of the trace file"),
        Column("file", "File", str, "", "the trace file, below the path that was given"),
        Column("path", "Path", str, "", "the trace file", level="data"),
        Column("run", "Run", str, "", "run of the file", level="data"),
    )
    names = run_names(runs)
    files = [(name, file) for name, run in zip(names, runs, strict=True) for file in run.files]
    around = path.parts
    below = [
        parts[len(around) :] if parts[: len(around)] == around else ()
        for parts in (file.path.parts for _, file in files)
    ]
    # If several runs share the newest name, there is no default run.
    has_default = sum(run.name == runs[-1].name for run in runs) == 1
    sizes = [[file.size_bytes for file in run.files] for run in runs]
    of_runs: dict[str, Sequence[Any]] = {
        "run": names,
        "time": [f"{run.time:%Y-%m-%d %H:%M:%S}" if run.time else None for run in runs],
        "hosts": [len(run.files) for run in runs],
        "size_bytes": [None if None in each else sum(filter(None, each)) for each in sizes],
        "is_default": [has_default and run is runs[-1] for run in runs],
        "folder": [str(run.folder) for run in runs],
    }
    of_files: dict[str, Sequence[Any]] = {
        "host": [file.host for _, file in files],
        "size_bytes": [file.size_bytes for _, file in files],
        "file": [str(Path(*parts) if parts else file.path) for parts, (_, file) in zip(below, files, strict=True)],
        "path": [str(file.path) for _, file in files],
        "run": [name for name, _ in files],
    }
    tables = (
        table_of("runs", "Runs, the newest last", run_columns, of_runs),
        table_of("files", "Files, in the order of the runs", file_columns, of_files),
    )
    newer = runs[-1].newer_text
    unfinished = [
        f"Run {name} lacks host {file.host}: {file.path.name} is not a complete {TRACE_SUFFIX} file."
        for name, run in zip(names, runs, strict=True)
        for file in run.unfinished
    ]
    notes = (
        *(() if has_default else ("Several runs have the name of the newest: choose with --run.",)),
        *unfinished,
        *((f"{newer[0].upper()}{newer[1:]}.",) if newer else ()),
        *runs_of_one_cluster(runs),
    )
    section = Section("runs", "Runs", tables=tables, notes=notes)
    return Report({"folder": str(path)}, {"run_count": len(runs)}, (section,))


def new_page(name: str) -> Path:
    """Return a path for a permanent page, because the browser reads it after tfperf has ended."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="tfperf-"), f"{name}.html")


def show_page(page: Path) -> None:
    """Open a page in the browser, or print how to open it."""
    import webbrowser

    from tfperf.export.timeline.viewer_server import has_browser

    address = page.resolve().as_uri()
    if has_browser() and webbrowser.open(address):
        options.say(f"opened {address}")
    else:
        options.say(f"no browser can be opened from here (over ssh, or without a screen): copy {page} to your machine")
