"""The file of a flame graph, of one run or of a comparison: its graphs, notes and formats."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from tfperf.base import __version__
from tfperf.base.arrays import MOST
from tfperf.base.errors import TfperfError
from tfperf.base.storage.remote_path import Location
from tfperf.base.units import Unit, counted, format_percent, percent
from tfperf.export.flamegraph import Question
from tfperf.report.flame_tree import FlameScale, FlameTree, Stack, flame_tree
from tfperf.report.render.flame.stacks import Flame, StackRow, stack_rows, whole_numbers
from tfperf.report.render.values import COMMAND_MARK, encodable, measure_text
from tfperf.sections.ops.analysis import OpKey
from tfperf.sections.ops.groups import added_up, common_keys, stacker
from tfperf.sections.ops.sums import OpOfFunction, OpSums, Sums, of_function

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.sections.python.analysis import PythonStack, PythonStacks
    from tfperf.sections.roofline.analysis import FrameworkOp
    from tfperf.sections.xla.instructions import HloOp

SCHEMA = "https://www.speedscope.app/file-format-schema.json"

_VALUES = {
    "self-time": "Self time",
    "calls": "Calls",
    "bytes": "Bytes read and written (upper bound)",
    "flops": "Operations",
}


class FlameGraphs(Struct, frozen=True, kw_only=True):
    """Graphs of a file; device values are sums over `device_count` devices. `gaps` are notes on missing data."""

    title: str
    device_count: int
    other_title: str
    flames: tuple[Flame, ...]
    sentences: tuple[str, ...]
    gaps: tuple[str, ...]


def format_of(path: Location) -> FlameFormat | None:
    """Return the format of a file by its suffix; None if the suffix is unknown."""
    return next((form for suffix, form in SUFFIXES.items() if path.name.lower().endswith(suffix)), None)


def flame_graphs(results: Results, question: Question, other: Results | None = None) -> FlameGraphs:
    """Return the graphs of a run, compared with the run `other`. Raises TfperfError if there are none."""
    runs = [results] if other is None else [results, other]
    have_steps = all(step_count(each, question) for each in runs)
    per_step = question.per == "step" or (question.per is None and other is not None and have_steps)
    sides = answer(results, question, per_step=per_step)
    others = {} if other is None else {side.place: side for side in answer(other, question, per_step=per_step)}
    device_count = 0 if question.by == "python" else results["op_sums"].device_count
    names = run_labels(runs)
    sentences = [_meaning(question), _over(runs, names, question, per_step=per_step)]
    gaps = [gap for side in (*sides, *others.values()) for gap in side.gaps]
    for side in sides:
        before = others[side.place].stacks if side.place in others else {}
        if gone := sum(value for stack, value in before.items() if stack not in side.stacks):
            value = measure_text(gone / side.scale.divisor, side.scale.unit)
            gaps.append(f"Only in the other run: {value}, in {side.place} stacks that this run does not have.")
    places = [side.place for side in sides]
    gaps += [f"The other run has no {place} ops." for place in places if others and place not in others]
    gaps += [f"Not drawn: {place} ops, which only the other run has." for place in others if place not in places]
    return FlameGraphs(
        title=names[0],
        device_count=device_count,
        other_title="" if other is None else names[1],
        flames=tuple(
            _flame(side, others.get(side.place), device_count, is_compared=other is not None) for side in sides
        ),
        sentences=tuple(sentences),
        gaps=tuple(dict.fromkeys(gaps)),
    )


def _flame(side: Side, other: Side | None, device_count: int, *, is_compared: bool) -> Flame:
    is_sum = side.place == "device" and device_count > 1
    before = (other.stacks if other else {}) if is_compared else None
    return Flame(
        name=side.place,
        title=f"{side.title}, summed over {device_count} devices" if is_sum else side.title,
        scale=side.scale,
        tree=flame_tree(side.stacks, before),
        other=None if before is None else flame_tree(before),
    )


def _meaning(question: Question) -> str:
    if question.by == "python":
        return (
            f"{_VALUES[question.value]} of Python functions, summed over threads; calls within a package are one box "
            "with its name."
        )
    merged = " Repeated layers and replicas are one box: * replaces their numbers."
    return (
        f"{_VALUES[question.value]} of ops, summed over parallel threads, streams and devices."
        f"{merged if question.merge_layers else ''}"
    )


def run_labels(runs: Sequence[Results]) -> list[str]:
    """Return the names of the runs; for equal names, the folders in which their paths differ."""
    names = [run.run.name for run in runs]
    if len(runs) == 1 or names[0] != names[1]:
        return names
    parts = zip(*(reversed(run.run.folder.parts) for run in runs), strict=False)
    return next(([*pair] for pair in parts if pair[0] != pair[1]), names)


def _over(runs: Sequence[Results], names: Sequence[str], question: Question, *, per_step: bool) -> str:
    """Return a note on the scope of the values, and for a comparison whether it makes the runs comparable."""
    counts = [step_count(run, question) for run in runs]
    if len(runs) == 1:
        return f"The mean of {counted(counts[0], 'averaged step')}." if per_step else "The whole capture."
    before = names[1]
    if per_step:
        return f"Compared with {before}: mean of {counts[0]:,} steps and mean of {counts[1]:,} steps."
    why = "because of --per capture" if question.per == "capture" else "because not both runs have averaged steps"
    return f"Compared with {before}: the whole captures, {why}, so a longer capture has larger values."


def flame_text(graphs: FlameGraphs, form: FlameFormat) -> str:
    """Return the graphs as the text of a file."""
    if form in ("folded", "speedscope"):
        if form == "folded":
            return folded_text(graphs.flames)
        return speedscope_text(graphs.flames, graphs.title, graphs.other_title)
    draw = resolve_name(f"tfperf.report.render.flame.drawing:{'flame_page' if form == 'html' else 'flame_picture'}")
    from tfperf.report.flame_tree import flame_chart
    from tfperf.report.render.flame.drawing import FlameDocument

    charts = tuple(flame_chart(flame.tree, flame.title, flame.scale, most=MOST_BOXES) for flame in graphs.flames)
    text: str = draw(
        FlameDocument(title=f"{graphs.title}: flame graph", sentences=(*graphs.sentences, *graphs.gaps), charts=charts)
    )
    return text


def told(graphs: FlameGraphs) -> Iterator[str]:
    """Yield the notes printed after a file is written: its contents, and missing data."""
    parts = []
    for flame in graphs.flames:
        value = measure_text(int(flame.tree.total[0]) / flame.scale.divisor, flame.scale.unit)
        boxes = int((flame.tree.total > 0).sum())
        if flame.name == "device" and graphs.device_count > 1:
            mean = measure_text(int(flame.tree.total[0]) / graphs.device_count / flame.scale.divisor, flame.scale.unit)
            value = f"{value} on {graphs.device_count} devices ({mean} per device)"
        parts.append(f"{flame.name} {value} in {counted(boxes, 'box', 'boxes')}")
    yield ", ".join(parts)
    yield from graphs.gaps


Amount = Literal["bytes", "flops"]


class WorkRow(Struct, frozen=True, kw_only=True):
    """The amounts of all runs of an op, in the capture and in the counted steps."""

    key: OpOfFunction
    in_capture: float
    in_steps: float


class WorkSum(Struct, frozen=True, kw_only=True):
    """Ops with a known amount, and their share of the time of their place (None: no time)."""

    rows: tuple[WorkRow, ...]
    known_percent: float | None
    knows_steps: bool  # whether the amount in steps is known; on a host it is not


def work_sums(results: Results, place: Literal["host", "device"], amount: Amount) -> WorkSum:
    """Return the known bytes or operations on devices, or on host threads."""
    xla, roofline = results["xla"], results["roofline"]
    is_on_host = xla.place == "cpu"
    ops: list[HloOp | FrameworkOp] = []
    whole_ps = 0
    if place == "device" and not is_on_host:
        ops, whole_ps = [row.op for row in roofline.ops], roofline.whole_ps
    elif place == "host" and is_on_host:
        ops, whole_ps = [op for op in xla.ops if not op.is_estimated], xla.whole_ps
    rows, known_ps = [], 0
    for op in ops:
        of_run = getattr(op, amount)
        if of_run is None:
            continue
        known_ps += op.time_ps
        hlo_op = "" if hasattr(op, "shapes") else op.op
        kind = getattr(op, "type", "") or getattr(op, "category", "") or getattr(op, "opcode", "")
        rows.append(
            WorkRow(
                key=of_function(OpKey(op.framework_op.partition(":")[0] or op.op, kind, hlo_op, op.module)),
                in_capture=of_run * op.runs,
                in_steps=of_run * op.runs_in_steps,
            )
        )
    return WorkSum(rows=tuple(rows), known_percent=percent(known_ps, whole_ps), knows_steps=place != "host")


Place = Literal["host", "device", "python"]
_TITLES: Mapping[Place, str] = {"host": "Host", "device": "Device", "python": "Python"}
_OF_OPS = {"self-time": "op time", "calls": "op calls", "bytes": "op bytes", "flops": "op operations"}
_OF_PYTHON = {"self-time": "time", "calls": "calls"}
_NAMES = {"scope": "name scope", "layer": "layer", "python": "call stack", "function": "function"}
_UNITS: Mapping[str, tuple[Unit, int]] = {
    "self-time": ("ms", 1_000_000_000),
    "calls": ("count", 1_000_000),
    "bytes": ("bytes", 1),
    "flops": ("count", 1),
}
"""Display unit of a value, and the number of stored units in one: time in picoseconds, and millionths of calls, because
an average step has a fractional number of calls."""
_TRY = "try --per capture"
_FOLDED = "({})"  # replaces functions of a package that call each other


class Side(Struct, frozen=True, kw_only=True):
    """Stacks of one place with integer values in units of `scale`; `gaps` list missing data."""

    place: Place
    title: str
    scale: FlameScale
    stacks: dict[Stack, int]
    gaps: tuple[str, ...] = ()


def step_count(results: Results, question: Question) -> int:
    """Return the number of counted steps over all hosts."""
    counted: OpSums | PythonStacks = results["python_stacks" if question.by == "python" else "op_sums"]
    return counted.step_count


def answer(results: Results, question: Question, *, per_step: bool) -> tuple[Side, ...]:
    """Return a part for each place with values. Raises TfperfError if there are none."""
    if per_step and not step_count(results, question):
        raise TfperfError(f"no averaged steps: {_TRY}, or --step-marker")
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
        return "the profile has no device events, so the device flame graph is not available: try --on host"
    if question.value in ("bytes", "flops"):
        return (
            f"the profile has no ops with known {question.value}, which require XLA programs or input shapes: try "
            "--value self-time"
        )
    return "the profile has no ops there: try --on all, or tfperf analyze to see its contents"


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
    """Yield the values of the capture, or of an average step, for each place."""
    steps = sums.step_count * per_step
    for place in _places(question):
        sums_of: Sums = getattr(sums, place)
        if question.value != "calls":
            values = {key: round(each.step_self_ps / steps) if steps else each.self_ps for key, each in sums_of.items()}
            yield _side(place, question, _stacked(values, question))
            continue
        calls = {key: each.step_calls / steps if steps else each.calls for key, each in sums_of.items()}
        values = {key: round(_UNITS["calls"][1] * count) for key, count in calls.items()}
        gaps = []
        if uncounted := {key.op for key, each in sums_of.items() if each.counts_kernels}:
            every = len({key.op for key in sums_of})
            of = f"{len(uncounted):,} of {every:,} ops"
            gaps.append(f"The profile does not show runs of {of}: their kernels and copies are counted instead.")
        yield _side(place, question, _stacked(values, question), tuple(gaps))


def _stacked(values: Mapping[OpOfFunction, int], question: Question) -> dict[Stack, int]:
    """Return the values by stack; repeated layers and replicas are merged on request."""
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
                f"{question.value} of XLA programs on the host are known only for the whole capture: {_TRY}"
            )
        values: dict[OpOfFunction, int] = {}
        for row in work.rows:
            amount = round(row.in_steps / steps if steps else row.in_capture)
            values[row.key] = values.get(row.key, 0) + amount
        gaps: tuple[str, ...] = ()
        if work.known_percent is not None and work.known_percent < 100.0:
            covered = f"ops with {format_percent(work.known_percent)}% of {place} time"
            gaps = (f"The {question.value} cover {covered}; they are unknown for the other ops.",)
        yield _side(place, question, _stacked(values, question), gaps)


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
        raise TfperfError(f"no Python functions run in the averaged steps: {_TRY}")
    return found


def _folded(stack: PythonStack) -> Stack:
    """Return the functions; functions of a package that call each other are merged under the package name."""
    names: list[str] = []
    for frame in stack:
        name = _FOLDED.format(frame.package) if frame.package else frame.function
        if not frame.package or not names or names[-1] != name:
            names.append(name)
    return tuple(names)


# --- folded stacks and speedscope files ---

_SPEEDSCOPE_UNITS: Mapping[Unit, str] = {"ms": "nanoseconds", "bytes": "bytes"}
_NANOSECONDS = 1_000_000


def speedscope_text(flames: Sequence[Flame], title: str, other_title: str = "") -> str:
    """Return a speedscope file; in a comparison, the other run's profile follows each profile."""
    frames: dict[str, int] = {}
    profiles = []
    for flame in flames:
        profiles.append(_profile(flame, flame.tree, flame.title, frames))
        if flame.other is not None:
            profiles.append(_profile(flame, flame.other, f"{flame.title} ({other_title})", frames))
    document = {
        "$schema": SCHEMA,
        "name": encodable(title),
        "exporter": f"tfperf@{__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": profiles,
    }
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return COMMAND_MARK.sub("\\\\u0023#", text) + "\n"


def _profile(flame: Flame, tree: FlameTree, name: str, frames: dict[str, int]) -> dict[str, Any]:
    rows = stack_rows(flame.name, tree)
    divisor = max(flame.scale.divisor // _NANOSECONDS, 1) if flame.scale.unit == "ms" else flame.scale.divisor
    weights = whole_numbers([row.own for row in rows], divisor)
    return {
        "type": "sampled",
        "name": encodable(name),
        "unit": _SPEEDSCOPE_UNITS.get(flame.scale.unit, "none"),
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames.setdefault(frame, len(frames)) for frame in row.frames] for row in rows],
        "weights": weights,
    }


_PER_MS = 1000


def folded_text(flames: Sequence[Flame]) -> str:
    """Return a line per stack: time in microseconds, other values as integers.

    In a comparison a line has two numbers, the other run first, as difffolded.pl writes them. Stacks that round to 0
    are left out; rounding carries the remainder over, so that sums are preserved.
    """
    return "".join(line for flame in flames for line in _lines(flame))


def _lines(flame: Flame) -> Iterator[str]:
    divisor = max(flame.scale.divisor // _PER_MS, 1) if flame.scale.unit == "ms" else flame.scale.divisor
    rows = stack_rows(flame.name, flame.tree)
    now = _by_stack(rows, divisor)
    if flame.other is None:
        yield from (f"{stack} {value}\n" for stack, value in now.items() if value)
        return
    before = _by_stack(stack_rows(flame.name, flame.other), divisor)
    for stack in dict.fromkeys((*now, *before)):
        values = before.get(stack, 0), now.get(stack, 0)
        if any(values):
            yield f"{stack} {values[0]} {values[1]}\n"


def _by_stack(rows: Sequence[StackRow], divisor: int) -> dict[str, int]:
    """Return the value of each line; stacks with the same escaped text are merged."""
    sums: dict[str, int] = {}
    for row, value in zip(rows, whole_numbers([row.own for row in rows], divisor), strict=True):
        # Semicolons separate frames.
        stack = ";".join(frame.replace(";", ":") for frame in row.frames)
        sums[stack] = sums.get(stack, 0) + value
    return sums


FlameFormat = Literal["html", "svg", "folded", "speedscope"]
SUFFIXES: Mapping[str, FlameFormat] = {
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".folded": "folded",
    ".speedscope.json": "speedscope",
    ".json": "speedscope",
}
MOST_BOXES = 5_000
"""Maximum per graph; more boxes are too narrow to be visible, and slow down browsers."""
