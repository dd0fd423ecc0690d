"""One profile, analysed: what `tfperf.load` returns.

Each host is read, analysed and let go, one after the other (or wherever the given executor runs), so memory is
bounded by the largest host. What stays are results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from tfperf.analyzers import (
    eager,
    environment,
    functions,
    idle,
    input_pipeline,
    kernels,
    memory,
    ops,
    pipeline,
    step_breakdown,
    summary,
    tfdata,
    whatif,
)
from tfperf.errors import TfperfError
from tfperf.trace import logdir
from tfperf.trace.activities import Attribution
from tfperf.trace.device_time import device_times
from tfperf.trace.device_work import device_work
from tfperf.trace.find_steps import find_steps
from tfperf.trace.host_ops import host_ops
from tfperf.trace.progress import Progress, progress_by_file
from tfperf.trace.read import read_host
from tfperf.trace.stat_names import DEFAULT, LINKS

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tfperf.analyzers.op_groups import By
    from tfperf.report.model import Report


@dataclass(frozen=True)
class HostAnalysis:
    """What was found out about one host. `host` is the name of its file."""

    host: str
    environment: environment.HostEnvironment
    breakdown: step_breakdown.Breakdown
    functions: functions.Functions
    eager: eager.Eager
    ops: ops.Ops
    input: input_pipeline.InputPipeline
    tfdata: pipeline.TfData
    outlook: whatif.Outlook | None
    """What changes of the input pipeline would buy; None without steps or without a pipeline."""
    memory: memory.Memory
    idle: idle.Idle
    kernels: kernels.Kernels
    gaps: tuple[str, ...]
    """What the file of this host cannot tell, and why."""


@dataclass(frozen=True)
class Trace:
    """A profile of one or several hosts.

    `steps` is the breakdown of the steps (combined over hosts), `overview()` the averages and the verdict on them,
    `ops()` and `functions()` the tables; each has a `.table` DataFrame. `hosts` holds the same for each host alone.
    """

    run: logdir.Run
    attribution: Attribution
    hosts: tuple[HostAnalysis, ...]

    @cached_property
    def steps(self) -> step_breakdown.Breakdown:
        """Return the time of each step by category, averaged over hosts."""
        return step_breakdown.combine([host.breakdown for host in self.hosts])

    def overview(self) -> summary.Summary:
        """Return averages over steps and the input-bound class; with several hosts, the class is the worst host's."""
        return summary.over_hosts(self.steps, [host.breakdown for host in self.hosts])

    def ops(self) -> ops.Ops:
        """Return time per op, summed over hosts."""
        return ops.combine([host.ops for host in self.hosts])

    def input(self) -> input_pipeline.InputPipeline:
        """Return what the host does for input, op by op and class by class, summed over hosts."""
        return input_pipeline.combine([host.input for host in self.hosts])

    def functions(self) -> functions.Functions:
        """Return the tf.function calls, summed over hosts."""
        return functions.combine([host.functions for host in self.hosts])

    def eager(self) -> eager.Eager:
        """Return the ops that Python runs one by one outside tf.functions, summed over hosts."""
        return eager.combine([host.eager for host in self.hosts])

    def tfdata(self) -> pipeline.TfData:
        """Return the tf.data pipelines of all hosts and their stages, those waited for longest first."""
        return tfdata.combine([host.tfdata for host in self.hosts])

    def what_if(self) -> whatif.Outlook | None:
        """Return what changes of the input pipeline would buy, for the host that waits for its input longest."""
        found = [host.outlook for host in self.hosts if host.outlook is not None]
        return max(found, key=lambda own: own.wait_ms, default=None)

    def idle(self) -> idle.Idle:
        """Return what the devices of all hosts waited for, and their longest gaps."""
        return idle.combine([host.idle for host in self.hosts])

    def kernels(self) -> kernels.Kernels:
        """Return the kernels and copies of GPUs, and how kernels were launched, summed over hosts."""
        return kernels.combine([host.kernels for host in self.hosts])

    def memory(self) -> memory.Memory:
        """Return the allocators of all hosts: how full they became, and what lay in them then."""
        return memory.combine([host.memory for host in self.hosts])

    def report(
        self, sections: Sequence[str] = (), top: int | None = None, *, by: By = "op", filters: Sequence[str] = (),
        page: bool = False,
    ) -> Report:  # fmt: skip
        """Return the report (all sections by default), ready for a renderer.

        `top` cuts long tables for people; a `page` (HTML) has all rows, but only sections with something to say. `by`
        groups the ops, `filters` are regular expressions of which one must be found in the name or type of an op.
        Raises TfperfError for a filter that is none.
        """
        from tfperf.reports.build import build_report
        from tfperf.reports.profile import Profile, View

        profile = Profile(
            run_name=self.run.name, folder=str(self.run.folder), attribution=self.attribution,
            environments=tuple(host.environment for host in self.hosts),
            breakdowns=tuple(host.breakdown for host in self.hosts), gaps=tuple(host.gaps for host in self.hosts),
            steps=self.steps, overview=self.overview(), idle=self.idle(), ops=self.ops(),
            kernels=self.kernels(), functions=self.functions(),
            eager=self.eager(), inputs=tuple(host.input for host in self.hosts), input=self.input(),
            tfdata=self.tfdata(), outlook=self.what_if(), memory=self.memory(),
        )  # fmt: skip
        return build_report(profile, sections=sections, view=View(top, by, _compiled(filters), page))


def _compiled(filters: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(pattern, re.IGNORECASE) for pattern in filters)
    except re.error as error:
        raise TfperfError(f"the filter {error.pattern!r} is no regular expression: {error.msg}") from error


def load(
    path: str | Path,
    *,
    run: str | None = None,
    hosts: Sequence[str] = (),
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
    executor: Executor | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Read and analyse a profile.

    `path` is a logdir, a run folder or one `*.xplane.pb` file; of a logdir, the newest run is taken unless `run`
    names another. `hosts` keeps only hosts of these names. `attribution` is "corrected" or "tensorflow" (what
    TensorFlow's own profiler concluded). `step_marker` names the events that are steps (`*` is a wildcard). Raises
    TraceNotFoundError and TraceFormatError.
    """
    if attribution == "tensorflow" and step_marker is not None:
        raise TfperfError("attribution tensorflow takes its own steps; leave out the step marker, or use corrected")
    chosen = logdir.choose_hosts(logdir.choose_run(logdir.find_runs(Path(path)), run), tuple(hosts))
    analyse = partial(analyse_host, attribution=attribution, step_marker=step_marker)
    if executor is not None:
        results = list(executor.map(analyse, chosen.files))
    else:
        results = _one_by_one(chosen.files, analyse, progress)
    return Trace(chosen, attribution, tuple(results))


def _one_by_one(
    files: Sequence[logdir.HostFile], analyse: Callable[..., HostAnalysis], progress: Progress | None
) -> list[HostAnalysis]:
    by_file = progress_by_file(files, progress)
    return [analyse(file, progress=told) for file, told in zip(files, by_file, strict=True)]


def analyse_host(
    file: logdir.HostFile,
    *,
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
    progress: Progress | None = None,
) -> HostAnalysis:
    """Read and analyse the trace of one host."""
    as_tensorflow = attribution == "tensorflow"
    trace = read_host(
        file.path,
        file.host,
        stats=DEFAULT | LINKS if as_tensorflow else None,
        instants=as_tensorflow,
        progress=progress,
    )
    if as_tensorflow:
        breakdown = step_breakdown.as_tensorflow(trace)
    else:
        breakdown = step_breakdown.analyze(trace, find_steps(trace, step_marker))
    pipelines = tfdata.analyze(trace)
    host = host_ops(trace, attribution)
    work, times = device_work(trace), device_times(trace)
    # TensorFlow's groups are no windows in real time, which gaps of a device are cut by.
    steps = find_steps(trace) if as_tensorflow and times else breakdown.steps
    return HostAnalysis(
        host=trace.host, environment=environment.analyze(trace), breakdown=breakdown,
        functions=functions.analyze(trace), eager=eager.analyze(trace, breakdown.steps),
        ops=ops.analyze(trace, attribution, host, None if as_tensorflow else work, times),
        input=input_pipeline.analyze(trace, breakdown, host),
        tfdata=pipelines, outlook=whatif.estimate(pipelines, breakdown, has_device=bool(trace.devices)),
        memory=memory.analyze(trace, breakdown.steps), idle=idle.analyze(trace, steps, times),
        kernels=kernels.analyze(trace, breakdown.steps, attribution, work, times),
        gaps=environment.gaps(trace, breakdown.steps),
    )  # fmt: skip
