"""The pytest plugin: `tfperf_profile` profiles a block of a test and returns figures of the profile.

    def test_that_input_keeps_up(tfperf_profile):
        with tfperf_profile() as p:
            train()
        assert p.input_bound < 0.10

pytest loads this module in every project with tfperf. So it imports only pytest and the standard library at its top,
and its failures affect only tests that use the fixture.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pytest
from msgspec import Struct

from tfperf.base.errors import TfperfError

if TYPE_CHECKING:
    from pluggy import Result
    from typing_extensions import Unpack

    from tfperf.analysis.load import Analysis
    from tfperf.capture.local import profile
    from tfperf.judge.limits import NamedLimits
    from tfperf.judge.outcome import Outcome
    from tfperf.judge.regression import StepStatistic

__all__ = ["FigureError", "Profiled", "tfperf_profile"]

__tracebackhide__ = True
"""Tracebacks of tests omit the frames of this module."""

_PROFILES: WeakKeyDictionary[pytest.Item, list[Profiled]] = WeakKeyDictionary()
"""The profiles of each test; not in the test's `stash`, which old versions of pytest do not have."""


class FigureError(TfperfError):
    """A figure is not available: the block has not ended, nothing was profiled, or the profile does not contain it."""


class _Reading(Struct, frozen=True):
    """Options for reading the profile, as in `tfperf check`."""

    skip_first: int
    min_steps: int
    step_marker: str | None
    allow_doubt: bool


class Profiled:
    """The object of `with tfperf_profile() as p:`, with figures of the profile after the block.

    Figures are those that `tfperf check` judges: whole steps after the first `skip_first`, on the worst host. An
    unknown figure raises FigureError, because None would compare as a number, or fail without a reason.
    """

    def __init__(self, logdir: Path, levels: dict[str, Any], reading: _Reading) -> None:
        self._logdir, self._levels, self._reading = logdir, levels, reading
        self._session: profile | None = None
        self._analysis: Analysis | None = None
        self._missing = (
            "nothing is profiled yet: figures are available after the block of `with tfperf_profile() as p:`"
        )
        self.path: Path | None = None
        """The trace file after the block; None if there is none."""

    def __repr__(self) -> str:
        return f"<tfperf profile {self.path or self._logdir}>"

    def __enter__(self) -> Profiled:
        from tfperf.capture.local import profile

        if self._session is not None:
            raise FigureError("this profile is already complete; call tfperf_profile() again for another one")
        session = profile(self._logdir, **self._levels)
        session.__enter__()
        self._session = session
        self._missing = "the block has not ended: figures are available after it"
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        assert self._session is not None
        # The test must show the error of the block, even if warnings are errors.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._missing = "profiling ended without a profile"
            self._session.__exit__(kind, error, trace)
        messages = [str(warning.message) for warning in caught]
        captured = self._session.result
        self.path = captured.path if captured else None
        reason = captured.message if captured else "".join(messages[-1:])
        self._missing = reason or "the block itself stopped profiling"
        if error is None:
            for message in messages:
                warnings.warn(message, RuntimeWarning, stacklevel=2)

    @property
    def analysis(self) -> Analysis:
        """The profile with all steps, as `tfperf.load` returns it. Raises FigureError if there is none."""
        from tfperf.analysis.load import load

        if self.path is None:
            raise FigureError(f"no profile was recorded: {self._missing}")
        if self._analysis is None:
            self._analysis = load(self.path, step_marker=self._reading.step_marker)
        return self._analysis

    @property
    def input_bound(self) -> float:
        """Share of the step time spent on input, 0 to 1."""
        return self._figure("input_bound") / 100

    @property
    def kernel_launch(self) -> float:
        """Share of the step time spent on preparing and launching kernels, 0 to 1."""
        return self._figure("kernel_launch") / 100

    @property
    def all_others(self) -> float:
        """Share of the step time in no other category, 0 to 1."""
        return self._figure("all_others") / 100

    @property
    def device_busy(self) -> float:
        """Share of the step time in which the least busy device computes or copies, 0 to 1."""
        return self._figure("device_busy") / 100

    @property
    def input_cost(self) -> float:
        """Share of the step time that input costs, 0 to 1: the low end of its range, as in `--max-input-cost`."""
        return self._figure("input_cost") / 100

    def cause_cost(self, code: str) -> float:
        """Return the high end of a cause's share of the step time, 0 to 1, as in `--max-cost`; 0 if not reported."""
        from tfperf.judge.limits import check_cause

        try:
            check_cause(code)
        except ValueError as error:
            raise FigureError(str(error)) from None
        return self._figure("cause_cost", cause=code) / 100

    @property
    def step_time_ms(self) -> float:
        """Mean step time, in milliseconds."""
        return self.step_time("mean")

    def step_time(self, stat: StepStatistic = "mean") -> float:
        """Return the step time in milliseconds: its "mean", "median" or "p95"."""
        from tfperf.judge.regression import STATISTICS

        if stat not in STATISTICS:
            raise FigureError(f"{stat!r} is not a statistic of step times: use mean, median or p95")
        return self._figure("step_time", stat)

    @property
    def retraces(self) -> int:
        """Number of retraces of tf.functions, as in `tfperf check --max-retraces`."""
        return int(self._figure("retraces"))

    @property
    def memory_bytes(self) -> int:
        """Peak bytes in use of the allocator with the highest use."""
        return int(self._figure("memory"))

    def report(self, sections: Sequence[str] = ("diagnosis", "overview")) -> str:
        """Return the report as text of 80 columns, without color; `sections` are as in `tfperf analyze -s`."""
        from tfperf.judge.summarize import whole_steps
        from tfperf.report.render import RenderOptions, render

        skipped = self._reading.skip_first
        analysis = whole_steps(self.analysis, skipped) if skipped else self.analysis
        return render(analysis.report(sections), "table", RenderOptions(view="sections"))

    def check(
        self,
        *,
        limits: Sequence[str] = (),
        stat: StepStatistic = "mean",
        by_kind: str | None = None,
        baseline: str | Path | Sequence[str | Path] = (),
        **named: Unpack[NamedLimits],
    ) -> Outcome:
        """Assert that limits hold, as in `tfperf check`: `p.check(max_input_bound="10%", limits=["..."])`.

        `limits` are written as for `--limit`; `by_kind` is the kind of steps to judge; `baseline` is one or more files
        of `tfperf analyze --save-baseline`. Raises AssertionError with the table of limits if one is breached or cannot
        be judged, FigureError without a profile, LimitError without limits or for an invalid one.
        """
        from tfperf.judge.check import check_profile
        from tfperf.judge.outcome import check_report
        from tfperf.report.render import render

        reading = self._reading
        outcome = check_profile(
            self.analysis,
            limits=limits,
            stat=stat,
            skip_first=reading.skip_first,
            min_steps=reading.min_steps,
            by_kind=by_kind,
            allow_doubt=reading.allow_doubt,
            baseline=baseline,
            **named,
        )
        if outcome.exit_code:
            raise AssertionError(f"tfperf check:\n{render(check_report(outcome), 'table')}")
        return outcome

    def _figure(self, name: str, stat: StepStatistic = "mean", cause: str = "") -> float:
        """Measure a figure, in percent, ms or bytes."""
        from tfperf.judge.check import check
        from tfperf.judge.config import CheckConfig
        from tfperf.judge.limits import Limit, Metric

        # A limit that always holds: it makes the figure unknown if a host cannot be judged.
        limit = Limit(name, Metric(name, cause=cause), "<=", float("inf"), "tfperf_profile")
        reading = self._reading
        config = CheckConfig(
            limits=(limit,),
            stat=stat,
            skip_first=reading.skip_first,
            min_steps=reading.min_steps,
            allow_doubt=reading.allow_doubt,
        )
        judged = check(self.analysis, config).judged[0]
        if judged.status == "unknown" or judged.measured is None:
            raise FigureError(f"{judged.title} is unknown: {judged.why}")
        return judged.measured


@pytest.fixture
def tfperf_profile(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Profiled]]:
    """Profile a block of this test: `with tfperf_profile() as p: train()`.

    Then use `p.input_bound`, `p.step_time_ms`, `p.retraces`, `p.check(max_input_bound="10%")` and so on. If the test
    fails, its failure text contains the report. The profile is kept below `tmp_path`, or in `logdir`.
    """
    taken = _PROFILES[request.node] = []

    def start(
        logdir: str | Path | None = None,
        *,
        skip_first: int = 0,
        min_steps: int = 3,
        step_marker: str | None = None,
        allow_doubt: bool = False,
        **levels: int,
    ) -> Profiled:
        """Return the context manager.

        `skip_first` steps are omitted; figures need at least `min_steps`; `step_marker` names the step events;
        `allow_doubt` permits doubtful figures, as in `tfperf check`; `levels` are those of `tfperf.profile`.
        """
        place = tmp_path if logdir is None else Path(logdir)
        taken.append(Profiled(place, levels, _Reading(skip_first, min_steps, step_marker, allow_doubt)))
        return taken[-1]

    yield start
    # Test items live until the end of the run, and profiles are large. Failures are reported by now.
    _PROFILES.pop(request.node, None)


# The old kind of wrapper, which every version of pytest supports.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Result[Any], None]:
    """Add the reports of a test's profiles to its failure text."""
    outcome = yield
    taken = _PROFILES.get(item, [])
    report = outcome.get_result()
    if report.failed:
        for number, profiled in enumerate(taken, start=1):
            which = f" {number} of {len(taken)}" if len(taken) > 1 else ""
            report.sections.append((f"tfperf profile{which}", _failure_text(profiled)))


def _failure_text(profiled: Profiled) -> str:
    try:
        place = f"Profile kept: {profiled.path}\n" if profiled.path else ""
        return f"{place}{profiled.report()}"
    except TfperfError as error:
        return f"{place}No report: {error}\n"
    except Exception as error:  # The failure of the test must be reported even if the report fails.
        return f"{place}No report: {type(error).__name__}: {error}\n"
