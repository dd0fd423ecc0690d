"""Limits on a profile: their parts, the named limits and figures, and bounds (`10%`, `50ms`).

The command line needs the named limits for its help, so this module has few imports.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from msgspec import Struct

from tfperf.base.errors import TfperfError
from tfperf.base.units import DURATIONS, SIZES, converted, did_you_mean, split_quantity

if TYPE_CHECKING:
    from tfperf.base.units import Unit
    from tfperf.trace.flaw import Parts

Relation = Literal["<", "<=", ">", ">="]
RELATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COMMAND_LINE = "command line"
"""Result of a limit; unknown: it could not be checked."""


class LimitError(TfperfError):
    """An invalid limit, or one that is always true or false; the message states the place and a fix (exit code 2)."""


class ConfigError(LimitError):
    """An invalid file of limits; the message states the file and the key."""


class Condition(Struct, frozen=True):
    """Selects rows of a table: `name~nccl`. `value` is text, or a number in the unit of the column."""

    column: str
    relation: Literal["~", "!~", "=", "!=", "<", "<=", ">", ">="]
    value: str | float


class Metric(Struct, frozen=True):
    """The measured value: a named figure (`table` is empty), or a column of a section's table.

    `function` is sum, max, min, mean, median, p95, count, or empty for a column, to check each row.
    """

    name: str
    table: str = ""
    function: str = ""
    conditions: tuple[Condition, ...] = ()
    cause: str = ""
    """Code of the figure's cause; empty for other figures."""


class Limit(Struct, frozen=True):
    """The condition `metric` `relation` `bound`; `text` is the user's input, `origin` the command line or a file."""

    text: str
    metric: Metric
    relation: Relation
    bound: float
    """In the unit of the metric: ms, us, % (0 to 100), bytes, count."""
    origin: str = COMMAND_LINE
    or_none: bool = False
    """Whether it also passes if no row is selected."""


class Figure(Struct, frozen=True, kw_only=True):
    """A figure that limits can name without a table; set by an option of `tfperf check`, or the same key in a file."""

    name: str
    title: str
    unit: Unit
    meaning: str
    option: str
    """The option without dashes. An option about causes can be repeated."""
    help: str
    measure: str = ""
    """`module:function`, called with a host and the metric; empty for comparisons of hosts."""
    sections: tuple[str, ...] = ("steps",)
    """Sections with its results; if they include steps, it is over averaged ones."""
    parts: Parts | None = frozenset()
    """Parts of a profile that it depends on, besides step detection; None: those that times depend on."""
    topic: str = "anything"
    """A key of `check.TOPICS`, which explains a breach."""
    relation: Relation = "<="
    bound: float | None = None
    """None: set by the user."""
    is_share: bool = False
    """Whether it is at most 100%."""
    functions: tuple[str, ...] = ()
    """Allowed functions, as in `p95(step_time)`."""
    of_cause: bool = False
    """Whether it refers to a cause, as in `cause_cost[compilation]`."""
    over_hosts: bool = False
    """Whether it is one value for all hosts; otherwise the worst host decides."""

    @property
    def example(self) -> str:
        """Return an example value of the option."""
        bound = EXAMPLES[self.unit] if self.bound is None else ""
        return "=".join(filter(None, ("compilation" * self.of_cause, bound)))

    @property
    def metavar(self) -> str:
        """Return the format of the option's value for the help."""
        return "=".join(["CODE"] * self.of_cause + ["LIMIT"] * (self.bound is None))


CAUSE = "cause"
"""The figure of `--fail-on`: true or false."""
REGRESSION = "regression"
"""The metric that compares with a baseline; it is not a figure of one profile."""
_FIGURES = (
    Figure(
        name="input_bound",
        title="Input-bound",
        unit="%",
        meaning="share of step time spent on input: waiting for input and copying batches to the device",
        option="max-input-bound",
        help="Maximum share of step time for input, for example 10%.",
        measure="tfperf.judge.measure:input_bound",
        parts=None,
        topic="input",
        is_share=True,
    ),
    Figure(
        name="step_time",
        title="Step time",
        unit="ms",
        meaning="step time: the mean, unless --stat or a function selects another statistic",
        option="max-step-time",
        help="Maximum step time, for example 50ms; --stat selects the statistic.",
        measure="tfperf.judge.measure:step_time",
        functions=("mean", "median", "p95", "max", "min"),
    ),
    Figure(
        name="wall_step_time",
        title="Wall time per step",
        unit="ms",
        meaning="wall time of training per step: from the first to the last step, including the time between steps, "
        "excluding the first steps and evaluation",
        option="max-wall-step-time",
        help="Maximum wall time per step, including the time between steps, for example 80ms.",
        measure="tfperf.judge.measure:wall_step_time",
        sections=("steps", "wall"),
    ),
    Figure(
        name="kernel_launch",
        title="Kernel launch",
        unit="%",
        meaning="share of step time spent on launching kernels",
        option="max-kernel-launch",
        help="Maximum share of step time for launching kernels.",
        measure="tfperf.judge.measure:share",
        parts=None,
        topic="launches",
        is_share=True,
    ),
    Figure(
        name="all_others",
        title="All others",
        unit="%",
        meaning="share of step time that no category covers: Python, I/O, idle",
        option="max-all-others",
        help="Maximum share of step time that no category covers (Python, I/O).",
        measure="tfperf.judge.measure:share",
        parts=None,
        topic="all_others",
        is_share=True,
    ),
    Figure(
        name="device_busy",
        title="Device busy",
        unit="%",
        meaning="share of step time in which the least busy device is busy (a TPU that waits for data is not busy)",
        option="min-device-busy",
        help="Minimum share of step time in which a device is busy (a TPU that waits for data is not busy).",
        measure="tfperf.judge.measure:device_busy",
        sections=("steps", "idle"),
        parts=frozenset({"device"}),
        topic="idle",
        relation=">=",
        is_share=True,
    ),
    Figure(
        name="memory",
        title="Peak memory",
        unit="bytes",
        meaning="peak bytes in use of the fullest allocator (a device allocator, if there are any)",
        option="max-memory",
        help="Maximum peak of an allocator, for example 10GiB.",
        measure="tfperf.judge.measure:memory",
        sections=("memory",),
        parts=frozenset({"memory"}),
        topic="memory",
    ),
    Figure(
        name="retraces",
        title="Number of retraces",
        unit="count",
        meaning="calls in the capture that retraced a tf.function, not counting its first tracing",
        option="max-retraces",
        help="Maximum number of calls that retrace a tf.function, for example 0.",
        measure="tfperf.judge.measure:retraces",
        sections=("functions",),
        parts=frozenset({"calls"}),
        topic="functions",
    ),
    *(
        Figure(
            name=f"latency_p{percent}",
            title=f"Latency p{percent}",
            unit="ms",
            meaning=f"latency that {percent}% of the requests do not exceed, of the slowest model or function",
            option=f"max-p{percent}",
            help=f"Maximum latency that {percent}% of the requests do not exceed, for example 20ms.",
            measure="tfperf.judge.measure:latency",
            sections=("requests",),
            parts=frozenset({"calls", "host", "device"}),
            topic="requests",
        )
        for percent in (50, 95, 99)
    ),
    Figure(
        name="skew",
        title="Skew",
        unit="%",
        meaning="step time of the slowest host / median of the hosts - 1",
        option="max-skew",
        help="Maximum slowdown of the slowest host relative to the median host.",
    ),
    Figure(
        name="straggler_loss",
        title="Straggler loss",
        unit="%",
        meaning="share of step time lost by waiting for the last host; 0 below 3 ms per step",
        option="max-straggler-loss",
        help="Maximum share of step time lost by waiting for the last host.",
        measure="tfperf.judge.measure:straggler_loss",
        sections=("steps", "hosts"),
        parts=None,
        is_share=True,
        over_hosts=True,
    ),
    Figure(
        name="input_cost",
        title="Input cost",
        unit="%",
        meaning="lower bound of the cost of input, as a share of step time: the low end of `input_cost_percent`",
        option="max-input-cost",
        help="Maximum cost of input, as a share of step time (low end of its range).",
        measure="tfperf.judge.measure:input_cost",
        sections=("steps", "diagnosis"),
        parts=None,
        topic="input",
        is_share=True,
        over_hosts=True,
    ),
    Figure(
        name="cause_cost",
        title="Cost of",
        unit="%",
        meaning="upper bound of the cost of a cause, as a share of step time; 0 if the diagnosis does not report it",
        option="max-cost",
        help="Maximum cost of a cause, as a share of step time (high end of its range; repeatable).",
        measure="tfperf.judge.measure:cause_cost",
        sections=("steps", "diagnosis"),
        parts=None,
        is_share=True,
        of_cause=True,
        over_hosts=True,
    ),
    Figure(
        name=CAUSE,
        title="Cause",
        unit="",
        meaning="whether the diagnosis reports a cause: 1 or 0",
        option="fail-on",
        help="Fail if the diagnosis reports this cause (repeatable).",
        bound=0.0,
        measure="tfperf.judge.measure:cause",
        sections=("steps", "diagnosis"),
        parts=None,
        of_cause=True,
        over_hosts=True,
    ),
)
FIGURES: Mapping[str, Figure] = {figure.name: figure for figure in _FIGURES}
NAMED: Mapping[str, Figure] = {figure.option: figure for figure in _FIGURES}
"""Option without dashes -> its figure."""


class NamedLimits(TypedDict, total=False):
    """The options of `NAMED`, and `max_regression`, as typed keywords of `tfperf.check`."""

    max_input_bound: str | float
    max_step_time: str | float
    max_wall_step_time: str | float
    max_kernel_launch: str | float
    max_all_others: str | float
    min_device_busy: str | float
    max_memory: str | float
    max_retraces: str | float
    max_p50: str | float
    max_p95: str | float
    max_p99: str | float
    max_skew: str | float
    max_straggler_loss: str | float
    max_input_cost: str | float
    max_cost: str | Sequence[str]
    fail_on: str | Sequence[str]
    max_regression: str | float


def named_limit(name: str, value: str, origin: str = COMMAND_LINE, *, place: str = "") -> Limit:
    """Return the limit of an option or key, such as `max-input-bound=10%`; raise LimitError with its `place`."""
    name, value = name.replace("_", "-"), value.strip()
    if name not in NAMED:
        raise LimitError(f"{origin}: unknown limit {quoted(name)}: {did_you_mean(name, NAMED)}")
    named, cause, text = NAMED[name], "", value
    try:
        if named.of_cause:
            cause, mark, text = (
                (part.strip() for part in value.partition("=")) if named.bound is None else (value, "", "")
            )
            check_cause(cause)
            if named.bound is None and not mark:
                raise ValueError(f"{cause} has no bound: use {cause}={EXAMPLES['%']}")
        bound = read_bound(text, named.unit, bare=False) if named.bound is None else named.bound
        check_bound(bound, named.unit, named.relation, is_share=named.is_share)
    except ValueError as error:
        raise LimitError(f"{place or f'{origin}: {name}'}: {error}") from None
    return Limit(f"{name} {value}", Metric(named.name, cause=cause), named.relation, bound, origin)


def named_limits(
    name: str, values: str | float | Sequence[str], origin: str = COMMAND_LINE, *, place: str = ""
) -> tuple[Limit, ...]:
    """Return the limits of an option or key; one about a cause can have several values. Raise LimitError."""
    several = [str(values)] if isinstance(values, (str, float, int)) else values
    named = NAMED.get(name.replace("_", "-"))
    if len(several) != 1 and named is not None and not named.of_cause:
        where = place or f"{origin}: {name.replace('_', '-')}"
        raise LimitError(f"{where}: takes one value, for example {named.example}")
    return tuple(named_limit(name, value, origin, place=place) for value in several)


def check_cause(code: str) -> None:
    """Raise ValueError for an unknown code."""
    from tfperf.sections.diagnosis.diagnose import NEEDS

    if "," in code and all(part.strip() in NEEDS for part in code.split(",")):
        raise ValueError(f"{quoted(code)} lists several causes: pass each in its own option or list item")
    if code not in NEEDS:
        known = did_you_mean(code, NEEDS) or f"the causes are {', '.join(NEEDS)}"
        raise ValueError(f"unknown cause {quoted(code)}: {known}")


def regression_tolerance(value: str, place: str = f"{COMMAND_LINE}: max-regression") -> float:
    """Return the value of `--max-regression` as a share: 5% is 0.05; raise LimitError with the place."""
    try:
        percent = read_bound(value, "%", bare=False)
    except ValueError as error:
        raise LimitError(f"{place}: {error}") from None
    # Decimal, so that 7% becomes the float nearest to 0.07.
    return float(Decimal(repr(percent)) / 100)


def merged(of_file: Sequence[Limit], of_command_line: Sequence[Limit]) -> tuple[Limit, ...]:
    """Return the limits of both; the command line replaces limits of the file with the same metric and direction."""
    replaced = {(limit.metric, limit.relation[0]) for limit in of_command_line}
    kept = (limit for limit in of_file if (limit.metric, limit.relation[0]) not in replaced)
    return (*kept, *of_command_line)


_LONGEST_QUOTE = 80
EXAMPLES: Mapping[Unit, str] = {
    "%": "10%",
    "ms": "50ms",
    "us": "500us",
    "ps": "500us",
    "bytes": "10GiB or 500MB",
    "count": "3",
    "": "3",
}
_USUAL: Mapping[str, str] = {"ms": "ms", "us": "us", "ps": "us", "bytes": "MB"}
_FACTORS: Mapping[str, Mapping[str, int]] = {
    "bytes": SIZES,
    "%": {"%": 1},
    **dict.fromkeys(("ms", "us", "ps"), DURATIONS),
}


def read_bound(text: str, unit: Unit, *, bare: bool, signed: bool = False) -> float:
    """Parse a number in `unit`, which `bare` makes optional; `signed` allows a minus sign. Raise ValueError."""
    text = text.strip()
    negative = text.startswith("-")
    quantity = split_quantity(text[1:] if negative else text)
    if quantity is None:
        raise ValueError(f"{quoted(text)} is not a number: use {EXAMPLES[unit]}")
    if negative and not signed:
        raise ValueError(f"{quoted(text)} is negative, but the value never is: use {EXAMPLES[unit]}")
    value = _in_unit(text, *quantity, unit=unit, bare=bare)
    return -value if negative else value


def _in_unit(text: str, number: Decimal, mark: str, *, unit: Unit, bare: bool) -> float:
    factors = _FACTORS.get(unit, {})
    if mark not in {"", "%", *DURATIONS, *SIZES}:
        raise ValueError(f"{mark!r} in {quoted(text)} is not a unit: use {EXAMPLES[unit]}")
    if unit == "%" and not mark and 0 < number < 1:
        percent = format((100 * number).normalize(), "f")
        raise ValueError(f"{text!r} may mean {percent}% or {text}%: add the unit")
    if not mark and (bare or unit in ("%", "count", "")):
        return float(number)
    if not mark:
        raise ValueError(f"{quoted(text)} has no unit: use {number}{_USUAL[unit]}")
    if mark not in factors:
        kind = {"%": "a percentage", "count": "a count", "": "a plain number"}.get(unit, f"in {unit}")
        raise ValueError(f"{quoted(text)} has the wrong unit: the value is {kind}, for example {EXAMPLES[unit]}")
    value = converted(number, factors[mark], factors.get(unit, 1))
    if not math.isfinite(value):
        raise ValueError(f"{quoted(text)} is too large")
    return value


def check_bound(value: float, unit: Unit, relation: str, *, is_share: bool) -> None:
    """Raise ValueError for a bound that all values satisfy, or no value does; a share is at most 100%."""
    if is_share and value > 100:
        verdict = "never be breached" if relation.startswith("<") else "never pass"
        raise ValueError(f"a share is at most 100%, so {value:g}% could {verdict}")
    if not value and unit in ("ms", "bytes"):
        raise ValueError(f"a bound of 0 is not possible here: use {'50ms' if unit == 'ms' else '10GiB'}")


def bound_text(value: float, unit: Unit) -> str:
    """Format a bound for `read_bound`."""
    number = format(Decimal(repr(value)), "f")
    marks: Mapping[Unit, str] = {"%": "%", "ms": "ms", "us": "us", "bytes": "B"}
    return number.removesuffix(".0") + marks.get(unit, "")


def quoted(text: str) -> str:
    """Quote user input in messages, shortened if it is long."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")
