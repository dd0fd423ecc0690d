"""`tfperf analyze`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tfperf.base.errors import TfperfError
from tfperf.base.files import TRACE_SUFFIX
from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.base.units import counted, did_you_mean
from tfperf.cli import options
from tfperf.report.render import FORMATS, Format

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tfperf.report.model import Report
    from tfperf.trace.logdir import Run

_GROUPS = click.Choice(("pattern", "op", "type", "scope", "layer", "kernel"))


def _complete_table(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tfperf.analysis.registry import all_tables

    return options.completions((table.name for table in all_tables() if table.in_report), incomplete)


@click.command("analyze", short_help="Report where step time goes and what to change.")
@options.PROFILE_OR_LOGS
@options.trace_options
@click.option(
    "-s", "--section", "sections", type=options.SECTION, multiple=True, help="Show only this section (repeatable)."
)
@click.option(
    "--full", is_flag=True, help="Show all sections, not only the diagnosis (JSON and CSV always include all)."
)
@click.option(
    "--table",
    metavar="NAME",
    shell_complete=_complete_table,
    help="Show only this table, for example kernels (in CSV, without comment lines).",
)
@options.report_options
@options.TOP
@click.option(
    "--sort",
    metavar="COLUMN",
    help="Sort tables by this column, for example total_ms; numbers from the largest (-s, --table or --full).",
)
@click.option(
    "--by",
    type=_GROUPS,
    default="pattern",
    show_default=True,
    help="How to group ops (-s ops); kernel: each kernel by op and launch shape (-s kernels).",
)
@click.option(
    "--filter",
    "filters",
    type=options.regex,
    metavar="REGEX",
    multiple=True,
    help="Show only ops with a matching name or type (RE2 syntax; repeatable: any may match).",
)
@click.option(
    "--peaks",
    type=options.PATH,
    metavar="FILE",
    help="File with device peaks that override the built-in ones (TOML or JSON; see docs/roofline.md).",
)
@click.option(
    "--step",
    type=options.WHICH_STEP,
    metavar="N|median|slowest",
    help="Open the HTML report (-o step.html) on a picture of this step, instead of the median and slowest steps.",
)
@click.option(
    "--save-baseline",
    "baseline",
    type=options.OUTPUT,
    metavar="FILE",
    help="Also save a baseline for `tfperf check --baseline` and `tfperf diff` (JSON).",
)
@click.option("--skip-first", type=options.COUNT, metavar="N", help="Exclude the first N steps from the baseline.")
@click.option("--list", "list_runs", is_flag=True, help="List the runs and hosts of PATH instead.")
@click.option("--open", "opens", is_flag=True, help="Open the HTML report in a browser.")
def command(path: Location, format_name: str | None, output: Location | None, force: bool, **values: Any) -> None:
    """Report where step time goes, whether the job is input-bound, and what to change.

    PATH is a logdir, a run folder or one *.xplane.pb file, local or at an address such as s3://bucket/logs (see
    docs/remote.md). The default is ./logs. tfperf analyzes the newest run of a logdir and combines all hosts of the
    run.

    \b
    Example:
      tfperf analyze logs/
      tfperf analyze logs/ --full
      tfperf analyze logs/ -s overview -s tfdata
      tfperf analyze logs/ -s ops --by layer
      tfperf analyze logs/ -s ops --by op --top 50
      tfperf analyze logs/ -s ops --sort total_ms
      tfperf analyze logs/ -s kernels --by kernel
      tfperf analyze logs/ --table kernels --format csv
      tfperf analyze logs/ -s roofline --peaks peaks.toml
      tfperf analyze logs/ -o report.html
      tfperf analyze logs/ --step slowest -o step.html
      tfperf analyze logs/ --steps 110..119
      tfperf analyze logs/ --open
      tfperf analyze logs/ --format json -o report.json
      tfperf analyze logs/ --save-baseline baseline.json
      tfperf analyze logs/ --hosts 'worker-*' --jobs 8
    """
    baseline: Location | None = values["baseline"]
    _check_usage(values)
    table, sort = values.pop("table"), values.pop("sort") or ""
    if table is not None:
        values["sections"] = (_section_with(table),)
    view = "sections" if values["sections"] else "whole" if values["full"] else "answer"
    if values["opens"]:
        format_name = _page_format(format_name, output)
    form = FORMATS[options.chosen_format(format_name, output)]
    if values["step"] is not None and not form.has_pictures:
        raise click.UsageError("--step applies only to the HTML report: add -o step.html or --open")
    options.check_output(output, format_name, force=force)
    options.refuse_existing(baseline, force=force)
    target = options.typed(path, values)
    if values["list_runs"]:
        from tfperf.trace.logdir import find_runs

        report = runs_report(path, find_runs(path))
    else:
        values["sections"] = _shown_sections(form, view, values)
        report = _report(path, force=force, wants_summary=form.name == "json", **values)
        is_answer = view == "answer" and form.answers
        report = with_earlier_run(report, path) if is_answer else report
        report = report if table is None else _only_table(report, table)
        if sort and is_answer:
            problem = "--sort applies only to tables, which are not shown"
            raise click.UsageError(f"{problem}: add -s SECTION, --table or --full")
        keys = dict.fromkeys(column.key for shown in report.tables() for column in shown.columns)
        if sort and sort not in keys:
            close = did_you_mean(sort, keys) or "--format csv shows their names"
            raise click.UsageError(f"no table here has the column {sort!r}: {close}")
    if values["opens"] and output is None:
        output = new_page(path.resolve().name)
    options.show(report, format_name, output, force=force, view=view, top=values["top"], sort=sort, target=target)
    if values["opens"] and isinstance(output, Path):
        show_page(output)


def _check_usage(values: Mapping[str, Any]) -> None:
    if values["list_runs"] and values["baseline"]:
        raise click.UsageError("--list cannot be used with --save-baseline, because it does not analyze profiles")
    if values["full"] and (values["sections"] or values["table"]):
        raise click.UsageError(f"--full cannot be used with {'-s' if values['sections'] else '--table'}")
    if values["skip_first"] is not None and values["baseline"] is None:
        raise click.UsageError("--skip-first applies only to the baseline: add --save-baseline FILE")


def _shown_sections(form: Format, view: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections to analyze, so that hidden ones cost no time; empty: all except pictures."""
    from tfperf.analysis.registry import LEADS, section_names

    sections: tuple[str, ...] = values["sections"]
    if view == "answer" and form.answers:
        if values["by"] != "pattern" or values["filters"]:
            problem = "--by and --filter apply only to ops and kernels, which are not shown"
            raise click.UsageError(f"{problem}: add -s ops, -s kernels or --full")
        return LEADS
    if form.has_pictures and not sections:
        return section_names()
    return tuple(dict.fromkeys((*sections, "timeline"))) if values["step"] is not None else sections


def _section_with(table: str) -> str:
    """Return the section that has a table."""
    from tfperf.analysis.registry import find_section, section_names

    homes = {each.name: name for name in section_names() for each in find_section(name).tables if each.in_report}
    if table not in homes:
        close = did_you_mean(table, homes) or "tfperf explain tables lists all"
        raise click.UsageError(f"{table!r} is not a table of reports: {close}")
    return homes[table]


def _only_table(report: Report, name: str) -> Report:
    """Return a report of one table, which is then shown whatever its level."""
    sections = [
        replace(section, findings=(), facts=(), charts=(), notes=(), detail_notes=(), pointer="", tables=(shown,))
        for section in report.sections
        for shown in (replace(table, level="brief") for table in section.tables if table.name == name)
    ]
    if not sections:
        raise TfperfError(f"this profile has no table {name}; tfperf explain {name} describes it")
    return replace(report, sections=tuple(sections))


def _page_format(format_name: str | None, output: Location | None) -> str:
    if format_name not in (None, "html") or (output and options.chosen_format(format_name, output) != "html"):
        raise click.UsageError("--open requires an HTML report: omit --format, and end the file name of -o in .html")
    if isinstance(output, RemotePath):
        raise click.UsageError("--open requires a local file: omit -o, or pass a local file")
    if output == Path("-"):
        raise click.UsageError("--open requires a file, not stdout: omit -o, or pass a file that ends in .html")
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
        options.say(
            f"wrote {baseline}: baseline with {counted(sum(host.step_count for host in summary.hosts), 'step')}"
        )
    return report


def with_earlier_run(report: Report, path: Location) -> Report:
    """Return the report with the command that compares the run with the one before it in the same logdir, if any."""
    from tfperf.trace.logdir import find_runs, runs_of_one_cluster

    if not report.sections or not isinstance(path, Path) or not path.is_dir():
        return report
    runs = find_runs(path)
    names = [run.name for run in runs]
    name = str(report.source.get("run"))
    if names.count(name) != 1 or names.index(name) == 0 or runs_of_one_cluster(runs):
        return report
    place = names.index(name)
    compared = [path] if place == len(runs) - 1 else [run.folder for run in runs[place - 1 : place + 1]]
    command = shlex.join(["tfperf", "diff", *map(str, compared)])
    first, *others = report.sections
    note = f"Earlier run: {names[place - 1]}. To compare: {command}"
    return replace(report, sections=(replace(first, notes=(*first.notes, note)), *others))


def runs_report(path: Location, runs: Sequence[Run]) -> Report:
    """Return a report of the runs with their files, the newest last."""
    from tfperf.report.model import Column, Report, Section, table_of
    from tfperf.trace.logdir import run_names, runs_of_one_cluster

    run_columns = (
        Column("run", "Run", str, "", "name of the run, for --run"),
        Column("time", "Time", str, "", "capture time: the time in its name, otherwise when its files were written"),
        Column("hosts", "Hosts", int, "count", "number of hosts"),
        Column("size_bytes", "Size", int, "bytes", "total size of its files"),
        Column("is_default", "Default", bool, "", "whether tfperf reads it if --run is not given"),
        Column("folder", "Folder", str, "", "folder of the run", level="data"),
    )
    file_columns = (
        Column("host", "Host", str, "", "name of the host, for --host"),
        Column("size_bytes", "Size", int, "bytes", "size of the trace file"),
        Column("file", "File", str, "", "the trace file, relative to PATH"),
        Column("path", "Path", str, "", "the trace file", level="data"),
        Column("run", "Run", str, "", "name of its run", level="data"),
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
        table_of("runs", "Runs, newest last", run_columns, of_runs),
        table_of("files", "Files, by run", file_columns, of_files),
    )
    newer = runs[-1].newer_text
    unfinished = [
        f"Host {file.host} is missing from run {name}: {file.path.name} is not a complete {TRACE_SUFFIX} file."
        for name, run in zip(names, runs, strict=True)
        for file in run.unfinished
    ]
    notes = (
        *(() if has_default else ("Several runs have the same name as the newest run: select one with --run.",)),
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
        options.say(
            f"cannot open a browser on this machine (no display, or an ssh session): copy {page} to your machine"
        )
