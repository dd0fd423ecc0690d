"""What came of profiling jobs: the traces, the reasons for those that did not come, and the report on both."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.display import Shown
from tfperf.base.errors import CaptureError, TfperfError
from tfperf.base.units import counted, listed
from tfperf.capture.outcomes import Captured
from tfperf.formats.wire.trace_file import SUFFIX
from tfperf.live.sampling.reports import capture_report

if TYPE_CHECKING:
    from tfperf.analysis.load import Analysis
    from tfperf.report.model import Report
    from tfperf.trace.steps.steps import Steps
else:  # help(Sampled) looks the name up
    Analysis = Any

_MOST_TOLD = 5


class Sampled(Shown, Struct, frozen=True):
    """The result of profiling jobs: `captured` has one entry for each trace and for each worker that failed.

    `folder` is the run folder of the traces, or that of all runs if there are several. After `analyzed`, `analysis` is
    that of the newest run, None if there is none; `error` then says why it could not be analyzed.
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
        """Return a line on each entry: where the trace is, or why there is none."""
        return tuple(result.describe() for result in self.captured) + ((self.error,) if self.error else ())

    def analyzed(self) -> Sampled:
        """Return the result with an analysis of the newest run that was kept; never raises for its traces."""
        # The job was asked first: numpy and Arrow take their time to load.
        from tfperf.analysis.load import load

        paths = [result.path for result in self.captured if result.path]
        # Others may have joined the run: their reports are theirs.
        hosts = [path.name.removesuffix(SUFFIX) for path in paths if path.parent == paths[-1].parent]
        try:
            return replace(self, is_analyzed=True, analysis=load(paths[-1].parent, hosts=hosts) if paths else None)
        except TfperfError as error:
            return replace(self, is_analyzed=True, error=str(error))

    def with_pictures(self) -> Sampled:
        """Return the result whose report draws steps too, if it is analyzed: the files are read again."""
        from tfperf.analysis.registry import section_names

        if self.analysis is None:
            return self
        try:
            return replace(self, analysis=self.analysis.more(section_names()))
        except TfperfError:  # somebody took them away
            return self

    @property
    def headline(self) -> str:
        """The first conclusion of the analysis; empty if there is none."""
        if self.analysis is None:
            return ""
        (section, *_) = self.analysis.report(("diagnosis",)).sections
        return section.findings[0].text if section.findings else ""

    @property
    def has_steps(self) -> bool:
        """Whether the analysis found steps."""
        return self.analysis is not None and any(len(host["steps"].steps) for host in self.analysis.hosts)

    def report(self, *, sections: Sequence[str] = ()) -> Report:
        """Return what came of each worker, followed by the report on the newest run if that is analyzed."""
        report = capture_report(self.folder, self.captured, self._step_counts() if self.is_analyzed else None)
        if self.analysis is None:
            return report
        analyzed, (capture,) = self.analysis.report(sections), report.sections
        if len(self.captured) == 1 and not self.missing and not self.captured[0].reason:
            # Nothing is wrong with the only worker: the report on its trace says the rest.
            capture = replace(capture, tables=tuple(replace(table, level="data") for table in capture.tables))
        sections_of_both = (capture, *analyzed.sections)
        return replace(analyzed, summary={**analyzed.summary, **report.summary}, sections=sections_of_both)

    @property
    def missing(self) -> tuple[Captured, ...]:
        """Return the entries of workers that gave no trace, with the reason."""
        return tuple(result for result in self.captured if not result.path)

    @property
    def is_partial(self) -> bool:
        """Whether some workers gave a trace with all that was asked for, and the others none."""
        return bool(self.kept and self.missing) and not self.error and not any(result.reason for result in self.kept)

    @property
    def missing_reasons(self) -> str:
        """Return which workers gave no trace, each with its reason: the first of them."""
        return listed([f"{result.worker} ({result.reason})" for result in self.missing])

    def raise_problem(self) -> None:
        """Raise CaptureError (or TfperfError if a trace could not be analyzed) unless all is well."""
        problems = [(result.reason, result.message) for result in self.captured if result.reason and result.message]
        if problems:
            messages = list(dict.fromkeys(message for _, message in problems))
            more = f"; and {counted(len(messages) - _MOST_TOLD, 'more worker')}" * (len(messages) > _MOST_TOLD)
            raise CaptureError(problems[0][0], "; ".join(messages[:_MOST_TOLD]) + more)
        if self.error:
            raise TfperfError(self.error)

    def _step_counts(self) -> dict[Path, int]:
        """Return the number of steps in each trace that can be read."""
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
    """Return the duration of the longest step whose start and end are in the trace, in seconds; 0 if there is none."""
    from tfperf.trace.steps.steps import END_ESTIMATED, PARTIAL

    steps = steps_of(trace)
    whole = [flag not in (PARTIAL, END_ESTIMATED) for flag in steps.flags]
    return float(steps.duration_ps[whole].max(initial=0)) / 1e12
