"""Limits on a profile: their parts, the named ones, their bounds (`10%`, `50ms`), and the figures that have names.

The command line needs the named limits for its help, so this imports next to nothing.
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
Status = Literal["pass", "breach", "unknown"]
"""Of a limit; unknown: it could not be judged."""


class LimitError(TfperfError):
    """A limit cannot be read, or could never tell anything; the message says where, and what to try (exit code 2)."""


class ConfigError(LimitError):
    """A file of limits cannot be read; the message names the file and the key."""


class Condition(Struct, frozen=True):
    """Keeps rows of a table: `name~nccl`. `value` is text, or a number in the unit of the column."""

    column: str
    relation: Literal["~", "!~", "=", "!=", "<", "<=", ">", ">="]
    value: str | float


class Metric(Struct, frozen=True):
    """What is measured: a named figure (`table` is empty), or a column of a table of a section.

    `function` is one of sum, max, min, mean, median, p95, count; empty for a column: each row by itself.
    """

    name: str
    table: str = ""
    function: str = ""
    conditions: tuple[Condition, ...] = ()
    cause: str = ""
    """Code of the cause that the figure is about; empty for other figures."""


class Limit(Struct, frozen=True):
    """`metric` `relation` `bound` must hold. `text` is how the user wrote it, `origin` where (command line, a file)."""

    text: str
    metric: Metric
    relation: Relation
    bound: float
    """In the unit of what is measured: ms, us, % (0 to 100), bytes, count."""
    origin: str = COMMAND_LINE
    or_none: bool = False
    """Whether it holds too where no row is chosen."""


class Figure(Struct, frozen=True, kw_only=True):
    """A figure that a limit can name without a table: all that tfperf knows of it.

    An option of `tfperf check`, which is also a key of a file, limits it.
    """

    name: str
    title: str
    unit: Unit
    meaning: str
    option: str
    """The option without its dashes. One about a cause can be given several times."""
    help: str
    measure: str = ""
    """`module:function` that measures it, called with a host and the metric; empty for what compares hosts."""
    sections: tuple[str, ...] = ("steps",)
    """The sections whose results it is taken from; with steps, it rests on averaged ones."""
    parts: Parts | None = frozenset()
    """The parts of a profile that it rests on, besides those that show its steps; None: those that times rest on."""
    topic: str = "anything"
    """What explains a breach: see `check.TOPICS`."""
    relation: Relation = "<="
    bound: float | None = None
    """None: the user gives it."""
    is_share: bool = False
    """Whether it is at most 100 %."""
    functions: tuple[str, ...] = ()
    """What can be taken of it, as in `p95(step_time)`."""
    of_cause: bool = False
    """Whether it is about one cause of the diagnosis, as in `cause_cost[compilation]`."""
    over_hosts: bool = False
    """Whether it is one number over all hosts; otherwise the worst host decides."""

    @property
    def example(self) -> str:
        """Return a value of the option as one may write it."""
        bound = EXAMPLES[self.unit] if self.bound is None else ""
        return "=".join(filter(None, ("compilation" * self.of_cause, bound)))

    @property
    def metavar(self) -> str:
        """Return what a value of the option consists of, as help shows it."""
        return "=".join(["CODE"] * self.of_cause + ["LIMIT"] * (self.bound is None))


CAUSE = "cause"
"""The figure of `--fail-on`, which is yes or no."""
REGRESSION = "regression"
"""The name of the metric that compares with a baseline; it is not a figure of one profile."""
_FIGURES = (
    Figure(
        name="input_bound",
        title="Input-bound",
        unit="%",
        meaning="share of the step time that goes to input: waiting for tf.data, and copying batches in",
        option="max-input-bound",
        help="Largest share of the step time for input, for example 10%.",
        measure="tfperf.judge.measure:input_bound",
        parts=None,
        topic="input",
        is_share=True,
    ),
    Figure(
        name="step_time",
        title="Step time",
        unit="ms",
        meaning="step time: the mean unless --stat or a function says otherwise",
        option="max-step-time",
        help="Longest step time, for example 50ms; --stat chooses the statistic.",
        measure="tfperf.judge.measure:step_time",
        functions=("mean", "median", "p95", "max", "min"),
    ),
    Figure(
        name="wall_step_time",
        title="Wall time per step",
        unit="ms",
        meaning="wall time of training per step: from the first step to the last one, with what is between them, and "
        "without evaluation",
        option="max-wall-step-time",
        help="Longest wall time per step, with the time between steps, for example 80ms.",
        measure="tfperf.judge.measure:wall_step_time",
        sections=("steps", "wall"),
    ),
    Figure(
        name="kernel_launch",
        title="Kernel launch",
        unit="%",
        meaning="share of the step time that goes to launching kernels",
        option="max-kernel-launch",
        help="Largest share of the step time for launching kernels.",
        measure="tfperf.judge.measure:share",
        parts=None,
        topic="launches",
        is_share=True,
    ),
    Figure(
        name="all_others",
        title="All others",
        unit="%",
        meaning="share of the step time that is in no category: Python, I/O, idle",
        option="max-all-others",
        help="Largest share of the step time in no category (Python, I/O).",
        measure="tfperf.judge.measure:share",
        parts=None,
        topic="all_others",
        is_share=True,
    ),
    Figure(
        name="device_busy",
        title="Device busy",
        unit="%",
        meaning="share of the step time in which the least busy device works (a TPU that waits for data does not)",
        option="min-device-busy",
        help="Smallest share of the step time in which a device works (a TPU that waits for data does not).",
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
        meaning="bytes in use at the peak of the fullest allocator (of devices, if there are any)",
        option="max-memory",
        help="Largest peak of an allocator, for example 10GiB.",
        measure="tfperf.judge.measure:memory",
        sections=("memory",),
        parts=frozenset({"memory"}),
        topic="memory",
    ),
    Figure(
        name="retraces",
        title="Retraces",
        unit="count",
        meaning="calls in the capture that traced a tf.function again, beyond its first tracing",
        option="max-retraces",
        help="Most calls that trace a tf.function again, for example 0.",
        measure="tfperf.judge.measure:retraces",
        sections=("functions",),
        parts=frozenset({"calls"}),
        topic="functions",
    ),
    Figure(
        name="skew",
        title="Skew",
        unit="%",
        meaning="step time of the slowest host / median of the hosts - 1",
        option="max-skew",
        help="How much slower than the median host the slowest may be.",
    ),
    Figure(
        name="straggler_loss",
        title="Straggler loss",
        unit="%",
        meaning="share of the step time that is lost because hosts wait for the last one; 0 below 3 ms per step",
        option="max-straggler-loss",
        help="Largest share of the step time that is lost because hosts wait for the last one.",
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
        meaning="what input costs of the step time, at least: the low end of `input_cost_percent`",
        option="max-input-cost",
        help="Largest share of the step time that input costs: the low end of its range counts.",
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
        meaning="what a cause of the diagnosis costs of the step time, at most; 0 where it is not named",
        option="max-cost",
        help="Largest share of the step time that a cause costs: the high end counts (repeatable).",
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
        meaning="whether the diagnosis names a cause: 1 or 0",
        option="fail-on",
        help="A cause that the diagnosis must not name (repeatable).",
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
"""Option without its dashes -> the figure that it limits."""


class NamedLimits(TypedDict, total=False):
    """The options of `NAMED`, and `max_regression`, as keywords of `tfperf.check`, so that type checkers know them."""

    max_input_bound: str | float
    max_step_time: str | float
    max_wall_step_time: str | float
    max_kernel_launch: str | float
    max_all_others: str | float
    min_device_busy: str | float
    max_memory: str | float
    max_retraces: str | float
    max_skew: str | float
    max_straggler_loss: str | float
    max_input_cost: str | float
    max_cost: str | Sequence[str]
    fail_on: str | Sequence[str]
    max_regression: str | float


def named_limit(name: str, value: str, origin: str = COMMAND_LINE, *, place: str = "") -> Limit:
    """Return the limit that an option or key sets, such as `max-input-bound` and `10%`.

    `place` is where messages say it was given, by default the origin with the name. Raises LimitError.
    """
    name, value = name.replace("_", "-"), value.strip()
    if name not in NAMED:
        raise LimitError(f"{origin}: there is no limit {quoted(name)}: {did_you_mean(name, NAMED)}")
    named, cause, text = NAMED[name], "", value
    try:
        if named.of_cause:
            cause, mark, text = (
                (part.strip() for part in value.partition("=")) if named.bound is None else (value, "", "")
            )
            check_cause(cause)
            if named.bound is None and not mark:
                raise ValueError(f"{cause} has no bound: write {cause}={EXAMPLES['%']}")
        bound = read_bound(text, named.unit, bare=False) if named.bound is None else named.bound
        check_bound(bound, named.unit, named.relation, is_share=named.is_share)
    except ValueError as error:
        raise LimitError(f"{place or f'{origin}: {name}'}: {error}") from None
    return Limit(f"{name} {value}", Metric(named.name, cause=cause), named.relation, bound, origin)


def named_limits(
    name: str, values: str | float | Sequence[str], origin: str = COMMAND_LINE, *, place: str = ""
) -> tuple[Limit, ...]:
    """Return the limits that an option or key sets: one about a cause may have several values. Raises LimitError."""
    several = [str(values)] if isinstance(values, (str, float, int)) else values
    named = NAMED.get(name.replace("_", "-"))
    if len(several) != 1 and named is not None and not named.of_cause:
        where = place or f"{origin}: {name.replace('_', '-')}"
        raise LimitError(f"{where}: it takes one value, such as {named.example}")
    return tuple(named_limit(name, value, origin, place=place) for value in several)


def check_cause(code: str) -> None:
    """Raise ValueError for a code that is of no cause."""
    from tfperf.sections.diagnosis.diagnose import NEEDS

    if "," in code and all(part.strip() in NEEDS for part in code.split(",")):
        raise ValueError(f"{quoted(code)} is several causes: give each by itself, in an option or an item of its own")
    if code not in NEEDS:
        known = did_you_mean(code, NEEDS) or f"the causes are {', '.join(NEEDS)}"
        raise ValueError(f"there is no cause {quoted(code)}: {known}")


def regression_tolerance(value: str, place: str = f"{COMMAND_LINE}: max-regression") -> float:
    """Return the value of `--max-regression`, given at this place, as a share: 5% is 0.05. Raises LimitError."""
    try:
        percent = read_bound(value, "%", bare=False)
    except ValueError as error:
        raise LimitError(f"{place}: {error}") from None
    # In decimal digits, so that 7 % is the float nearest to 0.07.
    return float(Decimal(repr(percent)) / 100)


def merged(of_file: Sequence[Limit], of_command_line: Sequence[Limit]) -> tuple[Limit, ...]:
    """Return the limits of a file and of the command line, which replace those of the file on the same figure.

    The same figure is the same metric in the same direction; every limit of the command line stays.
    """
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
_FACTORS: Mapping[str, Mapping[str, int]] = {
    "bytes": SIZES,
    "%": {"%": 1},
    **dict.fromkeys(("ms", "us", "ps"), DURATIONS),
}


def read_bound(text: str, unit: Unit, *, bare: bool, signed: bool = False) -> float:
    """Return the number in a text, in `unit`.

    `bare` allows a number without its unit, `signed` a minus sign. Raises ValueError, which says what is wrong.
    """
    text = text.strip()
    negative = text.startswith("-")
    quantity = split_quantity(text[1:] if negative else text)
    if quantity is None:
        raise ValueError(f"{quoted(text)} is not a number: write {EXAMPLES[unit]}")
    if negative and not signed:
        raise ValueError(f"{quoted(text)} is negative, which the value never is: write {EXAMPLES[unit]}")
    value = _in_unit(text, *quantity, unit=unit, bare=bare)
    return -value if negative else value


def _in_unit(text: str, number: Decimal, mark: str, *, unit: Unit, bare: bool) -> float:
    factors = _FACTORS.get(unit, {})
    if mark not in {"", "%", *DURATIONS, *SIZES}:
        raise ValueError(f"{mark!r} in {quoted(text)} is not a unit: write {EXAMPLES[unit]}")
    if unit == "%" and not mark and 0 < number < 1:
        percent = format((100 * number).normalize(), "f")
        raise ValueError(f"{text!r} may mean {percent}% or {text}%: add the unit")
    if not mark and (bare or unit in ("%", "count", "")):
        return float(number)
    if not mark:
        raise ValueError(f"{quoted(text)} has no unit: write {EXAMPLES[unit]}")
    if mark not in factors:
        kind = {"%": "a percentage", "count": "a count", "": "a plain number"}.get(unit, f"in {unit}")
        raise ValueError(f"{quoted(text)} has the wrong unit: the value is {kind}, for example {EXAMPLES[unit]}")
    value = converted(number, factors[mark], factors.get(unit, 1))
    if not math.isfinite(value):
        raise ValueError(f"{quoted(text)} is too large")
    return value


def check_bound(value: float, unit: Unit, relation: str, *, is_share: bool) -> None:
    """Raise ValueError for a bound that every value of a figure holds, or none; a share is at most 100 %."""
    if is_share and value > 100:
        verdict = "never be breached" if relation.startswith("<") else "never hold"
        raise ValueError(f"a share is at most 100%, so {value:g}% could {verdict}")
    if not value and unit in ("ms", "bytes"):
        raise ValueError(f"a bound of 0 has no meaning here: write {'50ms' if unit == 'ms' else '10GiB'}")


def bound_text(value: float, unit: Unit) -> str:
    """Return a bound as `read_bound` takes it."""
    number = format(Decimal(repr(value)), "f")
    marks: Mapping[Unit, str] = {"%": "%", "ms": "ms", "us": "us", "bytes": "B"}
    return number.removesuffix(".0") + marks.get(unit, "")


def quoted(text: str) -> str:
    """Return what a user wrote as messages quote it: cut if it is long."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}...")
