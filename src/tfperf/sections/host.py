"""One host while it is analyzed: what sections are given."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfperf.sections.registry import OURS, call, described, find_section
from tfperf.trace.host_trace import HostTrace

if TYPE_CHECKING:
    from tfperf.trace.activities import Attribution
    from tfperf.trace.device_time import DeviceTime
    from tfperf.trace.device_work import DeviceWork
    from tfperf.trace.host_ops import HostOps
    from tfperf.trace.host_state import HostStates
    from tfperf.trace.launches import LaunchLinks
    from tfperf.trace.pipelines import Pipelines
    from tfperf.trace.stage_work import StageWork
    from tfperf.trace.steps import Steps


class Host:
    """The trace of one host, the results of the sections analyzed before, and what several sections share.

    What is shared is computed when a section first asks for it. `host["steps"]` is the result of the section steps.
    """

    def __init__(
        self, trace: HostTrace, attribution: Attribution = "corrected", step_marker: str | None = None
    ) -> None:
        self.trace = trace
        self.attribution: Attribution = attribution
        self.step_marker = step_marker
        self.results: dict[str, Any] = {}
        self.omitted: dict[str, str] = {}
        """Sections of other packages that failed, with the reason."""

    def analyze(self, sections: Iterable[str]) -> None:
        """Analyze the trace by sections, which follow those that they rest on.

        What a section of another package raises leaves that section out; a section of tfperf must not raise.
        """
        for name in sections:
            spec = find_section(name)
            if spec.analyze is None:
                continue
            if spec.without_device and not self.trace.devices:
                # An empty one, as if the run had no host. What a section of another package needs for it is not known.
                self.results[name] = call(spec.combine, []) if name in OURS and spec.combine else None
                continue
            try:
                self.results[name] = call(spec.analyze, self)
            except Exception as error:
                if name in OURS:
                    raise
                self.omitted[name] = described(error)

    def __getitem__(self, section: str) -> Any:
        """Return the result of a section that the asking one rests on."""
        return self.results[section]

    @property
    def as_tensorflow(self) -> bool:
        """Tell whether the conclusions are to be those of TensorFlow's own profiler."""
        return self.attribution == "tensorflow"

    @cached_property
    def host_ops(self) -> HostOps:
        """Return the ops of host threads, added up."""
        from tfperf.trace.host_ops import host_ops

        return host_ops(self.trace, self.attribution)

    @cached_property
    def pipelines(self) -> Pipelines | None:
        """Return the pipelines of tf.data; None if it recorded nothing."""
        from tfperf.trace.pipelines import find_pipelines

        return find_pipelines(self.trace)

    @cached_property
    def stage_work(self) -> StageWork | None:
        """Return when the stages of the pipelines worked themselves; None without pipelines."""
        from tfperf.trace.stage_work import stage_work

        return stage_work(self.trace, self.pipelines) if self.pipelines is not None else None

    @cached_property
    def device_work(self) -> DeviceWork:
        """Return what devices did, with the op behind each event."""
        from tfperf.trace.device_work import device_work

        return device_work(self.trace)

    @cached_property
    def device_times(self) -> tuple[DeviceTime, ...]:
        """Return when each device computes, copies and idles."""
        from tfperf.trace.device_time import device_times

        return device_times(self.trace)

    @cached_property
    def launch_links(self) -> LaunchLinks:
        """Return which host event launched each piece of work of any device."""
        import numpy as np

        from tfperf.trace.device_time import work_rows
        from tfperf.trace.launches import launch_links

        rows = [np.zeros(0, np.int64), *(work_rows(self.trace, device.plane) for device in self.device_times)]
        return launch_links(self.trace, np.sort(np.concatenate(rows)))

    @cached_property
    def host_states(self) -> HostStates:
        """Return what the threads of the host do."""
        from tfperf.trace.host_state import host_states

        return host_states(self.trace, self.launch_links)

    @cached_property
    def step_windows(self) -> Steps:
        """Return the steps as windows in real time, which the groups of TensorFlow's profiler are not."""
        from tfperf.trace.find_steps import find_steps

        steps: Steps = self["steps"].steps
        return find_steps(self.trace) if self.as_tensorflow and self.device_times else steps
