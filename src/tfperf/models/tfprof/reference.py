"""Reports in the exact text format of tfprof, for scripts that parse it and for comparisons with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from tfperf.base.arrays import Int64s
from tfperf.formats.models.dtypes import Shapes
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import PLACE, Options
from tfperf.models.tfprof.views import SCOPE_TYPE, Shown, ShownOps, View, show_ops, show_tree

_OPTIONS = "=========================Options============================="
_REPORT = "==================Model Analysis Report======================"
_END = "======================End of Report=========================="
_OPTION_WIDTH = 28
_SHOWN = (
    "max_depth",
    "min_bytes",
    "min_peak_bytes",
    "min_residual_bytes",
    "min_output_bytes",
    "min_micros",
    "min_accelerator_micros",
    "min_cpu_micros",
    "min_params",
    "min_float_ops",
    "min_occurrence",
    "step",
    "order_by",
    "account_type_regexes",
    "start_name_regexes",
    "trim_name_regexes",
    "show_name_regexes",
    "hide_name_regexes",
    "account_displayed_op_only",
)
_VIEWS: Mapping[str, str] = {
    "scope": "scope: The nodes in the model graph are organized by their names, which is hierarchical like filesystem.",
    "op": "op: The nodes are operation kernel type, such as MatMul, Conv2D. Graph nodes belonging to the same type are "
    "aggregated together.",
    "code": "code: When python trace is available, the nodes are python lines and their are organized by the python "
    "call stack.",
}
_CPU = (
    "cpu execution time: The time from the start to the end of the operation. It's the sum of actual cpu run time "
    "plus the time that it spends waiting if part of computation is launched asynchronously."
)
_ACCELERATOR = (
    "accelerator execution time: Time spent executing on the accelerator. This is normally measured by the actual "
    "hardware library."
)
_MEANINGS: Mapping[str, tuple[str, ...]] = {
    "accelerator_micros": (_ACCELERATOR,),
    "bytes": ("requested bytes: The memory requested by the operation, accumulatively.",),
    "cpu_micros": (_CPU,),
    "device": ("device: which device is placed on.",),
    "float_ops": ("flops: Number of float operations. Note: Please read the implementation for the math behind it.",),
    "input_shapes": ("input shape: The shape of input tensors",),
    "micros": ("total execution time: Sum of accelerator execution time and cpu execution time.", _CPU, _ACCELERATOR),
    "occurrence": ("occurrence: The number of times it occurs",),
    "op_types": (
        "op_types: The attributes of the operation, includes the Kernel name device placed on and user-defined "
        "strings.",
    ),
    "output_bytes": (
        "output bytes: The memory that is output from the operation (not necessarily allocated by the operation)",
    ),
    "params": ("param: Number of parameters (in the Variable).",),
    "peak_bytes": ("peak bytes: The peak amount of memory that the operation is holding at some point.",),
    "residual_bytes": ("residual bytes: The memory not de-allocated after the operation finishes.",),
}
_TIME_HEADS = ("total execution time", "accelerator execution time", "cpu execution time")
_HEADS: Mapping[str, str] = {
    "params": "# parameters",
    "float_ops": "# float_ops",
    "bytes": "requested bytes",
    "peak_bytes": "peak bytes",
    "residual_bytes": "residual bytes",
    "output_bytes": "output bytes",
    "micros": " | ".join(_TIME_HEADS),
    "accelerator_micros": _TIME_HEADS[1],
    "cpu_micros": _TIME_HEADS[2],
    "device": "assigned devices",
    "op_types": "op types",
    "occurrence": "op count (run|defined)",
    "input_shapes": "input shapes",
}
_COUNTS_FIRST = ("scope", "graph")


def reference_report(model: Model, view: View, options: Options, *, quirks: bool, to_file: str = "") -> str:
    """Return the text that tfprof prints or writes to `to_file`; `quirks` reproduces its defect D1."""
    names, heads = list(_HEADS), {**_HEADS}
    if view not in _COUNTS_FIRST:
        names = [*names[2:9], *names[:2], *names[9:]]
        heads["occurrence"] = "op occurrence (run|defined)"
    asked = {*options.select} - ({"accelerator_micros", "cpu_micros"} if "micros" in options.select else set())
    text = ModelText(model, quirks=quirks)
    if view == "op":
        rows = op_rows(show_ops(model, options), options, text, model.values(options.step))
    else:
        rows = tree_rows(show_tree(model, view, options), view, options, text)
    body = [
        "Doc:",
        _VIEWS["scope" if view == "graph" else view],
        *(line for name in sorted(options.select) for line in _MEANINGS.get(name, (f"Unknown {name}",))),
        "",
        "Profile:",
        " | ".join(["node name", *(heads[name] for name in names if name in asked)]),
        *rows,
    ]
    if to_file:
        return "\n".join(["", *body, ""])
    shown = {name: getattr(options, name) for name in _SHOWN}
    shown |= {"select": tuple(sorted(options.select)), "output": f"{options.output.partition(':')[0]}:"}
    lines = []
    for name, value in shown.items():
        told = str(value).lower() if isinstance(value, bool) else ",".join(value) if isinstance(value, tuple) else value
        lines.append(f"-{name}".ljust(_OPTION_WIDTH) + str(told))
    return "\n".join(["", _OPTIONS, *lines, "", _REPORT, "", *body, "", _END, ""])


_BYTES = ("bytes", "peak_bytes", "residual_bytes", "output_bytes")
_TIMES = ("micros", "accelerator_micros", "cpu_micros")
_GRAPH_TYPE = "_TFGraphParent"
_NAME_WIDTH, _VALUE_WIDTH, _COUNT_WIDTH = 25, 30, 10


def scaled(number: int) -> str:
    """Format a count, for example 100.35k."""
    return _in_units(number, ("", "k", "m", "b"))


def time_text(micros: int) -> str:
    """Format a time, for example 5.79ms."""
    return _in_units(micros, ("us", "ms", "sec"))


def bytes_text(size: int) -> str:
    """Format a size, for example 483.07KB."""
    return _in_units(size, ("B", "KB", "MB"))


def _in_units(number: int, units: Sequence[str]) -> str:
    if number < 1000:
        return f"{number}{units[0]}"
    power = next((power for power in range(1, len(units) - 1) if number < 1000 ** (power + 1)), len(units) - 1)
    return f"{number / 1000**power:.2f}{units[power]}"


_TEXT_OF: Mapping[str, Callable[[int], str]] = dict.fromkeys(_BYTES, bytes_text) | dict.fromkeys(_TIMES, time_text)


def _on_one_line(name: str) -> str:
    """Return the name on one line, so that it cannot look like a row of its own."""
    return name if "\n" not in name and "\t" not in name else name.replace("\n", "\\n").replace("\t", "\\t")


def _wanted(options: Options, names: Sequence[str]) -> list[str]:
    """Return the attributes to print; selecting `micros` adds the accelerator and CPU times."""
    asked = {*options.select} | ({*_TIMES} if "micros" in options.select else set())
    return [name for name in names if name in asked]


class ModelText:
    """Formats devices, types and input shapes of nodes."""

    def __init__(self, model: Model, *, quirks: bool = False) -> None:
        self._model = model
        self._input_shape = model.first_slot_shape if quirks else model.input_shape
        self._first, self._count = (rows.tolist() for rows in model.input_rows())
        node, kind = model.type_of
        start = np.searchsorted(node, np.arange(len(model.names) + 1)).tolist()
        kinds = kind.tolist()
        self._types = [kinds[one:other] for one, other in itertools.pairwise(start)]

    def types(self, nodes: Sequence[int]) -> str:
        """Return the types of nodes."""
        return "|".join(sorted({self._model.types[kind] for node in nodes for kind in self._types[node]}))

    def devices(self, nodes: Sequence[int]) -> str:
        """Return the devices of nodes; the device of a node that never ran is empty."""
        return "|".join(sorted({self._model.device[node] for node in nodes}))

    def inputs(self, node: int, separator: str = "|") -> str:
        """Return the shapes of the inputs of a node."""
        first = self._first[node]
        shapes = (shape_text(self._input_shape, first + index) for index in range(self._count[node]))
        return separator.join(f"{index}:{shape or 'unknown'}" for index, shape in enumerate(shapes))

    def shape(self, node: int) -> str:
        """Return the shape attribute of a node."""
        return shape_text(self._model.shape, node)


def shape_text(shapes: Shapes, place: int) -> str:
    """Format a shape, for example 100x784; an unknown shape is empty."""
    return "x".join(map(str, shapes.dims(place)))


def tree_rows(shown: Shown, view: View, options: Options, text: ModelText) -> Iterator[str]:
    """Yield the lines of a scope, graph or code view."""
    tree = shown.tree
    columns = list((_code_cells if view == "code" else _node_cells)(shown, options, text))
    if view == "graph" and "op_types" in options.select:
        columns = [[_GRAPH_TYPE, *column[1:]] if column[0] == SCOPE_TYPE else column for column in columns]
    for row, (name, depth) in enumerate(zip(tree.names, tree.depth.tolist(), strict=True)):
        cells = ", ".join(cell for column in columns if (cell := column[row]) is not None)
        yield f"{'  ' * depth}{_on_one_line(name)} ({cells})"


def _node_cells(shown: Shown, options: Options, text: ModelText) -> Iterator[list[str | None]]:
    """Yield the columns of the scope and graph views: one cell per row, None for a column that is left out."""
    nodes = shown.tree.node.tolist()
    select = {*options.select}
    if "params" in select:
        yield [text.shape(node) or None if node >= 0 else None for node in nodes]
        yield _own_and_total(shown, "params", scaled, " params")
    if "float_ops" in select:
        yield _own_and_total(shown, "float_ops", scaled, " flops")
    for name in _wanted(options, (*_BYTES, *_TIMES)):
        yield _own_and_total(shown, name, _TEXT_OF[name])
    if "device" in select:
        yield [text.devices([node]) or None if node >= 0 else None for node in nodes]
    if "op_types" in select:
        yield [text.types([node]) if node >= 0 else SCOPE_TYPE for node in nodes]
    if "occurrence" in select:
        runs, definitions = (_own_and_total(shown, name, str) for name in ("runs", "definitions"))
        yield [f"{run}|{defined}" for run, defined in zip(runs, definitions, strict=True)]
    if "input_shapes" in select:
        yield [text.inputs(node) if node >= 0 else "" for node in nodes]


def _code_cells(shown: Shown, options: Options, text: ModelText) -> Iterator[list[str | None]]:
    built = [shown.built.get(frame, []) for frame in shown.tree.node.tolist()]
    select = {*options.select}
    for name in _wanted(options, (*_BYTES, *_TIMES)):
        yield _own_and_total(shown, name, _TEXT_OF[name])
    if "params" in select:
        yield _own_and_total(shown, "params", scaled, " params")
    if "float_ops" in select:
        yield _own_and_total(shown, "float_ops", scaled, " flops")
    if "device" in select:
        yield [text.devices(nodes) if nodes else None for nodes in built]
    if "op_types" in select:
        yield [text.types(nodes) for nodes in built]
    for name in ("occurrence", "input_shapes"):
        if name in select:
            yield [f"{name} N/A in code view"] * len(built)


def _own_and_total(shown: Shown, name: str, to_text: Callable[[int], str], unit: str = "") -> list[str | None]:
    own, total = (values[PLACE[name]].tolist() for values in (shown.tree.own, shown.total))
    texts = {number: to_text(number) for number in {*own, *total}}  # most rows share a few values
    counts = shown.tree.accounted.tolist()
    return [
        f"{texts[one] if counted else '--'}/{texts[every]}{unit}"
        for one, every, counted in zip(own, total, counts, strict=True)
    ]


def op_rows(shown: ShownOps, options: Options, text: ModelText, values: Int64s) -> Iterator[str]:
    """Yield the lines of the op view; `values` are the values of all nodes."""
    columns = list(_op_cells(shown, options, text))
    for row, name in enumerate(shown.names):
        cells = [column[row] for column in columns]
        line = f"{_on_one_line(name).ljust(_NAME_WIDTH)}{', '.join(cells)}"
        yield line
        if "input_shapes" in options.select:
            yield from ("", *_input_types(shown.nodes[row], text, values), "")


def _op_cells(shown: ShownOps, options: Options, text: ModelText) -> Iterator[list[str]]:
    select = {*options.select}
    for name in _wanted(options, (*_BYTES, *_TIMES)):
        yield _with_shares(shown, name, _TEXT_OF[name], "")
    for name, unit in (("params", " params"), ("float_ops", " float_ops")):
        if name in select:
            yield _with_shares(shown, name, scaled, unit)
    if "device" in select:
        yield [text.devices(nodes.tolist()) for nodes in shown.nodes]
    if "op_types" in select:
        yield [text.types(nodes.tolist()) for nodes in shown.nodes]
    if "occurrence" in select:
        runs, definitions = (shown.own[PLACE[name]].tolist() for name in ("runs", "definitions"))
        yield [f"{run}|{defined}".rjust(_COUNT_WIDTH) for run, defined in zip(runs, definitions, strict=True)]


def _with_shares(shown: ShownOps, name: str, to_text: Callable[[int], str], unit: str) -> list[str]:
    place = PLACE[name]
    root = int(shown.root_total[place])
    own, total = shown.own[place].tolist(), shown.total[place].tolist()
    # tfprof prints no memory share for later ops that use no memory themselves.
    judged = own if name in _BYTES else total
    shares = [
        (100 * every / root, 100 * one / root) if judge > 0 and root else (0.0, 0.0)
        for one, every, judge in zip(own, total, judged, strict=True)
    ]
    return [
        f"{to_text(one)}{unit} ({of_total:.2f}%, {of_own:.2f}%)".rjust(_VALUE_WIDTH)
        for one, (of_total, of_own) in zip(own, shares, strict=True)
    ]


def _input_types(nodes: Int64s, text: ModelText, values: Int64s) -> Iterator[str]:
    """Yield a line per distinct list of input shapes with its number of runs, the most frequent first."""
    totals: dict[str, list[int]] = {}
    for node in nodes.tolist():
        total = totals.setdefault(text.inputs(node, ",\t"), [0, 0, 0])
        for place, number in enumerate((values[PLACE["runs"], node], 1, values[PLACE["micros"], node])):
            total[place] += int(number)
    for shapes, (runs, defined, micros) in sorted(totals.items(), key=lambda item: (-item[1][0], item[0])):
        yield f"input_type: {shapes}\t(run*{runs}|defined*{defined})\texec_time: {time_text(micros)}"
