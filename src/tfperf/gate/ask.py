"""Asking the gate: with limits in words (`tfperf.check`), or with those of files and options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfperf.compare.baseline_file import read_baseline
from tfperf.gate.check import MAX_REGRESSION, MIN_STEPS, check
from tfperf.gate.config import CheckConfig
from tfperf.gate.errors import LimitError
from tfperf.gate.limits import named_limit, parse_limit, regression_tolerance
from tfperf.session import Trace, load

if TYPE_CHECKING:
    from tfperf.compare.bootstrap import StepStatistic
    from tfperf.gate.model import Outcome

_ORIGIN = "tfperf.check"


def check_profile(
    profile: Trace | str | Path, *, limits: Sequence[str] = (), stat: StepStatistic = "mean", skip_first: int = 0,
    min_steps: int = MIN_STEPS, baseline: str | Path | Sequence[str | Path] = (), max_regression: str = "5%",
    **named: str | float,
) -> Outcome:  # fmt: skip
    """Judge a profile by limits, in the words of `tfperf check`.

    `named` are its options (`max_input_bound="10%"`), `limits` what is written after `--limit`, `baseline` the path of
    a file of `tfperf analyze --save-baseline`, or several. What cannot be judged is no error but an outcome:
    `exit_code` is 0 if all limits hold, 3 if one is breached, 1 if it cannot be told. Raises LimitError for a limit
    that cannot be read or if there is none, and what `tfperf.load` raises.
    """
    wanted = [named_limit(name, str(value), _ORIGIN) for name, value in named.items()]
    wanted += [parse_limit(text, _ORIGIN) for text in limits]
    tolerance = regression_tolerance(max_regression, _ORIGIN)
    files = [baseline] if isinstance(baseline, (str, Path)) else baseline
    if not wanted and not files:
        raise LimitError('no limit is given; name one, as in max_input_bound="10%"')
    trace = profile if isinstance(profile, Trace) else load(profile)
    return check_configured(
        trace, CheckConfig(Path(), tuple(wanted), stat, skip_first, min_steps, tuple(map(Path, files)), tolerance)
    )  # fmt: skip


def check_configured(trace: Trace, wanted: CheckConfig) -> Outcome:
    """Judge a profile as a configuration says; what is not set has its default."""
    before = [read_baseline(path) for path in wanted.baseline or ()]
    # Not `or`: 0 is a setting.
    least = MIN_STEPS if wanted.min_steps is None else wanted.min_steps
    allowed = MAX_REGRESSION if wanted.max_regression is None else wanted.max_regression
    return check(
        trace, wanted.limits, stat=wanted.stat or "mean", skip_first=wanted.skip_first or 0, min_steps=least,
        baselines=before, max_regression=allowed if before else None,
    )  # fmt: skip
