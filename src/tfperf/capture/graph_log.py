"""What TensorFlow knows of a graph, as tfprof's files: the graph with its shapes, and the log of who built it.

TensorFlow's own logger writes the log. It fills shapes that the graph leaves open with those of a run, for good, in the
graph that it is given: later steps of another batch size could fail. So it gets a copy here.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfperf.base.errors import TfperfWarning
from tfperf.base.files import write_files
from tfperf.base.units import counted

TRAINABLE = "_trainable_variables"
"""The type of trainable variables in a log."""
LOG_NAME = "tfprof_log"
_UNKNOWN = re.compile(r"(\d+) ops no flops stats due to incomplete shapes\.\n")
_FED = re.compile(r"_arg_(.+)_0_\d+")
"""What runs in place of a placeholder whose first output is fed."""


def graph_and_log(
    graph: Any, *, run_metadata: bytes = b"", op_log: bytes = b"", add_trace: bool = True
) -> tuple[bytes, bytes]:
    """Return a `tf.Graph` as a serialized GraphDef with shapes, and its OpLogProto.

    `run_metadata` (of one run) says the shapes that the graph leaves open, such as the size of a batch. The log has the
    float operations of each op (lower bounds: not all ops have a formula), the stacks that built it unless `add_trace`
    is False, the type `_trainable_variables` of variables, and all of `op_log`. The graph stays as it is.
    """
    shaped = _with_shapes_of_feeds(graph, run_metadata) if run_metadata and _has_open_shapes(graph) else None
    if shaped is not None:
        op_log, _ = _logged(shaped, op_log, run_metadata=run_metadata, add_trace=False)
    log, unknown = _logged(graph, op_log, add_trace=add_trace)
    if unknown and shaped is None:
        _say_unknown(unknown, "add a step, which says them")
    return bytes((shaped or graph).as_graph_def(add_shapes=True).SerializeToString()), log


def function_graph_and_log(function: Any) -> tuple[bytes, bytes]:
    """Return the graph of a concrete function, and its log, as those of `graph_and_log`.

    Variables come into such a graph from outside, through placeholders. Each becomes a VarHandleOp of the variable's
    name and shape, as in graphs of TensorFlow 1, and has the type `_trainable_variables` if it is trainable.
    """
    from tensorflow.core.profiler import tfprof_log_pb2

    graph = function.graph
    definition = graph.as_graph_def(add_shapes=True)
    data, unknown = _logged(graph, b"")
    log = tfprof_log_pb2.OpLogProto.FromString(data)
    if unknown:
        _say_unknown(
            unknown, "trace the function with a fixed batch size: get_concrete_function(tf.TensorSpec([32, 8]))"
        )
    taken = {node.name for node in definition.node}
    variables = dict(_captured(graph))
    renamed = {name: _free_name(variable.name.partition(":")[0], taken) for name, variable in variables.items()}
    for node in definition.node:
        if (variable := variables.get(node.name)) is not None:
            _become_variable(node, renamed[node.name], variable)
        for place, source in enumerate(node.input):
            node.input[place] = _renamed(source, renamed)
    for entry in log.log_entries:
        if (variable := variables.get(entry.name)) is not None:
            entry.name = renamed[entry.name]
            entry.types.extend([TRAINABLE] if variable.trainable else [])
    return bytes(definition.SerializeToString()), bytes(log.SerializeToString())


def write_op_log(
    graph: Any, log_dir: str | Path, op_log: Any = None, run_meta: Any = None, *, add_trace: bool = True
) -> Path:
    """Write the log of a `tf.Graph` as `tfprof_log` into an existing folder; return its path.

    `op_log` is an OpLogProto of one's own, `run_meta` a RunMetadata that says the shapes that the graph leaves open.
    The file is replaced if there is one. Raises OutputError.
    """
    given, run = (b"" if each is None else each.SerializeToString() for each in (op_log, run_meta))
    _, log = graph_and_log(graph or default_graph(), run_metadata=run, op_log=given, add_trace=add_trace)
    path = Path(log_dir) / LOG_NAME
    write_files({path: log})
    return path


def default_graph() -> Any:
    """Return the graph that TensorFlow 1's functions use if none is named; None in eager mode."""
    import tensorflow

    return None if tensorflow.executing_eagerly() else tensorflow.compat.v1.get_default_graph()


def _logged(graph: Any, op_log: bytes, *, run_metadata: bytes = b"", add_trace: bool = True) -> tuple[bytes, int]:
    """Return the log that TensorFlow writes for a graph, with what `op_log` has, and how many ops lack their shapes."""
    import tensorflow
    from tensorflow.core.profiler import tfprof_log_pb2

    more = tfprof_log_pb2.OpLogProto.FromString(op_log)
    run = tensorflow.compat.v1.RunMetadata.FromString(run_metadata) if run_metadata else None
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
        tensorflow.compat.v1.profiler.write_op_log(graph, folder, op_log=more, run_meta=run, add_trace=add_trace)
        data = (Path(folder) / LOG_NAME).read_bytes()
    text = said.getvalue()
    unknown = _UNKNOWN.search(text)
    # What is not about shapes is from somebody else, perhaps from another thread.
    sys.stderr.write(_UNKNOWN.sub("", text))
    return data, int(unknown[1]) if unknown else 0


def _say_unknown(count: int, advice: str) -> None:
    message = f"float operations of {counted(count, 'op')} are unknown, since shapes are open; {advice}"
    warnings.warn(message, TfperfWarning, stacklevel=4)


def _has_open_shapes(graph: Any) -> bool:
    return any(not output.shape.is_fully_defined() for op in graph.get_operations() for output in op.outputs)


def _with_shapes_of_feeds(graph: Any, run_metadata: bytes) -> Any:
    """Return a copy of the graph in which what was fed in a run has the shape that it had there, and what follows."""
    import tensorflow

    # The shapes that are stated are merged with those that follow: of loops, the graph itself knows more.
    definition, fed = graph.as_graph_def(add_shapes=True), dict(_fed_shapes(run_metadata))
    for node in definition.node:
        if node.op.startswith("Placeholder") and node.name in fed:
            node.attr["shape"].shape.CopyFrom(fed[node.name])
    copy = tensorflow.Graph()
    with copy.as_default(), contextlib.suppress(ValueError):
        tensorflow.import_graph_def(definition, name="")
        return copy
    return None  # What cannot be copied keeps its open shapes.


def _fed_shapes(run_metadata: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the nodes that were fed in a run, and the shapes of their first outputs."""
    from tensorflow.compat import v1

    for device in v1.RunMetadata.FromString(run_metadata).step_stats.dev_stats:
        for record in device.node_stats:
            if (fed := _FED.fullmatch(record.node_name)) and record.output:
                yield fed[1], record.output[0].tensor_description.shape


def _captured(graph: Any) -> Iterator[tuple[str, Any]]:
    """Yield the placeholders through which variables come into the graph of a function, and the variables."""
    placeholders = {id(outside): inside for outside, inside in graph.captures}
    for variable in graph.variables:
        inside = placeholders.get(id(getattr(variable, "handle", None)))
        if inside is not None:
            yield inside.op.name, variable


def _free_name(wanted: str, taken: set[str]) -> str:
    """Return the name, with _1, _2, ... where it is taken, and take it."""
    name, number = wanted, 0
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


def _become_variable(node: Any, name: str, variable: Any) -> None:
    node.name, node.op = name, "VarHandleOp"
    node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
    node.attr["dtype"].type = variable.dtype.as_datatype_enum
    node.attr["shared_name"].s = name.encode()


def _renamed(source: str, names: Mapping[str, str]) -> str:
    """Return an input, whose source may have another name: `name`, `name:slot` or `^name`."""
    control = "^" * source.startswith("^")
    name, colon, slot = source.removeprefix("^").partition(":")
    return f"{control}{names.get(name, name)}{colon}{slot}"
