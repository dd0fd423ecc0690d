"""Where capturing and analysing meet: profile running jobs, then say what came and, if asked to, what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfperf.capture import remote
from tfperf.capture.address import parse_address
from tfperf.capture.options import TracerOptions
from tfperf.capture.remote import Request
from tfperf.errors import CaptureError, TfperfError
from tfperf.outcomes import Captured

if TYPE_CHECKING:
    from tfperf.capture.continuous import Snapshot
    from tfperf.report.model import Report
    from tfperf.session import Trace

__all__ = [
    "CaptureError",
    "Request",
    "Sampled",
    "TracerOptions",
    "parse_address",
    "record",
    "run",
    "sample",
    "sample_request",
    "tracer_levels",
]  # fmt: skip


@dataclass(frozen=True)
class Sampled:
    """What came of profiling jobs, one entry for each trace and for each worker that failed.

    `traces` are the analyses, one for each run folder, the newest last; `errors` say why a trace could not be analysed.
    """

    folder: Path
    captured: tuple[Captured, ...]
    traces: tuple[Trace, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[Captured, ...]:
        """Return the entries with a trace."""
        return tuple(one for one in self.captured if one.path)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return a line on each entry: where the trace is, or why there is none."""
        from tfperf.capture.quiet import describe

        return tuple(describe(one) for one in self.captured) + self.errors

    def report(
        self, *, analyze: bool = False, sections: Sequence[str] = (), top: int | None = None, page: bool = False
    ) -> Report:
        """Return what came of each worker; with `analyze` followed by the report on the newest traces."""
        from tfperf.reports.capture import capture_report

        own = capture_report(self.folder, self.captured, self._steps())
        if not analyze or not self.traces:
            return own
        analysis = self.traces[-1].report(sections, top, page=page)
        return replace(
            analysis, summary={**analysis.summary, **own.summary}, sections=(*own.sections, *analysis.sections)
        )

    def raise_problem(self) -> None:
        """Raise CaptureError (or TfperfError if a trace could not be analysed) unless all is well."""
        text = "; ".join(one.message for one in self.captured if one.reason)
        for one in self.captured:
            if one.reason:
                raise CaptureError(one.reason, text)
        if self.errors:
            raise TfperfError("; ".join(self.errors))

    def _steps(self) -> Mapping[Path, int]:
        return {
            file.path: len(host.breakdown.steps)
            for trace in self.traces
            for file, host in zip(trace.run.files, trace.hosts, strict=True)
        }


def sample(*workers: str, logdir: str | Path = "logs", **options: Any) -> Sampled:
    """Profile running jobs at the same moment, and analyse what comes: `tfperf.sample("localhost:6009")`.

    `workers` are addresses of profiler servers, `options` fields of `tfperf.capture.remote.Request` (`duration_s`, 2.0
    by default, `delay_s`, `retries`, ...). A worker that fails does not raise: see `captured`, or call
    `raise_problem`. Raises CaptureError `bad_address`, or `not_written` if the logdir cannot be used.
    """
    return sample_request(Request([parse_address(worker) for worker in workers], **options), logdir)


def sample_request(request: Request, logdir: str | Path, say: Callable[[str], object] = lambda _: None) -> Sampled:
    """Profile all workers of the request at the same moment, and analyse what comes: what `sample` does."""
    return _sampled(*remote.sample(request, logdir, say))


def tracer_levels(*, host_tracer_level: int, device_tracer_level: int, python_trace: bool) -> TracerOptions:
    """Return the options of the tracers."""
    return TracerOptions(host_tracer_level, device_tracer_level, int(python_trace))


def run(
    command: Sequence[str],
    *,
    steps: tuple[int, int] | None = None,
    after: float | None = None,
    duration: float | None = None,
    logdir: str | Path = "logs",
    is_module: bool = False,
    **levels: Any,
) -> tuple[int, Sampled]:
    """Run a script and profile it; return its exit code, and what came.

    `steps` are counted ones, `after` seconds a time; without either, steps are profiled if the script has any. See
    `tfperf.capture.run.run_script`.
    """
    from tfperf.capture.plan import AFTER_SECONDS, BATCHES, DURATION_SECONDS, Plan
    from tfperf.capture.run import run_script

    plan = Plan(
        str(Path(logdir).absolute()),
        batches=None if after else steps or BATCHES,
        after_s=None if steps else after or AFTER_SECONDS,
        duration_s=duration or DURATION_SECONDS,
        options=tracer_levels(**levels),
    )
    outcome = run_script(command, plan, is_module=is_module)
    return outcome.exit_code, _sampled(Path(logdir), [outcome.captured])


def record(
    request: Request,
    logdir: str | Path,
    say: Callable[[str], object] = lambda _: None,
    *,
    keep: int = 5,
    slow_step_s: float | None = None,
) -> Sampled:
    """Profile continuously until Ctrl-C; keep the last traces, only those with a step over `slow_step_s` if given.

    See `tfperf.capture.continuous.record`.
    """
    from tfperf.capture import continuous

    analysed: dict[Path, Trace] = {}

    def is_wanted(snapshot: Snapshot) -> bool:
        trace = _load(snapshot.folder)
        if isinstance(trace, TfperfError):
            return slow_step_s is None
        analysed[snapshot.folder] = trace
        return slow_step_s is None or _longest_step_s(trace) > slow_step_s

    kept, lost = continuous.record(request, logdir, say, keep=keep, is_wanted=is_wanted)
    traces = [analysed[snapshot.folder] for snapshot in kept if snapshot.folder in analysed]
    captured = [one for snapshot in kept for one in snapshot.captured] + lost
    return Sampled(Path(logdir) / "plugins" / "profile", tuple(captured), tuple(traces))


def _sampled(folder: Path, captured: Sequence[Captured]) -> Sampled:
    """Analyse the traces, which all lie in one run folder."""
    paths = [one.path for one in captured if one.path]
    if not paths:
        return Sampled(folder, tuple(captured))
    trace = _load(paths[0].parent)
    if isinstance(trace, TfperfError):
        return Sampled(paths[0].parent, tuple(captured), errors=(str(trace),))
    return Sampled(paths[0].parent, tuple(captured), (trace,))


def _load(folder: Path) -> Trace | TfperfError:
    # The job is asked first: numpy and Arrow take their time to load.
    from tfperf.session import load

    try:
        return load(folder)
    except TfperfError as error:
        return error


def _longest_step_s(trace: Trace) -> float:
    """Return the length of the longest step of any host whose begin and end the trace shows."""
    from tfperf.trace.steps import END_ESTIMATED, PARTIAL

    return max(
        (
            duration / 1e12
            for host in trace.hosts
            for duration, flag in zip(
                host.breakdown.steps.duration_ps.tolist(), host.breakdown.steps.flags, strict=True
            )
            if flag not in (PARTIAL, END_ESTIMATED)
        ),
        default=0.0,
    )
