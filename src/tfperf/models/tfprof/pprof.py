"""The code view as a profile for `pprof`: which lines of code the costs of a graph come from."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

import numpy as np

from tfperf.base.arrays import Int64s
from tfperf.base.units import counted
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.formats.wire.schema import Schema
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import PLACE, Options
from tfperf.models.tfprof.views import GRADIENT, RULES, Tree, View, frame_names, parents, show, whole_tree

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
"""What a profile can hold, and the units that pprof knows."""
_LEVEL = 6
NOT_SHOWN = "(not shown)"
"""The frame of what no shown line of code accounts for."""

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
    """Return the code view as pprof reads it: gzip of a Profile.

    It has a kind of sample for each attribute that is selected (`UNITS`) and one that counts nodes, and a sample for
    each node that counts, with the labels `node` and `op`. The samples of a kind sum up to the total of the root. A
    frame has its own function and the line in it. Frames that are not shown are left out of the stacks: what they
    cost stays with the frame above, and what has none above, with `NOT_SHOWN`.

    Raises ValueError for another view, for a step that was not recorded, and if nothing of `UNITS` is selected;
    TfprofInputError if no node has a stack.
    """
    if view != "code":
        raise OptionError(f"the {view} view has no pprof output: only the code view has (tfperf tfprof code)")
    attributes = [*dict.fromkeys(name for name in options.select if name in UNITS)]
    if not attributes:
        raise OptionError(f"pprof needs something to sum up: select some of {', '.join(UNITS)}")
    start, duration = _recorded_nanos(model, options.step)
    if not model.stacks.ends[-1]:
        raise TfprofInputError("no node has a call stack, so there is no code view: give the op log with --op-log")
    profile = _Profile(model)
    profile.add_kinds(attributes, options)
    tree, built = whole_tree(model, "code", options)
    shown = {*show(tree, built, options, RULES["code"]).tree.node.tolist()}
    values = model.values(options.step)[[PLACE[name] for name in attributes]]
    profile.add_samples(_stacks(tree, shown, profile), built, values)
    message = profile.message
    message.time_nanos, message.duration_nanos = start, duration
    message.string_table.extend(text.encode("utf-8", "replace") for text in profile.strings)
    # Without the time of writing, the same input makes the same file.
    return gzip.compress(message.SerializeToString(), _LEVEL, mtime=0)


def _recorded_nanos(model: Model, step: int) -> tuple[int, int]:
    """Return when the recorded executions start, and how long they take in the mean step; zeros if there are none."""
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
    """Return the locations of the stack that each frame ends (`Tree.node`), innermost first."""
    of_row: list[tuple[int, ...]] = []
    for name, entry, above in zip(tree.names, tree.node.tolist(), parents(tree.depth).tolist(), strict=True):
        outer = of_row[above] if above >= 0 else ()
        of_row.append((profile.location(name), *outer) if above >= 0 and entry in shown else outer)
    return dict(zip(tree.node.tolist(), of_row, strict=True))


class _Profile:
    """A Profile that grows: texts, functions and locations are there once."""

    def __init__(self, model: Model) -> None:
        self.strings: dict[str, int] = {"": 0}
        # What is symbolized needs no binary, which pprof would miss.
        known = {"has_functions": True, "has_filenames": True, "has_line_numbers": True}
        mapping = {"id": 1, "filename": self.text("graph"), **known}
        self.message = _PPROF.message_class("Profile")(mapping=mapping)
        self._functions: dict[tuple[str, str, str], int] = {}
        self._locations: dict[str, int] = {}
        self._model = model
        self._frames = _full_frames(model)

    def text(self, text: str) -> int:
        """Return the number of a text."""
        return self.strings.setdefault(text, len(self.strings))

    def add_kinds(self, attributes: list[str], options: Options) -> None:
        """Add the kinds of samples, and say what they are of."""
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
        """Return the number of the location that the code view writes so."""
        if name not in self._locations:
            number = self._locations[name] = len(self._locations) + 1
            path, line, function, suffix = "", 0, NOT_SHOWN, ""
            if name != NOT_SHOWN:
                plain = name if name in self._frames else name.removesuffix(GRADIENT)
                path, line, function = self._frames[plain]
                suffix = name[len(plain) :]  # what marks a frame of gradients
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
    """Return path, line and function of frames by their text in the code view, which cuts the first and the last.

    Where several frames look the same there, the view takes them for one, and only what they share is known.
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
