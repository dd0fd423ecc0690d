"""The stacks of a run as they are asked for: ops of host threads and of devices, or functions of Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tfperf.base.arrays import MOST
from tfperf.base.errors import TfperfError
from tfperf.base.units import Unit, format_percent
from tfperf.export.flamegraph.question import Question
from tfperf.export.flamegraph.work import WorkSum, work_sums
from tfperf.report.flame_tree import FlameScale, Stack
from tfperf.sections.ops.analysis import OpKey
from tfperf.sections.ops.groups import added_up, common_keys, stacker
from tfperf.sections.ops.sums import OpOfFunction, OpSums, Sums

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.sections.python.analysis import PythonStack, PythonStacks

Place = Literal["host", "device", "python"]
_TITLES: Mapping[Place, str] = {"host": "Host", "device": "Device", "python": "Python"}
_OF_OPS = {"self-time": "op time", "calls": "op calls", "bytes": "bytes of ops", "flops": "operations of ops"}
_OF_PYTHON = {"self-time": "time", "calls": "calls"}
_NAMES = {"scope": "name scope", "layer": "layer", "python": "stack of functions", "function": "function"}
_UNITS: Mapping[str, tuple[Unit, int]] = {
    "self-time": ("ms", 1_000_000_000),
    "calls": ("count", 1_000_000),
    "bytes": ("bytes", 1),
    "flops": ("count", 1),
}
"""The unit in which a value is shown, and how many of what is added up are one: time in picoseconds, and millionths of
calls, of which an average step has any number."""
_TRY = "try --per capture"
_FOLDED = "({})"
"""What stands for functions of a package that call each other."""


class Side(Struct, frozen=True, kw_only=True):
    """Stacks of one place with whole numbers, to be read by `scale`; `gaps` say what is not known."""

    place: Place
    title: str
    scale: FlameScale
    stacks: dict[Stack, int]
    gaps: tuple[str, ...] = ()


def step_count(results: Results, question: Question) -> int:
    """Return how many steps count, those of all hosts together."""
    counted: OpSums | PythonStacks = results["python_stacks" if question.by == "python" else "op_sums"]
    return counted.step_count


def answer(results: Results, question: Question, *, per_step: bool) -> tuple[Side, ...]:
    """Return what was asked for, one part for each place that has any of it. Raises TfperfError if none has."""
    if per_step and not step_count(results, question):
        raise TfperfError(f"no step counts, so nothing can be averaged over steps: {_TRY}, or --step-marker")
    if question.by == "python":
        return (_python_side(results["python_stacks"], question, per_step=per_step),)
    if question.value in ("bytes", "flops"):
        sides = _work_sides(results, question, per_step=per_step)
    else:
        sides = _op_sides(results["op_sums"], question, per_step=per_step)
    found = tuple(side for side in sides if sum(side.stacks.values()))
    if not found:
        raise TfperfError(_nothing(results, question))
    return found


def _nothing(results: Results, question: Question) -> str:
    if question.on == "device" and not results.has_device:
        return "no device recorded anything in this profile, so there is no flame graph of devices: try --on host"
    if question.value in ("bytes", "flops"):
        return (
            f"no op of this profile has known {question.value}, which takes programs of XLA or shapes of inputs: try "
            "--value self-time"
        )
    return "the profile has no ops where they were looked for: try --on all, or tfperf analyze for what it holds"


def _side(place: Place, question: Question, stacks: Mapping[Stack, int], gaps: tuple[str, ...] = ()) -> Side:
    unit, divisor = _UNITS[question.value]
    what = (_OF_PYTHON if place == "python" else _OF_OPS)[question.value]
    return Side(
        place=place,
        title=f"{_TITLES[place]} {what} by {_NAMES[question.by]}",
        scale=FlameScale(unit=unit, divisor=divisor, separator="/" if question.by == "scope" else ""),
        stacks={stack: min(value, MOST) for stack, value in stacks.items() if value > 0},
        gaps=gaps,
    )


def _places(question: Question) -> Iterator[Literal["host", "device"]]:
    for place in ("device", "host"):
        if question.on in ("all", place):
            yield place


# --- ops ---


def _op_sides(sums: OpSums, question: Question, *, per_step: bool) -> Iterator[Side]:
    for place in _places(question):
        of_place: Sums = getattr(sums, place)
        values = dict(zip(of_place, _op_values(of_place, question, sums.step_count * per_step), strict=True))
        gaps = _uncounted(of_place) if question.value == "calls" else ()
        yield _side(place, question, _stacked(values, question), gaps)


def _op_values(sums: Sums, question: Question, steps: int) -> Iterator[int]:
    """Iterate over the values of the sums: of the capture, or of an average step where there are `steps`."""
    scale = _UNITS["calls"][1]
    for value in sums.values():
        if question.value == "calls":
            yield round(scale * (value.step_calls / steps if steps else value.calls))
        else:
            yield round(value.step_self_ps / steps) if steps else value.self_ps


def _uncounted(sums: Sums) -> tuple[str, ...]:
    ops = {key.op for key in sums}
    uncounted = {key.op for key, value in sums.items() if value.counts_kernels}
    if not uncounted:
        return ()
    return (f"Of {len(uncounted):,} of {len(ops):,} ops the trace does not show runs: their kernels and copies count.",)


def _stacked(values: Mapping[OpOfFunction, int], question: Question) -> dict[Stack, int]:
    """Return the values by stack; what repeats in layers and replicas is one, if that is asked for."""
    keys = list(dict.fromkeys(key.op for key in values))
    common = dict(zip(keys, common_keys(keys) if question.merge_layers else keys, strict=True))
    stack_of = stacker(list(common.values()), "layer" if question.by == "layer" else "scope")
    known: dict[OpKey, Stack] = {key: stack_of(common[key]) for key in keys}
    if question.by == "function":
        return added_up(((key.function, *known[key.op]), value) for key, value in values.items())
    return added_up((known[key.op], value) for key, value in values.items())


# --- bytes and operations ---


def _work_sides(results: Results, question: Question, *, per_step: bool) -> Iterator[Side]:
    steps = results["op_sums"].step_count if per_step else 0
    for place in _places(question):
        work = work_sums(results, place, "flops" if question.value == "flops" else "bytes")
        if steps and work.rows and not work.knows_steps:
            raise TfperfError(
                f"{question.value} of what XLA compiled for the host are known of the whole capture only: {_TRY}"
            )
        values: dict[OpOfFunction, int] = {}
        for row in work.rows:
            amount = round(row.in_steps / steps if steps else row.in_capture)
            values[row.key] = values.get(row.key, 0) + amount
        yield _side(place, question, _stacked(values, question), _unknown_work(work, question, place))


def _unknown_work(work: WorkSum, question: Question, place: str) -> tuple[str, ...]:
    if work.known_percent is None or work.known_percent >= 100.0:
        return ()
    share = format_percent(work.known_percent)
    return (
        f"The {question.value} are those of ops with {share}% of the time of the {place}; of others, none are known.",
    )


# --- Python ---


def _python_side(stacks: PythonStacks, question: Question, *, per_step: bool) -> Side:
    if not stacks.sums:
        from tfperf.sections.python.section import NO_FRAMES

        raise TfperfError(NO_FRAMES.rstrip("."))
    steps, scale = stacks.step_count if per_step else 0, _UNITS["calls"][1]
    value_of: Callable[[tuple[int, int, int, int]], int] = {
        ("self-time", False): lambda each: each[1],
        ("self-time", True): lambda each: round(each[3] / steps),
        ("calls", False): lambda each: scale * each[0],
        ("calls", True): lambda each: round(scale * each[2] / steps),
    }[question.value, per_step]
    found = _side("python", question, added_up((_folded(stack), value_of(sums)) for stack, sums in stacks.sums.items()))
    if not found.stacks:
        raise TfperfError(f"no function of Python runs in the steps that count: {_TRY}")
    return found


def _folded(stack: PythonStack) -> Stack:
    """Return the functions; those of a package that call each other are one, of the name of the package."""
    names: list[str] = []
    for frame in stack:
        name = _FOLDED.format(frame.package) if frame.package else frame.function
        if not frame.package or not names or names[-1] != name:
            names.append(name)
    return tuple(names)


def unlike(stacks: Iterable[Stack], others: Mapping[Stack, int]) -> int:
    """Return what those stacks of another run add up to that this one has not."""
    here = set(stacks)
    return sum(value for stack, value in others.items() if stack not in here)
