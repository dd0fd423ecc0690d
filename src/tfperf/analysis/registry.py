"""Sections: the declarations of a section and its tables, the list of sections, and their results.

A result covers one host during its analysis (`Host`) and afterwards (`HostResults`), or a run (`Results`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from io import FileIO
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, NewType, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.analysis.many_hosts import MANY_HOSTS, combined_in_tree, unpacked
from tfperf.base.display import Shown
from tfperf.base.errors import TfperfError
from tfperf.base.units import PS_PER_MS, counted, format_ms, listed
from tfperf.report.model import Column, Data, DeclaredTable, Ranked, Table, table_of
from tfperf.trace.logdir import Run

if TYPE_CHECKING:
    from typing_extensions import Self

    from tfperf.analysis.result_types import of_host, of_run
    from tfperf.base.arrays import Int64s, Intervals
    from tfperf.base.patterns import Pattern
    from tfperf.trace.device.device_peaks import DeviceModel
    from tfperf.trace.device.device_work import DeviceTime, DeviceWork
    from tfperf.trace.flaw import Flaw
    from tfperf.trace.host.activities import Activity, Attribution
    from tfperf.trace.host.host_ops import HostOps
    from tfperf.trace.host.host_state import HostStates
    from tfperf.trace.host.launches import LaunchLinks
    from tfperf.trace.host.tasks import Task
    from tfperf.trace.host_trace import HostTrace
    from tfperf.trace.soundness import CaptureIdentity
    from tfperf.trace.steps.breakdown import Breakdown
    from tfperf.trace.steps.step_range import StepPart
    from tfperf.trace.steps.steps import Steps, WhichStep
    from tfperf.trace.tfdata import Pipelines, StageWork
else:
    Attribution = CaptureIdentity = Flaw = StepPart = Any  # help() resolves these names; their modules import numpy

    def of_run(method: Any) -> Any:
        """Return the method; for type checkers, one that returns the type of each section (`result_types.pyi`)."""
        return method

    of_host = of_run

Function = Callable[..., Any] | str
"""A function, or its location ("package.module:function"): then its module is imported at the first call."""


def call(function: Function, *arguments: Any) -> Any:
    """Call a declared function."""
    return (_resolved(function) if isinstance(function, str) else function)(*arguments)


_resolved = cache(resolve_name)
"""Cached: resolving a function takes longer than some of them run."""


class TableSpec(Shown, Struct, frozen=True, kw_only=True):
    """Declaration of a table: its name and columns are the same in JSON, CSV, SQL and `--limit`."""

    name: str
    title: str
    row: str
    """The meaning of a row: the description of the table in SQL."""
    details: str = ""
    """More information for readers of its file: a paragraph of docs/csv-files.md."""
    columns: tuple[Column, ...]
    data: Callable[[Results], Data | None]
    """Returns the columns by key, possibly more than are declared; None if this profile does not have the table."""
    name_key: str
    """The column that identifies a row for people; `name` in the condition of a limit refers to it."""
    about_steps: bool = False
    """Whether the table is meaningless without enough steps."""
    over_hosts: bool = False
    """Whether it compares hosts: a limit then measures it once, not per host."""
    counts_all_steps: bool = False
    """Whether it depends on the steps averaged when the profile was read, and cannot be narrowed later."""
    empty_means_none: bool = False
    """Whether a profile without the table has no rows of it; otherwise that is unknown."""
    in_report: bool = True
    """Whether reports contain it; if not, only SQL does."""
    in_limits: bool = True
    """Whether limits can refer to it."""
    aliases: tuple[str, ...] = ()
    """Additional names in SQL and in limits."""
    ranked: Ranked | None = None
    """The column that ranks the rows. Only a ranked table may be cut for display."""
    brief_rows: int | None = None
    """Maximum number of rows of a table that is not ranked, such as a list over time, in a full report for people."""

    def build(self, results: Results, **attributes: Any) -> Table | None:
        """Return the table of a profile, None if it does not have it; `attributes` replace fields of the `Table`."""
        data = self.data(results)
        return None if data is None else replace(self.of(data), **attributes)

    def of(self, data: Data) -> Table:
        """Return the table with these columns, which may be more than are declared."""
        rows = {"ranked": self.ranked, "brief_rows": self.brief_rows}
        return table_of(self.name, self.title, self.columns, data, **rows)


def fields(columns: Iterable[Column], rows: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """Return the columns of a table whose rows are objects; a column without a field of its name is all None."""
    return {column.key: [getattr(row, column.key, None) for row in rows] for column in columns}


def present(*tables: Table | None) -> tuple[Table, ...]:
    """Return the tables that are not None."""
    return tuple(table for table in tables if table is not None)


class SectionSpec(Shown, Struct, frozen=True, kw_only=True):
    """Declaration of a section: a question about a profile and its answer.

    `analyze(host)` gets a `Host` and returns a small, picklable result; `combine(results)` gets those of all hosts and
    returns the result of the run. A section that concludes from others has `derive(results)`, with or without the two,
    and `results.combined(name)` for it. `build(results)` gets a `Results` and returns a `tfperf.report.model.Section`.
    These functions must not print, read files or change their arguments.
    """

    name: str
    title: str
    build: Function
    analyze: Function | None = None
    combine: Function | None = None
    combines_in_tree: bool = False
    """Whether `combine` also accepts its own results for some of the hosts, which saves memory with many hosts."""
    shorten: Function | None = None
    """shorten(result, most): the result of one of many hosts with at most `most` rows, or the same object."""
    derive: Function | None = None
    rests_on: tuple[str, ...] = ()
    """Sections whose results this one uses."""
    stats: frozenset[str] = frozenset()
    """Names of the stats that `analyze` reads, in addition to those of steps."""
    tables: tuple[TableSpec, ...] = ()
    summarize: Function | None = None
    """summarize(results): for the section overview, the summary at the start of a JSON document."""
    without_device: str = ""
    """Sentence that replaces a section about devices if no device recorded anything."""
    narrow: Function | None = None
    """narrow(result, before, after): the result over fewer steps; `before` and `after` are breakdowns of the host."""
    is_picture: bool = False
    """Whether it is created only if requested by name, or for a format with pictures."""
    document: Function | None = None
    """document(results): a top-level object of the JSON document, with the name of the section as its key."""


GROUP = "tfperf.sections"
SectionName = Literal[
    "diagnosis",
    "overview",
    "steps",
    "wall",
    "hosts",
    "batch",
    "requests",
    "idle",
    "critical_path",
    "input",
    "tfdata",
    "ops",
    "kernels",
    "collectives",
    "xla",
    "roofline",
    "functions",
    "python",
    "memory",
    "host_threads",
    "environment",
    "gaps",
    "timeline",
]
"""The sections of tfperf in report order: each is a folder or a module of `tfperf/sections`."""
OtherSection = NewType("OtherSection", str)
"""The name of a section of another package, `OtherSection("name")`; type checkers accept the other names."""
AnySection = SectionName | OtherSection
OURS: tuple[SectionName, ...] = get_args(SectionName)
LEADS = ("diagnosis",)
"""Sections on the first screen. Listed here so that no other section is imported."""
ANALYZED_FIRST = ("steps", "environment", "xla")
"""Sections that the analysis of a host by other sections uses; the others may run in any order."""
UNREPORTED = {
    "op_sums": "tfperf.sections.ops.sums:OP_SUMS",
    "python_stacks": "tfperf.sections.python.analysis:STACKS",
    "step_sums": "tfperf.judge.summarize:STEP_SUMS",
}
"""Where sections are declared that are in no report: only a command requests their results."""


@cache
def _others() -> tuple[dict[str, SectionSpec], tuple[str, ...]]:
    """Return the sections of other packages, and the reasons why some of them are omitted."""
    specs: dict[str, SectionSpec] = {}
    omitted = []
    if not any(map(_declares_sections, sys.path)):
        return {}, ()
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            spec = point.load()
            problem = _problem(spec, point.name, specs)
        except Exception as error:
            problem = described(error)
        if problem:
            omitted.append(omission(point.name, problem))
        else:
            specs[point.name] = spec
    return specs, tuple(omitted)


def _declares_sections(folder: str) -> bool:
    """Return whether a package in a folder of sys.path declares sections: importing importlib.metadata takes 30 ms."""
    with suppress(OSError), os.scandir(folder or os.curdir) as entries:
        packages = [entry.path for entry in entries if entry.name.endswith("-info")]
        for package in packages:
            with suppress(OSError), FileIO(f"{package}/entry_points.txt") as file:
                if f"[{GROUP}]".encode() in file.read():
                    return True
    return False


def described(error: Exception) -> str:
    """Return the exception of another package's section, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def omission(section: str, reason: str) -> str:
    """Return a line that states which section is omitted and why."""
    return f"section {section} is omitted: {reason}"


def _problem(spec: object, name: str, others: Iterable[str]) -> str:
    """Return the problem with a section of another package, empty if there is none."""
    if not isinstance(spec, SectionSpec):
        return f"it is {type(spec).__name__}, not a SectionSpec"
    if spec.name != name:
        return f"its name is {spec.name}"
    if is_ours(name) or name in others:
        return "another section has this name"
    if not name.isidentifier():
        return "its name is not an identifier"
    missing = [other for other in spec.rests_on if other not in OURS]
    if missing:
        return f"it depends on {missing[0]}, which is not a tfperf section"
    taken = {table for ours in OURS for spec_of in (find_section(ours),) for table in _names(spec_of)}
    clash = next((table for table in _names(spec) if table in taken), None)
    return f"tfperf already has a table {clash}" if clash else ""


def _names(spec: SectionSpec) -> list[str]:
    return [name for table in spec.tables for name in (table.name, *table.aliases)]


def section_names() -> tuple[AnySection, ...]:
    """Return the names of all sections in report order; those of other packages come last."""
    return (*OURS, *map(OtherSection, _others()[0]))


def is_ours(name: str) -> bool:
    """Return whether a section belongs to tfperf."""
    return name in OURS or name in UNREPORTED


def default_sections() -> tuple[AnySection, ...]:
    """Return the names of the sections that are analyzed by default: all but pictures."""
    return tuple(name for name in section_names() if not find_section(name).is_picture)


def omitted_sections() -> tuple[str, ...]:
    """Return a line for each unusable section of another package."""
    return _others()[1]


@cache
def find_section(name: str) -> SectionSpec:
    """Return the declaration of a section; imports its folder. Raises KeyError."""
    if is_ours(name):
        spec: SectionSpec = resolve_name(UNREPORTED.get(name, f"tfperf.sections.{name}:SECTION"))
        return spec
    return _others()[0][name]


def all_tables() -> tuple[TableSpec, ...]:
    """Return the declarations of the tables of all sections."""
    return tuple(table for name in section_names() for table in find_section(name).tables)


def find_table(name: str) -> tuple[str, TableSpec]:
    """Return the section that declares a table, and the declaration; `name` may be an alias. Raises KeyError."""
    for section in section_names():
        for table in find_section(section).tables:
            if name in (table.name, *table.aliases):
                return section, table
    raise KeyError(name)


def with_dependencies(names: Iterable[str]) -> tuple[str, ...]:
    """Return the sections and their dependencies, each after its dependencies."""
    ordered: dict[str, None] = {}

    def add(name: str) -> None:
        for other in find_section(name).rests_on:
            add(other)
        ordered[name] = None

    for name in names:
        add(name)
    return tuple(ordered)


def why_missing(section: str) -> str:
    """Return why a section has no result: it was not analyzed, or does not exist."""
    from tfperf.base.units import did_you_mean

    names = section_names()
    if section in names:
        return f"{section} was not analyzed; include it in the sections to load"
    return f"{section!r} is not a section: {did_you_mean(section, names) or 'tfperf.load(PATH).sections lists all'}"


Grouping = Literal["type", "scope", "layer"]

By = Literal["pattern", "op"] | Grouping | Literal["kernel"]
"""Grouping of ops and kernels. pattern: ops that differ only in replica and layer numbers, kernels by name; op: no
grouping; kernel: ops as with pattern, kernels by op and launch shape.
"""


class View(Struct, frozen=True):
    """Display options: ops and kernels grouped `by`; only ops that match one of `filters`."""

    by: By = "pattern"
    filters: tuple[Pattern, ...] = ()

    @property
    def ops_by(self) -> By:
        """Return how ops are grouped."""
        return "pattern" if self.by == "kernel" else self.by


class MissingHost(Struct, frozen=True):
    """A host that results leave out, and the reason: it cannot be read, or (`is_readable`) lacks the selected steps."""

    host: str
    reason: str
    is_readable: bool = False


def missing_text(readable: int, missing: Sequence[MissingHost]) -> str:
    """Return a sentence on the number of readable hosts and on the missing ones; empty if none is missing."""
    if not missing:
        return ""
    named = listed([f"{each.host} ({each.reason})" for each in missing], 3)
    return f"only {readable:,} of {counted(readable + len(missing), 'host')} are readable, excluding {named}"


class Host:
    """The trace of one host, the results of the sections analyzed before, and shared data, computed at first use.

    `host["steps"]` is the result of the section steps.
    """

    def __init__(
        self,
        trace: HostTrace,
        attribution: Attribution = "corrected",
        step_marker: str | None = None,
        peaks: Sequence[DeviceModel] = (),
        step: WhichStep | None = None,
        *,
        is_one_of_many: bool = False,
    ) -> None:
        self.trace = trace
        self.attribution: Attribution = attribution
        self.step_marker = step_marker
        self.peaks = peaks
        self.drawn_step = step
        self.is_one_of_many = is_one_of_many
        """Whether the run has more than `MANY_HOSTS`; no step is drawn then."""
        self.results: dict[str, Any] = {}
        self.omitted: dict[str, str] = {}
        """Sections of other packages that failed, with the reason."""

    def analyze(self, sections: Iterable[str]) -> None:
        """Analyze the trace by sections, each after its dependencies.

        An exception in a section of another package omits that section; a section of tfperf must not raise.
        """
        for name in sections:
            if find_section(name).analyze is None:
                continue
            try:
                self.results[name] = self.result_of(name)
            except Exception as error:
                if is_ours(name):
                    raise
                self.omitted[name] = described(error)

    def result_of(self, section: str) -> Any:
        """Return the result of a section for the host; None if it needs a device and there is none."""
        spec = find_section(section)
        assert spec.analyze is not None
        return None if spec.without_device and not self.trace.devices else call(spec.analyze, self)

    @of_host
    def __getitem__(self, section: str) -> Any:
        """Return the result of a section that the current one depends on."""
        return _result(self.results, section)

    @property
    def as_tensorflow(self) -> bool:
        """Return whether to reproduce the conclusions of TensorFlow's own profiler."""
        return self.attribution == "tensorflow"

    @cached_property
    def task(self) -> Task:
        """Return the task of the job that the host runs."""
        from tfperf.trace.host.tasks import task_of

        return task_of(self.trace)

    @cached_property
    def busy_times(self) -> dict[Activity, Intervals]:
        """Return when each activity runs, in real time."""
        from tfperf.trace.host.activities import busy_times

        return busy_times(self.trace)

    @cached_property
    def host_ops(self) -> HostOps:
        """Return the ops of host threads, summed by op."""
        from tfperf.trace.host.host_ops import host_ops

        return host_ops(self.trace, self.attribution)

    @cached_property
    def pipelines(self) -> Pipelines | None:
        """Return the tf.data pipelines; None if tf.data recorded nothing."""
        from tfperf.trace.tfdata import find_pipelines

        return find_pipelines(self.trace)

    @cached_property
    def stage_work(self) -> StageWork | None:
        """Return when the stages of the pipelines worked, without nested stages; None without pipelines."""
        from tfperf.trace.tfdata import stage_work

        return stage_work(self.trace, self.pipelines) if self.pipelines is not None else None

    @cached_property
    def device_work(self) -> DeviceWork:
        """Return the work of devices, with the op of each event."""
        from tfperf.trace.device.device_work import device_work

        return device_work(self.trace)

    @cached_property
    def device_times(self) -> tuple[DeviceTime, ...]:
        """Return when each device computes, copies and idles."""
        from tfperf.trace.device.device_work import device_times

        return device_times(self.trace)

    @cached_property
    def launch_links(self) -> LaunchLinks:
        """Return the host event that launched each device event."""
        import numpy as np

        from tfperf.trace.device.device_work import work_rows
        from tfperf.trace.host.launches import launch_links

        rows = [np.zeros(0, np.int64), *(work_rows(self.trace, device.plane) for device in self.device_times)]
        work = np.sort(np.concatenate(rows))
        if self.trace.device_kind == "tpu":
            from tfperf.trace.device.tpu_runs import enqueue_links

            return enqueue_links(self.trace, work)
        return launch_links(self.trace, work)

    @cached_property
    def host_states(self) -> HostStates:
        """Return the states of the host threads over time."""
        from tfperf.trace.host.host_state import host_states

        return host_states(self.trace, self.launch_links)

    @cached_property
    def step_windows(self) -> Steps:
        """Return the steps as windows in real time, unlike the groups of TensorFlow's profiler."""
        from tfperf.trace.steps.find_steps import find_steps

        steps: Steps = self["steps"].steps
        return find_steps(self.trace) if self.as_tensorflow and self.device_times else steps


def _result(results: Mapping[str, Any], section: str) -> Any:
    """Return the result of an analyzed section, an empty one if it needs a device and there is none.

    Sections of other packages do not declare how to create an empty result.
    """
    result, spec = results[section], find_section(section)
    if result is None and is_ours(section) and spec.without_device and spec.combine is not None:
        return call(spec.combine, [])
    return result


class HostResults(Shown, Struct, frozen=True):
    """The results of one host: `results` by section. `host` is the name of its file."""

    host: str
    has_device: bool
    results: Mapping[str, Any]
    omitted: Mapping[str, str] = field(default_factory=dict)
    flaws: tuple[Flaw, ...] = ()
    capture: CaptureIdentity | None = None
    """Identifies the capture of the host among others."""
    shortened: tuple[str, ...] = ()
    """Sections with tables that do not have all rows, because there are many hosts."""
    is_narrowed: bool = False
    """Whether the averaged steps differ from those at the time of the analysis."""
    is_other_kind: bool = False
    """Whether the averaged steps are of another kind."""
    part: StepPart | None = None
    """The selected steps, if the results are limited to some."""

    @of_host
    def __getitem__(self, section: str) -> Any:
        """Return the result of a section; if it needs a device and the host has none, it is empty."""
        return _result(self.results, section)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.results)

    def counting(self, rows: Int64s) -> HostResults:
        """Return the results over the steps at `rows`, for sections that can be narrowed; others are unchanged."""
        before: Breakdown = self["steps"]
        after = before.only(rows)
        after = replace(after, steps=replace(after.steps, pauses=before.steps.pauses))
        narrowed = {
            name: call(spec.narrow, result, before, after)
            for name, result in self.results.items()
            if result is not None and (spec := find_section(name)).narrow is not None
        }
        return replace(
            self,
            results={**self.results, **narrowed},
            is_narrowed=self.is_narrowed or _averaged_starts(before) != _averaged_starts(after),
            is_other_kind=self.is_other_kind or before.steps.headline_kind != after.steps.headline_kind,
        )


def _averaged_starts(breakdown: Breakdown) -> list[int]:
    starts: list[int] = breakdown.steps.start_ps[breakdown.steps.headline].tolist()
    return starts


class Results(Shown, Struct, frozen=True, dict=True):
    """The results of a run. `results["kernels"]` is the result of the section kernels over all hosts."""

    run: Run
    attribution: Attribution
    hosts: tuple[HostResults, ...]
    sections: tuple[str, ...]
    view: View = View()
    missing: tuple[MissingHost, ...] = ()
    """Requested hosts that could not be read."""
    without_steps: tuple[str, ...] = ()
    """Names of hosts that results leave out: they lack the selected steps."""
    sample: str = ""
    """A sentence about the sample, if `hosts` is one."""

    @cached_property
    def _combined(self) -> dict[str, Any]:
        return {}

    @cached_property
    def parts(self) -> dict[str, list[Any]]:
        """Partial results that workers combined, by section, packed or not."""
        return {}

    @of_run
    def __getitem__(self, section: str) -> Any:
        """Return the result of a section over all hosts; if it needs a device and no host has one, it is empty.

        Raises KeyError if the section was not analyzed, TfperfError if it is of another package and failed.
        """
        if section not in self._combined:
            if section not in self.sections:
                raise KeyError(why_missing(section))
            spec = find_section(section)
            if section in self.omitted:
                raise TfperfError(omission(section, self.omitted[section]))
            self._combined[section] = self.combined(section) if spec.derive is None else call(spec.derive, self)
        return self._combined[section]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.sections)

    def combined(self, section: str) -> Any:
        """Return the combined results of the hosts; for a section that derives its result, the input of `derive`."""
        spec = find_section(section)
        if spec.combine is None:
            return None
        if spec.combines_in_tree and len(self.hosts) > MANY_HOSTS:
            parts = self.parts.get(section) or (host.results[section] for host in self.hosts)
            return _result({section: combined_in_tree(partial(call, spec.combine), map(unpacked, parts))}, section)
        results = [result for result in self.of_hosts(section) if result is not None or not spec.without_device]
        return call(spec.combine, results) if results else None

    def table(self, name: str) -> Data | None:
        """Return the declared columns of a table by their keys; None if this profile does not have it.

        Raises KeyError for an unknown table, TfperfError if it is of another package's section, which failed.
        """
        section, table = find_table(name)
        try:
            data = table.data(self)
            return None if data is None else {column.key: data[column.key] for column in table.columns}
        except TfperfError:
            raise
        except Exception as error:
            if is_ours(section):
                raise
            raise TfperfError(omission(section, described(error))) from error

    def of_hosts(self, section: str) -> list[Any]:
        """Return the results of a section for each host, in the order of `hosts`."""
        return [host[section] for host in self.hosts]

    @property
    def omitted(self) -> dict[str, str]:
        """Return the sections of other packages that failed on any host, with the reason."""
        return {name: reason for host in self.hosts for name, reason in host.omitted.items()}

    @property
    def missing_text(self) -> str:
        """Return a sentence on how many hosts are covered and which are missing; empty if none is missing."""
        return missing_text(len(self.hosts), self.missing)

    @property
    def steps_text(self) -> str:
        """Return a sentence on the steps that the results are limited to; empty if they cover the whole capture."""
        parts = [host.part for host in self.hosts if host.part is not None]
        if not parts:
            return ""
        first, last = min(part.first for part in parts), max(part.last for part in parts)
        named = f"step {first} is" if first == last else f"steps {first}..{last} are"
        fewest, most = (pick(part.count for part in parts) for pick in (min, max))
        count = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
        text = f"Only {named} included: {count} of {counted(max(part.all_count for part in parts), 'step')}"
        if len(parts) > 1:
            return f"{text} per host."
        part_ms, capture_ms = (format_ms(ps / PS_PER_MS) for ps in (parts[0].duration_ps, parts[0].capture_ps))
        return f"{text}, {part_ms} of {capture_ms} ms."

    @property
    def without_steps_text(self) -> str:
        """Return a sentence on the hosts without the selected steps; empty if every host has some."""
        do = "does" if len(self.without_steps) == 1 else "do"
        return f"{listed(self.without_steps, 3)} {do} not have these steps." if self.without_steps else ""

    @property
    def flaws(self) -> tuple[tuple[str, Flaw], ...]:
        """Return the flaws of the traces, each with its host."""
        return tuple((host.host, flaw) for host in self.hosts for flaw in host.flaws)

    @property
    def has_device(self) -> bool:
        """Return whether any device recorded anything."""
        return any(host.has_device for host in self.hosts)

    @property
    def is_narrowed(self) -> bool:
        """Return whether the averaged steps differ from those at the time of the analysis."""
        return any(host.is_narrowed for host in self.hosts)

    @property
    def is_other_kind(self) -> bool:
        """Return whether the averaged steps are of another kind."""
        return any(host.is_other_kind for host in self.hosts)

    @property
    def has_several_hosts(self) -> bool:
        """Return whether there is more than one host."""
        return len(self.hosts) > 1

    def only(self, hosts: Sequence[HostResults]) -> Self:
        """Return the results of these hosts only."""
        return replace(self, hosts=tuple(hosts))

    def seen(self, view: View) -> Self:
        """Return the same results with other display options."""
        shown = replace(self, view=view)
        shown._combined.update(self._combined)
        shown.parts.update(self.parts)
        return shown


def declared(section: str, name: str) -> TableSpec:
    """Return the declaration of a table."""
    return next(table for table in find_section(section).tables if table.name == name)


class HasTable(DeclaredTable):
    """A result that is the first table of a section and depends on no other result."""

    __slots__ = ()

    def _data(self) -> Data | None:
        alone = Results(Run("", Path(), ()), "corrected", (), self.home[:1])
        alone._combined[self.home[0]] = self
        return declared(*self.home).data(alone)


class Tabular(HasTable, Struct, frozen=True):
    """A result that is both a table and a struct with fields."""
