"""A flame graph as a file: of one run, or of one compared with another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from tfperf.base.storage.remote_path import Location
from tfperf.base.units import counted
from tfperf.export.flamegraph.answer import Side, answer, step_count, unlike
from tfperf.export.flamegraph.question import Question
from tfperf.report.flame_tree import flame_tree
from tfperf.report.render.flame.stacks import Flame
from tfperf.report.render.values import measure_text

if TYPE_CHECKING:
    from tfperf.analysis.registry import Results
    from tfperf.report.render.flame.drawing import FlameDocument

FlameFormat = Literal["html", "svg", "folded", "speedscope"]
SUFFIXES: Mapping[str, FlameFormat] = {
    ".html": "html",
    ".htm": "html",
    ".svg": "svg",
    ".folded": "folded",
    ".speedscope.json": "speedscope",
    ".json": "speedscope",
}
"""The format of each suffix."""
MOST_BOXES = 5_000
"""Of one graph: more are too narrow to be seen, and make browsers slow."""
_VALUES = {
    "self-time": "Self time",
    "calls": "Calls",
    "bytes": "Bytes that are read and written, an upper bound",
    "flops": "Operations",
}


class FlameGraphs(Struct, frozen=True, kw_only=True):
    """All that a file shows: its graphs, and sentences about them; `gaps` are those that say what is missing.

    Values of devices are sums over `device_count` of them.
    """

    title: str
    device_count: int
    other_title: str
    flames: tuple[Flame, ...]
    sentences: tuple[str, ...]
    gaps: tuple[str, ...]


def format_of(path: Location) -> FlameFormat | None:
    """Return the format that the name of a file asks for; None if it asks for none."""
    return next((form for suffix, form in SUFFIXES.items() if path.name.lower().endswith(suffix)), None)


def flame_graphs(results: Results, question: Question, other: Results | None = None) -> FlameGraphs:
    """Return the graphs of a run; `other` is the run that it is compared with. Raises TfperfError without any."""
    runs = [results] if other is None else [results, other]
    have_steps = all(step_count(each, question) for each in runs)
    per_step = question.per == "step" or (question.per is None and other is not None and have_steps)
    sides = answer(results, question, per_step=per_step)
    others = {} if other is None else {side.place: side for side in answer(other, question, per_step=per_step)}
    device_count = 0 if question.by == "python" else results["op_sums"].device_count
    sentences = [_meaning(question), _over(runs, question, per_step=per_step)]
    gaps = [gap for side in (*sides, *others.values()) for gap in side.gaps]
    gaps += [text for side in sides if side.place in others for text in _gone(side, others[side.place])]
    places = [side.place for side in sides]
    gaps += [f"The run compared with has no {place} ops." for place in places if others and place not in others]
    gaps += [
        f"Not drawn: {place} ops, which only the run compared with has." for place in others if place not in places
    ]
    return FlameGraphs(
        title=results.run.name,
        device_count=device_count,
        other_title="" if other is None else other.run.name,
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
            f"{_VALUES[question.value]} of functions of Python, summed over threads; functions of a package that call "
            "each other are one box of its name."
        )
    merged = " Layers and replicas that repeat each other are one box: * stands for their numbers."
    return (
        f"{_VALUES[question.value]} of ops, summed over parallel threads, streams and devices."
        f"{merged if question.merge_layers else ''}"
    )


def _over(runs: Sequence[Results], question: Question, *, per_step: bool) -> str:
    """Say what the values are over, and of a comparison whether that makes the runs alike."""
    counts = [step_count(run, question) for run in runs]
    if len(runs) == 1:
        return f"The average of {counted(counts[0], 'step')} that count." if per_step else "The whole capture."
    before = runs[1].run.name
    if per_step:
        return f"Compared with {before}: the average of {counts[0]:,} steps with that of {counts[1]:,}."
    why = "as --per capture asks for" if question.per == "capture" else "since not both have steps that count"
    return f"Compared with {before}: the whole captures, {why}, so a longer one has more."


def _gone(side: Side, other: Side) -> Iterator[str]:
    gone = unlike(side.stacks, other.stacks)
    if gone:
        value = measure_text(gone / side.scale.divisor, side.scale.unit)
        yield f"Not drawn: {value} of the run compared with, in {side.place} stacks that this run has not."


def flame_text(graphs: FlameGraphs, form: FlameFormat) -> str:
    """Return the graphs as the text of a file."""
    if form in ("folded", "speedscope"):
        from tfperf.report.render.flame.folded import folded_text
        from tfperf.report.render.flame.speedscope import speedscope_text

        if form == "folded":
            return folded_text(graphs.flames)
        return speedscope_text(graphs.flames, graphs.title, graphs.other_title)
    draw = resolve_name(f"tfperf.report.render.flame.drawing:{'flame_page' if form == 'html' else 'flame_picture'}")
    text: str = draw(_document(graphs))
    return text


def _document(graphs: FlameGraphs) -> FlameDocument:
    from tfperf.report.flame_tree import flame_chart
    from tfperf.report.render.flame.drawing import FlameDocument

    charts = tuple(flame_chart(flame.tree, flame.title, flame.scale, most=MOST_BOXES) for flame in graphs.flames)
    return FlameDocument(
        title=f"{graphs.title}: flame graph", sentences=(*graphs.sentences, *graphs.gaps), charts=charts
    )


def told(graphs: FlameGraphs) -> Iterator[str]:
    """Iterate over what to tell whoever wrote a file of the graphs: what is in it, and what is missing."""
    parts = []
    for flame in graphs.flames:
        value = measure_text(int(flame.tree.total[0]) / flame.scale.divisor, flame.scale.unit)
        boxes = int((flame.tree.total > 0).sum())
        if flame.name == "device" and graphs.device_count > 1:
            mean = measure_text(int(flame.tree.total[0]) / graphs.device_count / flame.scale.divisor, flame.scale.unit)
            value = f"{value} on {graphs.device_count} devices ({mean} each)"
        parts.append(f"{flame.name} {value} in {counted(boxes, 'box', 'boxes')}")
    yield ", ".join(parts)
    yield from graphs.gaps
