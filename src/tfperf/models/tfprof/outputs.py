"""Outputs of a view: stdout, text files, flame graphs and pprof profiles."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s
from tfperf.base.files import new_file
from tfperf.base.units import Unit, counted
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.formats.wire.schema import Schema
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import ATTRIBUTES, PLACE, Options
from tfperf.models.tfprof.report import of_users, with_parameters
from tfperf.models.tfprof.views import (
    GRADIENT,
    RULES,
    Shown,
    Tree,
    View,
    frame_names,
    parents,
    show,
    show_tree,
    whole_tree,
)
from tfperf.report.flame_tree import FlameScale, FlameTree, flame_chart
from tfperf.report.render import write

Kind = Literal["stdout", "none", "file", "timeline", "pprof", "flame"]
_VIEWS: dict[str, tuple[str, ...]] = {
    "timeline": ("scope", "graph", "code"),
    "pprof": ("code",),
    "flame": ("scope", "code"),
}
_KINDS = ("file", "timeline", "pprof", "flame")
_KIND = "|".join(_KINDS)
_OUTPUT = re.compile(rf"({_KIND})(?::outfile)?=(.+)", re.DOTALL)


class Target(Struct, frozen=True):
    """The output's kind and file; None for stdout."""

    kind: Kind
    path: Path | None = None


def parse_output(text: str, view: View) -> Target:
    """Return the target of `stdout`, `none`, `timeline=FILE`, ... or a path; ValueError if the view lacks it."""
    if text in ("stdout", "stdout:", "-", ""):
        return Target("stdout")
    if text in ("none", "none:"):
        return Target("none")
    named = _OUTPUT.fullmatch(text)
    if named is None:
        kind = re.fullmatch(rf"({_KIND}):?", text)
        if kind:
            raise OptionError(f"output {text!r} has no file: use {kind[1]}=FILE")
        if re.match(r"\w+(:outfile)?=", text):
            raise OptionError(f"output {text!r} is unknown: use stdout, none, or {', '.join(_KINDS)} with =FILE")
        return Target("file", Path(text))
    kind_name = named[1]
    if view not in _VIEWS.get(kind_name, (view,)):
        has = " and ".join(_VIEWS[kind_name])
        raise OptionError(f"the {view} view has no {kind_name}: use {has}")
    return Target(kind_name, Path(named[2]))  # type: ignore[arg-type]


def write_output(
    model: Model, view: View, options: Options, target: Target, *, quirks: bool, every_frame: bool = False
) -> list[str]:
    """Write a view for another tool or as tfprof's own text; return notes for the user.

    Raises ValueError for a step that was not recorded, TfprofInputError if there is nothing to write, and OutputError.
    """
    model.recorded(options.step)
    if target.kind == "none":
        return []
    if target.path is None or target.kind == "file":
        from tfperf.models.tfprof.reference import reference_report
        from tfperf.report.render.values import safe, without_commands

        text = reference_report(model, view, options, quirks=quirks, to_file=str(target.path or ""))
        shown = "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))
        write(without_commands(shown), target.path, force=True)
        told = []
    elif target.kind == "timeline":
        from tfperf.models.tfprof.timeline import write_timeline

        told = write_timeline(model, view, options, target.path)
    else:
        told = []
        if target.kind == "pprof":
            data = pprof_bytes(model, options)
        else:
            data = _flame(of_users(model, every_frame), view, options)
        with new_file(target.path) as file:
            file.write(data)
    return [*([f"wrote {target.path}: {target.kind}"] if target.path else []), *told]


def _flame(model: Model, view: View, options: Options) -> bytes:
    shown = show_tree(model, view, options, with_parameters(model, model.values(options.step)))
    named = [name for name in (options.order_by, *options.select) if name in ATTRIBUTES]
    attribute = next((name for name in named if shown.root_total[PLACE[name]]), (*named, "micros")[0])
    return view_page(shown, attribute, f"tfprof {view}").encode()


MOST_BOXES = 5_000
"""More boxes are too narrow to be visible, and slow down browsers."""

_SHOWN_AS: Mapping[str, tuple[str, Unit, int]] = {
    "micros": ("time of accelerator and CPU", "ms", 1000),
    "accelerator_micros": ("time of accelerators", "ms", 1000),
    "cpu_micros": ("time of the CPU", "ms", 1000),
    "bytes": ("requested memory", "bytes", 1),
    "peak_bytes": ("peak memory", "bytes", 1),
    "residual_bytes": ("residual memory", "bytes", 1),
    "output_bytes": ("size of outputs", "bytes", 1),
    "params": ("parameters", "count", 1),
    "float_ops": ("float operations", "count", 1),
}
"""Meaning of a box's width, its display unit, and the number of stored units per display unit."""


def view_page(shown: Shown, attribute: str, title: str) -> str:
    """Return the scope or code view as a page with a flame graph, sized by the totals of an attribute.

    Boxes have their total, own value and shares as text; a click zooms in. If there are more than `MOST_BOXES`, the
    widest are drawn. Raises ValueError if the attribute cannot be summed, TfprofInputError if all values are 0.
    """
    from tfperf.report.render.flame.drawing import FlameDocument, flame_page

    if attribute not in _SHOWN_AS:
        raise OptionError(f"a flame graph of {attribute!r} is not possible: use one of {', '.join(_SHOWN_AS)}")
    what, unit, divisor = _SHOWN_AS[attribute]
    tree, place = shown.tree, PLACE[attribute]
    flame = FlameTree(
        stacks=((), *(tuple(name.split("/")) for name in tree.names[1:])),
        depth=tree.depth - tree.depth[0],
        total=shown.total[place],
        own=tree.own[place],
    )
    chart = flame_chart(flame, title, FlameScale(unit=unit, divisor=divisor, separator="/"), most=MOST_BOXES)
    if not chart.widths:
        raise TfprofInputError(f"the selected rows have no {attribute}, so nothing can be drawn")
    sentences = [f"The width of a box shows its {what}."]
    if empty := len(tree) - len(chart.widths) - chart.omitted:
        sentences.append(f"Not drawn: {counted(empty, 'row')} without {what}.")
    return flame_page(FlameDocument(title=title, sentences=tuple(sentences), charts=(chart,)))


UNITS: Mapping[str, str] = {
    "micros": "microseconds",
    "accelerator_micros": "microseconds",
    "cpu_micros": "microseconds",
    "bytes": "bytes",
    "peak_bytes": "bytes",
    "residual_bytes": "bytes",
    "output_bytes": "bytes",
    "params": "count",
    "float_ops": "count",
}
"""Attributes that a pprof profile can hold, with their pprof units."""
_LEVEL = 6
NOT_SHOWN = "(not shown)"  # frame of costs outside all displayed lines of code

_PPROF = Schema(
    "tfperf.pprof",
    {
        "Profile": (
            "sample_type 1 []ValueType, sample 2 []Sample, mapping 3 Mapping, location 4 []Location, "
            "function 5 []Function, string_table 6 []bytes, time_nanos 9 int64, duration_nanos 10 int64, "
            "comment 13 []int64, default_sample_type 14 int64"
        ),
        "ValueType": "type 1 int64, unit 2 int64",
        "Sample": "location_id 1 []uint64, value 2 []int64, label 3 []Label",
        "Label": "key 1 int64, str 2 int64",
        "Mapping": "id 1 uint64, filename 5 int64, has_functions 7 bool, has_filenames 8 bool, has_line_numbers 9 bool",
        "Location": "id 1 uint64, mapping_id 2 uint64, line 4 []Line",
        "Line": "function_id 1 uint64, line 2 int64",
        "Function": "id 1 uint64, name 2 int64, system_name 3 int64, filename 4 int64",
    },
)


def pprof_bytes(model: Model, options: Options, view: View = "code") -> bytes:
    """Return the code view as a pprof profile (gzip of a Profile).

    It has a sample type per selected attribute of `UNITS` and one for the number of nodes, and a sample per counted
    node with the labels `node` and `op`. The samples of a type add up to the total of the root. Each frame has its own
    function and line. The cost of a hidden frame goes to its parent, or to `NOT_SHOWN` if it has none.

    Raises ValueError for another view, for a step that was not recorded, and if no attribute of `UNITS` is selected;
    TfprofInputError if no node has a stack.
    """
    if view != "code":
        raise OptionError(f"the {view} view has no pprof output: use the code view (tfperf tfprof code)")
    attributes = [*dict.fromkeys(name for name in options.select if name in UNITS)]
    if not attributes:
        raise OptionError(f"pprof requires a value to sum: select one or more of {', '.join(UNITS)}")
    start, duration = _recorded_nanos(model, options.step)
    if not model.stacks.ends[-1]:
        raise TfprofInputError(
            "no node has a call stack, so the code view is not available: pass the op log with --op-log"
        )
    profile = _Profile(model)
    profile.add_kinds(attributes, options)
    tree, built = whole_tree(model, "code", options)
    shown = {*show(tree, built, options, RULES["code"]).tree.node.tolist()}
    values = model.values(options.step)[[PLACE[name] for name in attributes]]
    profile.add_samples(_stacks(tree, shown, profile), built, values)
    message = profile.message
    message.time_nanos, message.duration_nanos = start, duration
    message.string_table.extend(text.encode("utf-8", "replace") for text in profile.strings)
    # Without a timestamp, the output is reproducible.
    return gzip.compress(message.SerializeToString(), _LEVEL, mtime=0)


def _recorded_nanos(model: Model, step: int) -> tuple[int, int]:
    """Return the first recorded start and the duration of the mean step; zeros without executions."""
    spans = []
    for each in model.recorded(step).values():
        start, duration = each.intervals.start, each.intervals.duration
        if len(start):
            spans.append((int(start.min()), int((start + duration).max())))
    if not spans:
        return 0, 0
    first, length = min(start for start, _ in spans), sum(end - start for start, end in spans) // len(spans)
    return (first * 1000, length * 1000) if 0 < first < 1 << 53 and 0 < length < 1 << 53 else (0, 0)


def _stacks(tree: Tree, shown: set[int], profile: _Profile) -> dict[int, tuple[int, ...]]:
    """Return the locations of the stack of each frame (`Tree.node`), innermost first."""
    of_row: list[tuple[int, ...]] = []
    for name, entry, above in zip(tree.names, tree.node.tolist(), parents(tree.depth).tolist(), strict=True):
        outer = of_row[above] if above >= 0 else ()
        of_row.append((profile.location(name), *outer) if above >= 0 and entry in shown else outer)
    return dict(zip(tree.node.tolist(), of_row, strict=True))


class _Profile:
    """Builds a Profile in which texts, functions and locations are unique."""

    def __init__(self, model: Model) -> None:
        self.strings: dict[str, int] = {"": 0}
        # Declaring symbols as present keeps pprof from looking for a binary.
        known = {"has_functions": True, "has_filenames": True, "has_line_numbers": True}
        mapping = {"id": 1, "filename": self.text("graph"), **known}
        self.message = _PPROF.message_class("Profile")(mapping=mapping)
        self._functions: dict[tuple[str, str, str], int] = {}
        self._locations: dict[str, int] = {}
        self._model = model
        self._frames = _full_frames(model)

    def text(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def add_kinds(self, attributes: list[str], options: Options) -> None:
        """Add the sample types and the comment that describes them."""
        for name, unit in (("nodes", "count"), *((name, UNITS[name]) for name in attributes)):
            self.message.sample_type.add(type=self.text(name), unit=self.text(unit))
        default = options.order_by if options.order_by in attributes else attributes[0]
        self.message.default_sample_type = self.text(default)
        steps = f"step {options.step}"
        if options.step == AVERAGE:
            steps = f"mean of {counted(len(self._model.steps), 'step')}"
        self.message.comment.append(self.text(f"tfprof code view, {steps}"))

    def add_samples(
        self, stacks: Mapping[int, tuple[int, ...]], built: Mapping[int, list[int]], values: Int64s
    ) -> None:
        """Add a sample for each node that a frame built."""
        node_key, op_key, count = self.text("node"), self.text("op"), np.ones((1, values.shape[1]), np.int64)
        rows = np.concatenate((count, values)).T.tolist()
        for entry, nodes in built.items():
            stack = stacks[entry] or (self.location(NOT_SHOWN),)
            for node in nodes:
                labels = (node_key, self._model.names[node]), (op_key, self._model.ops[node])
                label = [{"key": key, "str": self.text(text)} for key, text in labels]
                self.message.sample.add(location_id=stack, value=rows[node], label=label)

    def location(self, name: str) -> int:
        """Return the number of the location with this name in the code view."""
        if name not in self._locations:
            number = self._locations[name] = len(self._locations) + 1
            path, line, function, suffix = "", 0, NOT_SHOWN, ""
            if name != NOT_SHOWN:
                plain = name if name in self._frames else name.removesuffix(GRADIENT)
                path, line, function = self._frames[plain]
                suffix = name[len(plain) :]  # marks a gradient frame
            of = self._function(path, function, suffix)
            self.message.location.add(id=number, mapping_id=1, line=[{"function_id": of, "line": line}])
        return self._locations[name]

    def _function(self, path: str, function: str, suffix: str) -> int:
        key = (path, function, suffix)
        if key not in self._functions:
            number = self._functions[key] = len(self._functions) + 1
            stem = path.rpartition("/")[2].removesuffix(".py")
            name = f"{stem}:{function}{suffix}" if path else function
            self.message.function.add(
                id=number, name=self.text(name), system_name=self.text(function), filename=self.text(path)
            )
        return self._functions[key]


def _full_frames(model: Model) -> dict[str, tuple[str, int, str]]:
    """Return path, line and function of frames by their text in the code view, which truncates paths and functions.

    The view merges frames with the same text, so only their common values are known.
    """
    stacks, names = model.stacks, frame_names(model)
    frames: dict[str, tuple[str, int, str]] = {}
    for place in np.unique(stacks.frame).tolist():
        path, line, function = stacks.files[place], stacks.lines[place], stacks.functions[place]
        known = frames.setdefault(names[place], (path, line, function))
        if known != (path, line, function):
            file = path.rpartition("/")[2]
            cut = names[place].removeprefix(f"{file}:{line}:")
            frames[names[place]] = (path if path == known[0] else file, line, function if function == known[2] else cut)
    return frames
