"""What sections find out: about one host while it is analyzed, and about a run, for each host and combined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from tfperf.analysis.many_hosts import MANY_HOSTS, unpacked
from tfperf.analysis.missing import MissingHost, missing_text
from tfperf.analysis.registry import call, described, find_section, find_table, is_ours, omission, why_missing
from tfperf.analysis.view import View
from tfperf.base.display import Shown
from tfperf.base.errors import TfperfError
from tfperf.trace.flaw import Flaw
from tfperf.trace.host.activities import Activity, Attribution
from tfperf.trace.logdir import Run
from tfperf.trace.same_capture import CaptureIdentity

if TYPE_CHECKING:
    from typing_extensions import Self

    from tfperf.base.arrays import Int64s, Intervals
    from tfperf.report.model import Data
    from tfperf.trace.device.device_peaks import DeviceModel
    from tfperf.trace.device.device_time import DeviceTime
    from tfperf.trace.device.device_work import DeviceWork
    from tfperf.trace.host.host_ops import HostOps
    from tfperf.trace.host.host_state import HostStates
    from tfperf.trace.host.launches import LaunchLinks
    from tfperf.trace.host.tasks import Task
    from tfperf.trace.host_trace import HostTrace
    from tfperf.trace.steps.breakdown import Breakdown
    from tfperf.trace.steps.steps import Steps, WhichStep
    from tfperf.trace.tfdata.pipelines import Pipelines
    from tfperf.trace.tfdata.stage_work import StageWork


class Host:
    """The trace of one host, the results of the sections analyzed before, and what several sections share.

    What is shared is computed when a section first asks for it. `host["steps"]` is the result of the section steps.
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
        """Peaks of devices that the user states."""
        self.drawn_step = step
        """The step to draw, if one is asked for."""
        self.is_one_of_many = is_one_of_many
        """Whether the run has more than `MANY_HOSTS`: no step is drawn then, since no page shows so many."""
        self.results: dict[str, Any] = {}
        self.omitted: dict[str, str] = {}
        """Sections of other packages that failed, with the reason."""

    def analyze(self, sections: Iterable[str]) -> None:
        """Analyze the trace by sections, which follow those that they rest on.

        What a section of another package raises leaves that section out; a section of tfperf must not raise.
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
        """Return what a section finds out about the host; None if it needs a device, and there is none."""
        spec = find_section(section)
        assert spec.analyze is not None
        return None if spec.without_device and not self.trace.devices else call(spec.analyze, self)

    def __getitem__(self, section: str) -> Any:
        """Return the result of a section that the asking one rests on."""
        return _result(self.results, section)

    @property
    def as_tensorflow(self) -> bool:
        """Tell whether the conclusions are to be those of TensorFlow's own profiler."""
        return self.attribution == "tensorflow"

    @cached_property
    def task(self) -> Task:
        """Return which task of a job the host is."""
        from tfperf.trace.host.tasks import task_of

        return task_of(self.trace)

    @cached_property
    def busy_times(self) -> dict[Activity, Intervals]:
        """Return when each activity is under way, in real time."""
        from tfperf.trace.host.activities import busy_times

        return busy_times(self.trace)

    @cached_property
    def host_ops(self) -> HostOps:
        """Return the ops of host threads, added up."""
        from tfperf.trace.host.host_ops import host_ops

        return host_ops(self.trace, self.attribution)

    @cached_property
    def pipelines(self) -> Pipelines | None:
        """Return the pipelines of tf.data; None if it recorded nothing."""
        from tfperf.trace.tfdata.pipelines import find_pipelines

        return find_pipelines(self.trace)

    @cached_property
    def stage_work(self) -> StageWork | None:
        """Return when the stages of the pipelines worked themselves; None without pipelines."""
        from tfperf.trace.tfdata.stage_work import stage_work

        return stage_work(self.trace, self.pipelines) if self.pipelines is not None else None

    @cached_property
    def device_work(self) -> DeviceWork:
        """Return what devices did, with the op behind each event."""
        from tfperf.trace.device.device_work import device_work

        return device_work(self.trace)

    @cached_property
    def device_times(self) -> tuple[DeviceTime, ...]:
        """Return when each device computes, copies and idles."""
        from tfperf.trace.device.device_time import device_times

        return device_times(self.trace)

    @cached_property
    def launch_links(self) -> LaunchLinks:
        """Return which host event launched each piece of work of any device."""
        import numpy as np

        from tfperf.trace.device.device_time import work_rows
        from tfperf.trace.host.launches import launch_links

        rows = [np.zeros(0, np.int64), *(work_rows(self.trace, device.plane) for device in self.device_times)]
        work = np.sort(np.concatenate(rows))
        if self.trace.device_kind == "tpu":
            from tfperf.trace.device.tpu_runs import enqueue_links

            return enqueue_links(self.trace, work)
        return launch_links(self.trace, work)

    @cached_property
    def host_states(self) -> HostStates:
        """Return what the threads of the host do."""
        from tfperf.trace.host.host_state import host_states

        return host_states(self.trace, self.launch_links)

    @cached_property
    def step_windows(self) -> Steps:
        """Return the steps as windows in real time, which the groups of TensorFlow's profiler are not."""
        from tfperf.trace.steps.find_steps import find_steps

        steps: Steps = self["steps"].steps
        return find_steps(self.trace) if self.as_tensorflow and self.device_times else steps


def _result(results: Mapping[str, Any], section: str) -> Any:
    """Return the result of a section that was analyzed; where there was no device for it, it is made when it is asked.

    It is empty, as if the run had no host. What a section of another package needs for that is not known.
    """
    result, spec = results[section], find_section(section)
    if result is None and is_ours(section) and spec.without_device and spec.combine is not None:
        return call(spec.combine, [])
    return result


class HostResults(Shown, Struct, frozen=True):
    """What the sections found out about one host: `results` by section. `host` is the name of its file."""

    host: str
    has_device: bool
    results: Mapping[str, Any]
    omitted: Mapping[str, str] = field(default_factory=dict)
    """Sections of other packages that failed, with the reason."""
    flaws: tuple[Flaw, ...] = ()
    """What is wrong with the trace of the host."""
    capture: CaptureIdentity | None = None
    """What tells the capture of the host from those of others."""
    shortened: tuple[str, ...] = ()
    """Sections with tables that do not have all rows, since there are many hosts."""
    is_narrowed: bool = False
    """Whether other steps are averaged than when the host was analyzed."""
    is_other_kind: bool = False
    """Whether these are of another kind."""

    def __getitem__(self, section: str) -> Any:
        """Return the result of a section; if it needs a device and the host has none, it is empty."""
        return _result(self.results, section)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.results)

    def counting(self, rows: Int64s) -> HostResults:
        """Return the results over the steps at `rows` alone, where sections can tell; the rest is as it was."""
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
    """What is known about a run. `results["kernels"]` is what the section kernels found out, over all hosts.

    `hosts` holds the same for each host. The sections that were analyzed are `sections`.
    """

    run: Run
    attribution: Attribution
    hosts: tuple[HostResults, ...]
    sections: tuple[str, ...]
    view: View = View()
    missing: tuple[MissingHost, ...] = ()
    """Hosts that were asked for and could not be read."""
    sample: str = ""
    """If the hosts are a sample of those of the run: a sentence about it."""

    @cached_property
    def _combined(self) -> dict[str, Any]:
        return {}

    @cached_property
    def parts(self) -> dict[str, list[Any]]:
        """By section, what workers combined of many hosts: a few parts in order, packed or not."""
        return {}

    def __getitem__(self, section: str) -> Any:
        """Return the result of a section over all hosts; if it needs a device and no host has one, it is empty.

        Raises KeyError if the section was not analyzed, TfperfError if it is of another package and failed.
        """
        if section not in self._combined:
            if section not in self.sections:
                raise KeyError(why_missing(section))
            self._combined[section] = self._combine(section)
        return self._combined[section]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.sections)

    def _combine(self, section: str) -> Any:
        spec = find_section(section)
        if section in self.omitted:
            raise TfperfError(omission(section, self.omitted[section]))
        return self.combined(section) if spec.derive is None else call(spec.derive, self)

    def combined(self, section: str) -> Any:
        """Return what the hosts found out, combined; of a section that derives its result, what it derives it from."""
        spec = find_section(section)
        if spec.combine is None:
            return None
        if spec.combines_in_tree and len(self.hosts) > MANY_HOSTS:
            from tfperf.analysis.host_tree import combined_in_tree

            parts = self.parts.get(section) or (host.results[section] for host in self.hosts)
            return _result({section: combined_in_tree(spec.combine, map(unpacked, parts))}, section)
        results = [result for result in self.of_hosts(section) if result is not None or not spec.without_device]
        return call(spec.combine, results) if results else None

    def table(self, name: str) -> Data | None:
        """Return the declared columns of a table by their keys; None if this profile has no such table.

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
        """Say of how many hosts the results are, and which are missing; empty if none is."""
        return missing_text(self.missing, len(self.hosts))

    @property
    def flaws(self) -> tuple[tuple[str, Flaw], ...]:
        """Return what is wrong with the traces, each with its host."""
        return tuple((host.host, flaw) for host in self.hosts for flaw in host.flaws)

    @property
    def has_device(self) -> bool:
        """Tell whether any device recorded anything."""
        return any(host.has_device for host in self.hosts)

    @property
    def is_narrowed(self) -> bool:
        """Tell whether other steps are averaged than when the hosts were analyzed."""
        return any(host.is_narrowed for host in self.hosts)

    @property
    def is_other_kind(self) -> bool:
        """Tell whether these are of another kind."""
        return any(host.is_other_kind for host in self.hosts)

    @property
    def has_several_hosts(self) -> bool:
        """Tell whether there is more than one host."""
        return len(self.hosts) > 1

    def only(self, hosts: Sequence[HostResults]) -> Self:
        """Return the results of these hosts alone."""
        return replace(self, hosts=tuple(hosts))

    def seen(self, view: View) -> Self:
        """Return the same results, to be shown in another way."""
        shown = replace(self, view=view)
        shown._combined.update(self._combined)
        shown.parts.update(self.parts)
        return shown
