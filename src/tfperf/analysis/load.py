"""`tfperf.load`, the `Analysis` that it returns, and the loop that creates a report from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from tfperf.analysis import registry
from tfperf.analysis.many_hosts import MANY_HOSTS, MOST_ROWS, MOST_STEPS
from tfperf.analysis.parallel.engine import Engine
from tfperf.analysis.parallel.outcomes import FORKED_BYTES, HostProgress, Told, may_fork
from tfperf.analysis.registry import AnySection, By, Host, HostResults, MissingHost, Results, View
from tfperf.base.display import cut
from tfperf.base.errors import TfperfError, TraceFormatError
from tfperf.base.files import TRACE_SUFFIX
from tfperf.base.patterns import pattern
from tfperf.base.process import allowing_forks, in_two
from tfperf.base.storage.remote_path import Location, located
from tfperf.base.units import PS_PER_MS, counted, listed
from tfperf.report.model import Column, Deferred, Finding, Quantity, Report, Section, Severity, Table, table_of
from tfperf.trace.device.device_peaks import DeviceModel, read_peaks
from tfperf.trace.host.activities import Attribution
from tfperf.trace.known_stats import LINKS
from tfperf.trace.logdir import HostFile, Run, choose_hosts, choose_run, find_runs, sampled
from tfperf.trace.read import Progress, read_host, read_host_twice
from tfperf.trace.soundness import flaw_checks
from tfperf.trace.steps.breakdown import lacks_devices
from tfperf.trace.steps.step_range import StepPart, StepRange, breakdown_of, cut_trace, part_of
from tfperf.trace.steps.steps import WhichStep

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tfperf.sections.overview.summary import Overview
    from tfperf.trace.flaw import Flaw
    from tfperf.trace.read import AlsoRead


class Analysis(Results, frozen=True):
    """The results of a run of one or several hosts.

    `analysis["steps"]` is the breakdown of the steps, `analysis["overview"]` the averages and the verdict,
    `analysis["ops"]`, `analysis["kernels"]`, ... the results of the other sections, all combined over hosts; most have
    a `.table` DataFrame. `analysis.hosts[0]["steps"]` is the same for one host.
    """

    step_marker: str | None = None
    peaks: tuple[DeviceModel, ...] = ()
    step: WhichStep | None = None
    steps: StepRange | None = None
    engine: Engine = Engine()

    def __repr__(self) -> str:
        overview: Overview = self["overview"]
        damage = "damaged; " if any(flaw.level == "unsound" for _, flaw in self.flaws) else ""
        found = "no step time"
        if overview.step_time_ms is not None:
            average = Quantity("average_ms", overview.step_time_ms.average, "ms")
            share = "unknown" if overview.input_percent is None else Quantity("input", overview.input_percent)
            of_worst = "" if overview.worst_host is None else " on the host with the longest wait"
            found = f"{counted(overview.averaged_count, 'step')}, mean {average}, input {share}{of_worst}"
        return cut(f"<Analysis of {self.run.name}: {damage}{found}; {counted(len(self.hosts), 'host')}>")

    def more(self, sections: Iterable[str]) -> Analysis:
        """Return an analysis that also has these sections; read the files again if any of them is missing."""
        missing = [name for name in sections if name not in self.sections]
        if not missing:
            return self
        names = _needed((*self.sections, *missing))
        reading = Reading(self.attribution, self.step_marker, self.peaks, self.step, self.steps)
        analyze = partial(analyze_host, sections=names, reading=reading)
        hosts, lost, parts = _analyzed(analyze, self.run, self.engine, Told())
        if lost:  # the new results would cover fewer hosts than the existing ones
            raise TraceFormatError(f"host {lost[0].host} is no longer readable: {lost[0].reason}")
        analysis = replace(self, hosts=hosts, sections=names)
        analysis.parts.update(parts)
        return analysis

    def report(self, sections: Sequence[str] = (), *, by: By = "pattern", filters: Sequence[str] = ()) -> Report:
        """Return the report (by default of all analyzed sections), ready for a renderer.

        `by` groups the displayed ops; `filters` are regular expressions (RE2), of which at least one must match the
        name or type of an op. Raises TfperfError for an invalid filter.
        """
        try:
            patterns = tuple(pattern(text, ignore_case=True) for text in filters)
        except ValueError as error:
            raise TfperfError(f"the filter {error}") from error
        return assemble(self.seen(View(by, patterns)), sections)


def load(  # noqa: PLR0913  (every parameter is an option that users name)
    path: str | Location,
    *,
    sections: Sequence[AnySection] = (),
    run: str | Sequence[str] | None = None,
    hosts: Sequence[str] = (),
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
    peaks: str | Path | None = None,
    step: WhichStep | None = None,
    steps: StepRange | None = None,
    host_patterns: Sequence[str] = (),
    sample_hosts: int | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
    host_progress: HostProgress | None = None,
    beside: Callable[[HostFile], AlsoRead | None] | None = None,
) -> Analysis:
    """Read and analyze a profile.

    `path` is a logdir, a run folder or one `*.xplane.pb` file, on this machine or at an address (`"s3://bucket/logs"`,
    a `RemotePath`). For a logdir, `run` selects a run (default: the newest); with several, their hosts are analyzed as
    hosts of one run. `sections` are analyzed together with their dependencies (default: all). `attribution` is
    "corrected" or "tensorflow" (the conclusions of TensorFlow's own profiler). `step_marker` names the events that are
    steps (`*` is a wildcard). `peaks` is a file of device peaks, which take precedence. `step` is the step that the
    section timeline draws: its number, "median" or "slowest" (default: these two). `steps` are the numbers of the first
    and the last step to analyze, such as (10, 20), (10, None) or (None, 20): all results then cover only the time from
    the start of the first to the end of the last, on each host.

    `hosts` keeps only hosts of these names, `host_patterns` those that match, such as `worker-*`, and `sample_hosts` at
    most this many of each role, evenly spread. Hosts are analyzed on `jobs` processes (default: one per core if that is
    faster), on a `cluster` of dask ("tcp://scheduler:8786"), or on an `executor` of concurrent.futures. Unreadable
    hosts are `missing` in the result. `progress` is called with bytes done and bytes in total, `host_progress` with
    hosts. `beside` is called with the file of a single host, to read more of it concurrently. Raises
    TraceNotFoundError; TraceFormatError if no host can be read; and TfperfError for an unknown section, an invalid file
    of peaks, a cluster that does not answer, or if no host has any of the `steps`.
    """
    if attribution == "tensorflow" and step_marker is not None:
        raise TfperfError("attribution tensorflow uses its own steps: omit the step marker or use corrected")
    if attribution == "tensorflow" and steps is not None:
        raise TfperfError("attribution tensorflow covers the whole capture: omit the steps or use corrected")
    engine = Engine(jobs, cluster, executor)
    selected = choose_hosts(choose_run(find_runs(located(path)), run), tuple(hosts), tuple(host_patterns))
    selected, sample = (selected, "") if sample_hosts is None else sampled(selected, sample_hosts)
    names = _needed(sections)
    stated = () if peaks is None else read_peaks(Path(peaks))
    analyze = partial(analyze_host, sections=names, reading=Reading(attribution, step_marker, stated, step, steps))
    is_here = len(selected.files) == 1 and executor is None and cluster is None
    if beside is not None and is_here and attribution == "corrected":
        analyze = partial(analyze, also=beside(selected.files[0]))
    results, unread, parts = _analyzed(analyze, selected, engine, Told(progress, host_progress))
    missing = (*(each for each in unread if not each.is_readable), *unfinished_hosts(selected))
    lost = {each.host for each in (*unread, *missing)}
    read = (
        replace(selected, files=tuple(file for file in selected.files if file.host not in lost)) if lost else selected
    )
    analysis = Analysis(
        read,
        attribution,
        results,
        names,
        missing=missing,
        without_steps=tuple(each.host for each in unread if each.is_readable),
        sample=sample,
        step_marker=step_marker,
        peaks=stated,
        step=step,
        steps=steps,
        engine=replace(engine, executor=None),
    )
    analysis.parts.update(parts)
    return analysis


def unfinished_hosts(run: Run) -> tuple[MissingHost, ...]:
    """Return the hosts of a run whose files are incomplete."""
    return tuple(
        MissingHost(file.host, f"{file.path.name} is not a complete {TRACE_SUFFIX} file") for file in run.unfinished
    )


def _analyzed(
    analyze: Callable[..., HostResults], run: Run, engine: Engine, told: Told
) -> tuple[tuple[HostResults, ...], tuple[MissingHost, ...], dict[str, list[Any]]]:
    """Return the results of `analyzed_hosts`; a single host is analyzed in this process."""
    if len(run.files) == 1 and engine.executor is None and engine.cluster is None:
        (file,) = run.files
        is_large = (file.size_bytes or 0) >= FORKED_BYTES
        with allowing_forks(may_fork(file, engine.jobs)) if is_large else nullcontext():
            return (analyze(file, progress=told.bytes_done),), (), {}
    from tfperf.analysis.parallel.engine import analyzed_hosts
    from tfperf.trace.soundness import foreign_hosts

    hosts, missing, parts = analyzed_hosts(partial(analyze, host_count=len(run.files)), run, engine, told)
    captures = [host.capture for host in hosts if host.capture is not None]
    # A run of a single host compares nothing.
    foreign = foreign_hosts([host.host for host in hosts], captures) if captures else {}
    hosts = tuple(
        replace(host, flaws=(foreign[place], *host.flaws)) if place in foreign else host
        for place, host in enumerate(hosts)
    )
    return hosts, missing, parts


def _needed(sections: Sequence[str]) -> tuple[str, ...]:
    names = registry.section_names()
    unknown = next((name for name in sections if name not in names and not registry.is_ours(name)), None)
    if unknown is not None:
        raise TfperfError(f"{unknown!r} is not a section; the sections are {', '.join(names)}")
    # Every report depends on these sections, but not on the overview's other dependencies.
    return tuple(dict.fromkeys((*ALWAYS, *registry.with_dependencies(sections or registry.default_sections()))))


class Reading(Struct, frozen=True):
    """Settings for the analysis of a host's trace that do not depend on the sections."""

    attribution: Attribution = "corrected"
    step_marker: str | None = None
    peaks: tuple[DeviceModel, ...] = ()
    step: WhichStep | None = None
    steps: StepRange | None = None


_AS_USUAL = Reading()


def analyze_host(
    file: HostFile,
    *,
    sections: Sequence[str],
    reading: Reading = _AS_USUAL,
    progress: Progress | None = None,
    also: AlsoRead | None = None,
    host_count: int = 1,
) -> HostResults:
    """Read the trace of one host and analyze its sections, each after its dependencies.

    `host_count` is the number of hosts in the run: it decides whether captures are compared and steps drawn. Flaws, the
    environment and the borders of steps are those of the whole trace. Raises StepsNotFoundError if steps are selected
    and the host has none of them.
    """
    as_tensorflow = reading.attribution == "tensorflow"
    stats = frozenset().union(*(registry.find_section(name).stats for name in sections))
    read = read_host if also is None else partial(read_host_twice, also=also)
    stats = stats | LINKS if as_tensorflow else stats
    trace = read(file.path, file.host, stats=stats, instants=as_tensorflow, progress=progress)
    *settings, steps = astuple(reading)
    whole = host = Host(trace, *settings, is_one_of_many=host_count > MANY_HOSTS)
    whole.analyze([name for name in sections if name in _OF_WHOLE_TRACE])
    part = None
    if steps is not None:
        part = part_of(trace, whole["steps"].steps, steps)
        host = Host(cut_trace(trace, part), *settings, is_one_of_many=whole.is_one_of_many)
        cut_steps = breakdown_of(whole["steps"], host.trace, part, host.busy_times)
        host.results = {**whole.results, "steps": cut_steps}
    host.analyze([name for name in sections if name in registry.ANALYZED_FIRST and name not in host.results])
    flaws = *host["steps"].missing, *_analyze_others(host, whole, sections)
    results = HostResults(trace.host, bool(trace.devices), host.results, host.omitted, flaws, part=part)
    if host_count == 1:
        return results
    from tfperf.trace.soundness import capture_identity

    return replace(results, capture=capture_identity(trace, has_steps=len(host["steps"].steps) > 0))


_OF_WHOLE_TRACE = ("steps", "environment")
"""Sections that are analyzed before the trace is cut to selected steps."""
_TOGETHER = ("tfdata", "input", "ops"), ("diagnosis", "idle", "wall")
"""Sections that one process analyzes, because they share intermediate results such as `Host.stage_work`. They take
longest for a large host, so they start first.
"""


def _analyze_others(host: Host, whole: Host, sections: Sequence[str]) -> list[Flaw]:
    """Analyze sections that may run in any order, on two processes if possible, and return the flaws of the whole."""
    specs = {name: registry.find_section(name) for name in sections}
    ours = [name for name in sections if registry.is_ours(name) and name not in host.results and specs[name].analyze]
    links = whole.launch_links if whole.trace.device_kind == "gpu" else None
    checks = flaw_checks(whole.trace, whole["steps"].steps, links)

    def results_of(names: Iterable[str]) -> dict[str, Any]:
        return {name: host.result_of(name) for name in names}

    together = [[name for name in names if name in ours] for names in _TOGETHER]
    alone = [[name] for name in ours if name not in chain(*_TOGETHER)]
    tasks: list[Callable[[], Any]] = [partial(results_of, names) for names in together]
    tasks += [lambda check=check: [*check()] for check in checks]  # type: ignore[misc]
    tasks += [partial(results_of, names) for names in alone]
    done = in_two(tasks) if host.trace.size_bytes >= FORKED_BYTES else [task() for task in tasks]
    flaws: list[Flaw] = []
    for part in done:
        if isinstance(part, dict):
            host.results |= part
        else:
            flaws += part
    host.analyze([name for name in sections if not registry.is_ours(name)])
    host.results = {name: host.results[name] for name in sections if name in host.results}
    return flaws


ALWAYS = ("steps", "overview")
"""The sections that the summary of every report depends on."""


def assemble(results: Results, sections: Sequence[str] = ()) -> Report:
    """Return the report of the named sections, in registry order; without names, of all analyzed ones."""
    omitted = dict(results.omitted)
    documents: dict[str, Any] = {}
    coverage = _coverage_section(results)
    built = [coverage] if coverage.findings else []
    built += [] if not results.flaws else [_damage_section(results)]
    for name in registry.section_names():
        if name not in (sections or results.sections) or name in omitted:
            continue
        spec = registry.find_section(name)
        if spec.without_device and not results.has_device:
            built.append(Section(spec.name, spec.title, notes=(spec.without_device,), level="full"))
            continue
        try:
            section = registry.call(spec.build, results)
            if len(results.hosts) > MANY_HOSTS:
                section = with_short_tables(section)
            if spec.without_device and lacks_devices(results["steps"]):
                section = replace(section, findings=(), notes=(_PARTS_OF_DEVICES, *section.notes))
            built.append(replace(section, name=spec.name, is_lead=spec.name in registry.LEADS))
            if spec.document is not None:
                documents[name] = registry.call(spec.document, results)
        except Exception as error:
            if name in registry.OURS:
                raise
            omitted[name] = registry.described(error)
    source = {
        "run": results.run.name,
        "folder": str(results.run.folder),
        "hosts": [host.host for host in results.hosts],
        "attribution": results.attribution,
        "missing": [{"host": each.host, "reason": each.reason} for each in results.missing],
        "sample": results.sample,
        **_selected_steps(results),
    }
    summarize = registry.find_section("overview").summarize
    assert summarize is not None
    lines = (*registry.omitted_sections(), *(registry.omission(name, reason) for name, reason in omitted.items()))
    causes = results["diagnosis"].causes if "diagnosis" in results.sections else ()
    referring = _referring(built, {cause.code: cause.title for cause in causes})
    return Report(source, Deferred(partial(registry.call, summarize, results)), referring, lines, documents)


_PARTS_OF_DEVICES = "Device events are missing, so these values cover only the recorded events."


_PART_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("first_step", "First step", int, "", "number of the first step of the report"),
    Column("last_step", "Last step", int, "", "number of the last step of the report"),
    Column("steps", "Steps", int, "count", "number of steps in the report"),
    Column("all_steps", "All steps", int, "count", "number of steps of the host"),
    Column("start_ms", "Start", float, "ms", "start of the first step on the clock of the trace"),
    Column("duration_ms", "Duration", float, "ms", "time in the report: from there to the end of the last step"),
    Column("capture_ms", "Capture", float, "ms", "duration of the capture"),
)


def _selected_steps(results: Results) -> dict[str, Any]:
    """Return the entry of a report's source for the steps that it is limited to; empty if it covers all."""
    parts = [host.part for host in results.hosts if host.part is not None]
    if not parts:
        return {}
    first, last = min(part.first for part in parts), max(part.last for part in parts)
    return {"steps": {"first": first, "last": last, "hosts_without_steps": list(results.without_steps)}}


def _part_table(parts: Sequence[tuple[str, StepPart]]) -> Table:
    data: dict[str, Sequence[Any]] = {
        "host": [host for host, _ in parts],
        "first_step": [part.first for _, part in parts],
        "last_step": [part.last for _, part in parts],
        "steps": [part.count for _, part in parts],
        "all_steps": [part.all_count for _, part in parts],
        "start_ms": [part.start_ps / PS_PER_MS for _, part in parts],
        "duration_ms": [part.duration_ps / PS_PER_MS for _, part in parts],
        "capture_ms": [part.capture_ps / PS_PER_MS for _, part in parts],
    }
    return table_of("selected_steps", "Selected steps", _PART_COLUMNS, data, level="data")


def _coverage_section(results: Results) -> Section:
    """Return the first section of a report that does not cover all steps or hosts."""
    findings = []
    if results.steps_text:
        findings.append(Finding("selected_steps", "info", results.steps_text))
    if results.without_steps_text:
        findings.append(Finding("hosts_without_steps", "info", results.without_steps_text))
    if results.missing:
        text = f"{results.missing_text[0].upper()}{results.missing_text[1:]}."
        findings.append(Finding("missing_hosts", "problem", text, "capture the missing hosts again"))
    if results.sample:
        findings.append(Finding("sampled_hosts", "info", results.sample))
    if len(results.hosts) > MANY_HOSTS and results.is_narrowed:
        text = f"Many hosts: only the first {MOST_STEPS:,} steps of each host are included."
        findings.append(Finding("first_steps", "info", text))
    if lacking := sorted({section for host in results.hosts for section in host.shortened}):
        text = (
            f"Many hosts: only the largest {MOST_ROWS:,} rows of each host are kept ({listed(lacking)}). The other "
            "rows are summed in one row, such as (other ops), or omitted: a row may miss up to the value of that "
            "row."
        )
        findings.append(Finding("first_rows", "info", text))
    parts = [(host.host, host.part) for host in results.hosts if host.part is not None]
    tables = (_part_table(parts),) if parts else ()
    return Section("coverage", "Steps and hosts in this report", tuple(findings), tables=tables, is_lead=True)


def _damage_section(results: Results) -> Section:
    """Return the first section of a report on traces that are not sound."""
    texts: dict[str, list[str]] = {"unsound": [], "doubtful": [], "incomplete": []}
    for host, flaw in results.flaws:
        texts[flaw.level].append(f"host {host}: {flaw.text}" if results.has_several_hosts else flaw.text)
    findings = []
    if texts["unsound"]:
        text = f"This profile is damaged: {'; '.join(texts['unsound'])}. Do not trust its figures."
        findings.append(Finding("damaged", "problem", text, "capture again, each capture in a separate file"))
    incomplete = {flaw.code: flaw for _, flaw in results.flaws if flaw.level == "incomplete"}
    for flaw in incomplete.values():
        hosts = [host for host, other in results.flaws if other.code == flaw.code]
        of_hosts = f" Hosts: {listed(hosts)}." if results.has_several_hosts else ""
        findings.append(Finding(flaw.code, "problem", f"{flaw.text[0].upper()}{flaw.text[1:]}.{of_hosts}", flaw.fix))
    if texts["doubtful"]:
        findings.append(
            Finding("doubtful", "hint", f"This profile may be incomplete or wrong: {'; '.join(texts['doubtful'])}.")
        )
    return Section("soundness", "Soundness", findings=tuple(findings), is_lead=True)


def _referring(sections: Sequence[Section], titles: Mapping[str, str]) -> tuple[Section, ...]:
    """Return the sections with one list of problems, which the leading sections contain.

    Another finding with causes refers to those on that list, by name, and is no problem of its own: information. If
    none of its causes is on the list, it is at most a hint.
    """
    listed = {finding.code for section in sections if section.is_lead for finding in section.findings}
    if not listed:
        return tuple(sections)

    def refer(finding: Finding) -> Finding:
        if not finding.causes:
            return finding
        found = tuple(code for code in finding.causes if code in listed)
        severity: Severity = "info" if found or finding.severity == "info" else "hint"
        named = tuple(titles.get(code, code) for code in found)
        return replace(finding, causes=found, severity=severity, cause_titles=named)

    return tuple(
        section if section.is_lead else replace(section, findings=tuple(map(refer, section.findings)))
        for section in sections
    )


def with_short_tables(section: Section) -> Section:
    """Return a section whose long tables keep only the first rows and state the total number of rows.

    Tables with a row per host or device stay whole.
    """
    tables = []
    for table in section.tables:
        if table.total_rows > MOST_ROWS and (table.ranked is None or not table.ranked.each):
            note = f"First {MOST_ROWS:,} of {counted(table.total_rows, 'row')}; --hosts shows all of selected hosts."
            table = replace(table.head(MOST_ROWS), note=f"{table.note} {note}".strip())
        tables.append(table)
    return replace(section, tables=tuple(tables))
