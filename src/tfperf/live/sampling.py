"""Profiles of running jobs and scripts as a value: traces, failures, analysis and reports."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from tfperf.base.display import Shown
from tfperf.base.errors import CaptureError, TfperfError
from tfperf.base.units import counted, listed
from tfperf.capture.address import parse_address
from tfperf.capture.outcomes import Captured, start_spread_ms
from tfperf.capture.remote import CaptureRequest, Say, profile_workers, record
from tfperf.capture.script_run import Plan, run_script
from tfperf.formats.wire.trace_file import SUFFIX
from tfperf.report.model import Column, Finding, Report, Section, at_levels, table_of

if TYPE_CHECKING:
    from tfperf.analysis.load import Analysis
    from tfperf.trace.steps.steps import Steps
else:  # help(Sampled) looks the name up
    Analysis = Any

_LARGEST_BESIDE = 200_000_000
"""Maximum bytes of a trace to analyze while its job runs: a larger one would take the job's memory and time."""


def sample(*workers: str, logdir: str | Path = "logs", **options: Any) -> Sampled:
    """Profile running jobs at the same moment: `tfperf.sample("localhost:6009").analyzed().report()`.

    `workers` are addresses of profiler servers, `options` fields of `tfperf.capture.remote.CaptureRequest`
    (`duration_s`, 4.0 by default, `delay_s`, `retries`, ...). A worker that fails does not raise: see `captured`, or
    call `raise_problem`. Raises CaptureError `bad_address`, or `not_written` if the logdir cannot be used.
    """
    return sample_once(CaptureRequest(workers=[parse_address(worker) for worker in workers], **options), logdir)


def sample_once(request: CaptureRequest, logdir: str | Path, say: Say = lambda _: None) -> Sampled:
    """Profile all workers of the request at the same moment; see `tfperf.capture.remote.profile_workers`."""
    folder, captured = profile_workers(request, logdir, say)
    return Sampled(next((result.path.parent for result in captured if result.path), folder), tuple(captured))


def sample_continuously(
    request: CaptureRequest,
    logdir: str | Path,
    say: Say = lambda _: None,
    *,
    keep: int = 5,
    slow_step_s: float | None = None,
) -> Sampled:
    """Profile until Ctrl-C and keep the last traces, optionally only if a step exceeds `slow_step_s`; see `record`."""

    def has_slow_step(captured: Sequence[Captured]) -> bool:
        traces = [result.path for result in captured if result.path]
        try:
            return slow_step_s is None or any(longest_step_s(trace) > slow_step_s for trace in traces)
        except TfperfError:
            return False

    captured = record(request, logdir, say, keep=keep, is_wanted=has_slow_step)
    return Sampled(Path(logdir) / "plugins" / "profile", tuple(captured))


def sample_script(
    command: Sequence[str],
    plan: Plan,
    say: Say = lambda _: None,
    *,
    is_module: bool = False,
    stop_after_profile: bool = False,
) -> tuple[int, Sampled]:
    """Run a script and profile it as planned, by `run_script`; return its exit code and the analyzed result.

    `say` gets a line when the profile is written, and one with its first conclusion, while the script continues.
    """
    told: list[Sampled] = []

    def tell(captured: Captured) -> bool:
        sampled = _sampled(plan, captured)
        if (captured.size_bytes or 0) <= _LARGEST_BESIDE:
            # Lower the priority of this thread, so that it uses only idle cores (Linux has priorities of threads).
            if sys.platform == "linux":
                with contextlib.suppress(OSError):
                    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            with contextlib.suppress(MemoryError):
                sampled = sampled.analyzed()
        # A timed profile without steps is not final, because steps may follow.
        is_wanted = plan.steps is None or plan.after_s is None or sampled.analysis is None or sampled.has_steps
        if is_wanted:
            told.append(sampled)
            for line in filter(None, (captured.describe(), sampled.headline)):
                say(line)
        return is_wanted

    exit_code, captured = run_script(command, plan, tell, is_module=is_module, stop_after_profile=stop_after_profile)
    is_told = bool(told) and told[-1].captured[0].path == captured.path
    if captured.path and not is_told:
        say(captured.describe())
    sampled = told[-1] if is_told else _sampled(plan, captured)
    sampled = sampled if sampled.is_analyzed else sampled.analyzed()
    return exit_code, sampled


def _sampled(plan: Plan, captured: Captured) -> Sampled:
    return Sampled(captured.path.parent if captured.path else Path(plan.logdir), (captured,))


_MOST_TOLD = 5


class Sampled(Shown, Struct, frozen=True):
    """The result of profiling jobs: `captured` has one entry for each trace and for each worker that failed.

    `folder` is the run folder of the traces, or their common folder if there are several runs. After `analyzed`,
    `analysis` is that of the newest run, None if there is none; `error` is then the reason.
    """

    folder: Path
    captured: tuple[Captured, ...]
    is_analyzed: bool = False
    analysis: Analysis | None = None
    error: str = ""

    @property
    def kept(self) -> tuple[Captured, ...]:
        """Return the entries with a trace."""
        return tuple(result for result in self.captured if result.path)

    @property
    def lines(self) -> tuple[str, ...]:
        """Return a line for each entry: the path of the trace, or why there is none."""
        return tuple(result.describe() for result in self.captured) + ((self.error,) if self.error else ())

    def analyzed(self) -> Sampled:
        """Return the result with an analysis of the newest run; never raises for its traces."""
        paths = [result.path for result in self.captured if result.path]
        if not paths:
            return replace(self, is_analyzed=True)
        # Imported after the capture, because numpy and Arrow take time to load.
        from tfperf.analysis.load import load

        # Other processes may have joined the run; their traces are not part of this result.
        hosts = [path.name.removesuffix(SUFFIX) for path in paths if path.parent == paths[-1].parent]
        try:
            return replace(self, is_analyzed=True, analysis=load(paths[-1].parent, hosts=hosts))
        except TfperfError as error:
            return replace(self, is_analyzed=True, error=str(error))

    def with_pictures(self) -> Sampled:
        """Return the result whose report also draws steps, if it is analyzed; this reads the files again."""
        from tfperf.analysis.registry import section_names

        if self.analysis is None:
            return self
        try:
            return replace(self, analysis=self.analysis.more(section_names()))
        except TfperfError:  # the files were removed
            return self

    @property
    def headline(self) -> str:
        """The first conclusion of the analysis; empty without one."""
        if self.analysis is None:
            return ""
        (section, *_) = self.analysis.report(("diagnosis",)).sections
        return section.findings[0].text if section.findings else ""

    @property
    def has_steps(self) -> bool:
        """Whether the analysis found steps."""
        return self.analysis is not None and any(len(host["steps"].steps) for host in self.analysis.hosts)

    def report(self, *, sections: Sequence[str] = ()) -> Report:
        """Return a report on each worker, followed by the report on the newest run if it is analyzed."""
        report = capture_report(self.folder, self.captured, self._step_counts() if self.is_analyzed else None)
        if self.analysis is None:
            return report
        analyzed, (capture,) = self.analysis.report(sections), report.sections
        if len(self.captured) == 1 and not self.missing and not self.captured[0].reason:
            # The only worker has no problem, so the report on its trace is enough.
            capture = replace(capture, tables=tuple(replace(table, level="data") for table in capture.tables))
        sections_of_both = (capture, *analyzed.sections)
        return replace(analyzed, summary={**analyzed.summary, **report.summary}, sections=sections_of_both)

    @property
    def missing(self) -> tuple[Captured, ...]:
        """Return the entries without a trace, which have a reason."""
        return tuple(result for result in self.captured if not result.path)

    @property
    def is_partial(self) -> bool:
        """Return whether some workers returned a complete trace, and others none."""
        return bool(self.kept and self.missing) and not self.error and not any(result.reason for result in self.kept)

    @property
    def missing_reasons(self) -> str:
        """Return the first workers without a trace, each with its reason."""
        return listed([f"{result.worker} ({result.reason})" for result in self.missing])

    def raise_problem(self) -> None:
        """Raise CaptureError, or TfperfError if a trace could not be analyzed; return if there is no problem."""
        problems = [(result.reason, result.message) for result in self.captured if result.reason and result.message]
        if problems:
            messages = list(dict.fromkeys(message for _, message in problems))
            more = f"; and {counted(len(messages) - _MOST_TOLD, 'more worker')}" * (len(messages) > _MOST_TOLD)
            raise CaptureError(problems[0][0], "; ".join(messages[:_MOST_TOLD]) + more)
        if self.error:
            raise TfperfError(self.error)

    def _step_counts(self) -> dict[Path, int]:
        counts: dict[Path, int] = {}
        if self.analysis:
            for file, host in zip(self.analysis.run.files, self.analysis.hosts, strict=True):
                counts[Path(str(file.path))] = len(host["steps"].steps)
        for result in self.captured:
            if result.path and result.path not in counts:
                with contextlib.suppress(TfperfError):
                    counts[result.path] = len(steps_of(result.path))
        return counts


def steps_of(trace: Path) -> Steps:
    """Read a trace file and return its steps; raises TraceFormatError."""
    from tfperf.trace.read import read_host
    from tfperf.trace.steps.find_steps import find_steps

    return find_steps(read_host(trace))


def longest_step_s(trace: Path) -> float:
    """Return the longest duration in seconds of a step that starts and ends in the trace; 0 without one."""
    from tfperf.trace.steps.steps import END_ESTIMATED, PARTIAL

    steps = steps_of(trace)
    whole = [flag not in (PARTIAL, END_ESTIMATED) for flag in steps.flags]
    return float(steps.duration_ps[whole].max(initial=0)) / 1e12


_MOST_FINDINGS = 10
CAPTURED_COLUMNS = (
    Column("worker", "Worker", str, "", "the address of the profiler server"),
    Column("size_bytes", "Bytes", int, "count", "size of the trace file"),
    Column("event_count", "Events", int, "count", "events in the trace"),
    Column("step_count", "Steps", int, "count", "steps in the trace; only with --analyze"),
    Column("overhead_percent", "Overhead", float, "%", "increase of step time by profiling, if measured"),
    Column("reason", "Reason", str, "", "empty if there is no problem, otherwise a reason listed in docs/capture.md"),
    Column(
        "start_time_us",
        "Started",
        int,
        "us",
        "start of the session, in microseconds since 1970 on the clock of the worker",
        level="data",
    ),
    Column("message", "Message", str, "", "problem and suggested fix", level="data"),
    Column("path", "File", str, "", "the trace file", level="data"),
)


def capture_report(folder: Path, captured: Sequence[Captured], step_counts: Mapping[Path, int] | None = None) -> Report:
    """Return a report on each worker; `step_counts` are those of analyzed traces, None without any."""
    columns = tuple(column for column in CAPTURED_COLUMNS if column.key != "step_count" or step_counts is not None)
    counts = step_counts or {}
    rows: list[dict[str, Any]] = []
    for result in captured:
        path = result.path
        rows.append({**asdict(result), "path": path and str(path), "step_count": path and counts.get(path)})
    data = {column.key: [row[column.key] for row in rows] for column in columns}
    # A message without a reason is useful, but not a problem.
    findings = [
        Finding(result.reason or "note", "problem" if result.reason else "info", result.message)
        for result in captured
        if result.message
    ]
    if len(findings) > _MOST_FINDINGS:
        more = f"{len(findings) - _MOST_FINDINGS} more workers have messages; use --format json to list all"
        findings[_MOST_FINDINGS:] = [Finding("more", "info", more)]
    # Machine-readable output has the same columns each time; the text omits empty ones.
    empty = [column.key for column in columns if not any(value not in (None, "") for value in data[column.key])]
    columns = at_levels(columns, dict.fromkeys(empty, "data"))
    table = table_of("captured", "Workers", columns, data)
    kept = [row for row in rows if row["path"]]
    steps = [row["step_count"] for row in kept]
    problems = [result for result in captured if result.reason]
    problem = next((result for result in problems if result.message), None)
    spread_ms = start_spread_ms(captured)
    summary = {
        "workers": len(captured),
        "captured": len(kept),
        "reason": problem.reason if problem else "",
        "message": problem.message if problem else "",
        "event_count": sum(row["event_count"] or 0 for row in kept),
        "captured_steps": sum(steps) if steps and None not in steps else None,
        "start_spread_ms": spread_ms,
    }
    notes = [f"Received traces from {len(kept)} of {counted(len(captured), 'worker')}."] if len(captured) > 1 else []
    if any(result.reason == "dropped" for result in captured):
        notes = ["No trace was kept, because not all workers sent one (--all-or-nothing)."]
    if spread_ms is not None:
        notes.append(f"The sessions started within {spread_ms:,.1f} ms of each other, by the clocks of the workers.")
    section = Section(
        "capture",
        "Capture",
        findings=tuple(findings),
        tables=(table,),
        notes=(" ".join(notes),) * bool(notes),
        is_lead=True,
    )
    return Report({"folder": str(folder) if kept else None}, summary, (section,))
