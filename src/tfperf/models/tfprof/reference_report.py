"""A whole report as tfprof writes it, to the letter: options, what the columns mean, rows, and its banners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.reference_text import ModelText, op_rows, tree_rows
from tfperf.models.tfprof.views import View, show_ops, show_tree

_OPTIONS = "=========================Options============================="
_REPORT = "==================Model Analysis Report======================"
_END = "======================End of Report=========================="
_NAME_WIDTH = 28
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
    """Return what tfprof writes to stdout, or to the file of this name; `quirks` imitates its defect D1."""
    body = [*_meanings(view, options), "", "Profile:", _heading(view, options), *_rows(model, view, options, quirks)]
    if to_file:
        return "\n".join(["", *body, ""])
    return "\n".join(["", _OPTIONS, *_options(options), "", _REPORT, "", *body, "", _END, ""])


def _options(options: Options) -> Iterator[str]:
    for name in _SHOWN:
        yield f"-{name}".ljust(_NAME_WIDTH) + _value(getattr(options, name))
    yield "-select".ljust(_NAME_WIDTH) + ",".join(sorted(options.select))
    yield "-output".ljust(_NAME_WIDTH) + f"{options.output.partition(':')[0]}:"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _meanings(view: View, options: Options) -> Iterator[str]:
    yield "Doc:"
    yield _VIEWS["scope" if view == "graph" else view]
    for name in sorted(options.select):
        yield from _MEANINGS.get(name, (f"Unknown {name}",))


def _heading(view: View, options: Options) -> str:
    names, heads = list(_HEADS), {**_HEADS}
    if view not in _COUNTS_FIRST:
        names = [*names[2:9], *names[:2], *names[9:]]
        heads["occurrence"] = "op occurrence (run|defined)"
    asked = {*options.select} - ({"accelerator_micros", "cpu_micros"} if "micros" in options.select else set())
    return " | ".join(["node name", *(heads[name] for name in names if name in asked)])


def _rows(model: Model, view: View, options: Options, quirks: bool) -> Iterator[str]:
    text = ModelText(model, quirks=quirks)
    if view == "op":
        return op_rows(show_ops(model, options), options, text, model.values(options.step))
    return tree_rows(show_tree(model, view, options), view, options, text)
