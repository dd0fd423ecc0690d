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
                self.results[name] = None
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
    def step_windows(self) -> Steps:
        """Return the steps as windows in real time, which the groups of TensorFlow's profiler are not."""
        from tfperf.trace.find_steps import find_steps

        steps: Steps = self["steps"].steps
        return find_steps(self.trace) if self.as_tensorflow and self.device_times else steps
