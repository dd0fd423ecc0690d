"""Graphs, records of runs and logs, made in a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from places import SHARED

from tfperf.formats.models.messages import TENSORFLOW
from tfperf.models.tfprof.model import AVERAGE, Model
from tfperf.models.tfprof.options import PLACE, Attribute, Options
from tfperf.models.tfprof.reference import ModelText, op_rows, tree_rows
from tfperf.models.tfprof.sources import Sources, read_model, steps_of
from tfperf.models.tfprof.views import View, show_ops, show_tree

CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
STREAMS = "/device:GPU:0/stream:all"
Shape = Sequence[int] | None
REFERENCE = SHARED / "tfprof"
"""What the reference made of graphs and runs; tests of it are skipped where it is not."""


def message(kind: str, /, **fields: Any) -> bytes:
    """Return a serialized message of TensorFlow."""
    return bytes(TENSORFLOW.message_class(kind)(**fields).SerializeToString())


def shape(dims: Shape) -> dict[str, Any]:
    return {"unknown_rank": 1} if dims is None else {"dim": [{"size": size} for size in dims]}


def node(
    name: str,
    op: str,
    *inputs: str,
    outputs: Sequence[Shape] = (),
    variable: Shape = (),
    dtype: int = 0,
    nhwc: bool = False,
) -> bytes:
    """Return a node; `outputs` are the shapes of its outputs, `variable` and `dtype` its own attributes."""
    attrs = []
    if dtype:
        attrs.append({"key": b"dtype", "value": message("TypeAttr", type=dtype)})
    if outputs:
        shapes = {"shape": [shape(dims) for dims in outputs]}
        attrs.append({"key": b"_output_shapes", "value": message("ShapeAttr", list=shapes)})
    if variable != ():
        attrs.append({"key": b"shape", "value": message("ShapeAttr", shape=shape(variable))})
    if nhwc:
        attrs.append({"key": b"data_format", "value": b"\x12\x04NHWC"})
    return message("NodeDef", name=name.encode(), op=op.encode(), input=[each.encode() for each in inputs], attr=attrs)


def graph(*nodes: bytes) -> bytes:
    return message("GraphDef", node=nodes)


def ran(name: str, start: int, duration: int, *, memory: int = 0, output: int = 0, **fields: Any) -> bytes:
    """Return what was recorded of a node: microseconds, bytes that it asked for, and bytes that it put out."""
    if memory:
        fields["memory"] = [
            {"allocator_name": b"cpu", "total_bytes": memory, "peak_bytes": memory, "live_bytes": memory}
        ]
    if output:
        fields["output"] = [{"tensor_description": {"allocation_description": {"requested_bytes": output}}}]
    return message(
        "NodeExecStats", node_name=name.encode(), all_start_micros=start, op_end_rel_micros=duration, **fields
    )


def run_metadata(devices: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return what a run recorded, by device."""
    stats = [
        message("DeviceStepStats", device=device.encode(), node_stats=records) for device, records in devices.items()
    ]
    return message("RunMetadata", step_stats=[message("StepStats", dev_stats=stats)])


def op_log(entries: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return a log: for each node its `float_ops`, `types`, and `stack` (file, line, function), outermost first."""
    strings: dict[str, int] = {}
    written = []
    for name, entry in entries.items():
        traces = [
            {
                "file_id": strings.setdefault(file, len(strings) + 1),
                "lineno": line,
                "function_id": strings.setdefault(function, len(strings) + 1),
            }
            for file, line, function in entry.get("stack", ())
        ]
        facts = {"float_ops": entry.get("float_ops", 0), "types": [kind.encode() for kind in entry.get("types", ())]}
        written.append({"name": name.encode(), "code_def": {"traces": traces}, **facts})
    texts = [{"key": key, "value": text.encode()} for text, key in strings.items()]
    return message("OpLogProto", log_entries=written, id_to_string=texts)


def profile(nodes: Sequence[Mapping[str, Any]], strings: Mapping[int, str] = {}) -> bytes:
    """Return a profile; each node has the fields of a `ProfileNode`, and its id is its place from 1."""
    pairs = [{"key": key, "value": message("ProfileNode", **fields)} for key, fields in enumerate(nodes, start=1)]
    texts = [{"key": key, "value": text.encode()} for key, text in strings.items()]
    return message("ProfileProto", nodes=pairs, id_to_string=texts)


def model(folder: Path, nodes: Sequence[bytes], steps: Mapping[int, bytes] = {}, log: bytes = b"") -> Model:
    """Return the model of these nodes, records of steps, and log."""
    (folder / "graph.pb").write_bytes(graph(*nodes))
    files = {}
    for step, recorded in steps.items():
        files[step] = [folder / f"run_metadata_{step}.pb"]
        files[step][0].write_bytes(recorded)
    if log:
        (folder / "log").write_bytes(log)
    return read_model(Sources(graph=folder / "graph.pb", run_metadata=files, op_log=folder / "log" if log else None))


def values_of(of: Model, attribute: Attribute, step: int = AVERAGE) -> dict[str, int]:
    """Return an attribute of each node, by its name."""
    return dict(zip(of.names, of.values(step)[PLACE[attribute]].tolist(), strict=True))


def text_rows(of: Model, view: View, options: Options, *, quirks: bool = True) -> list[str]:
    """Return the rows of tfprof's text, with the reference's own mistake about outputs (D1) or without."""
    text = ModelText(of, quirks=quirks)
    if view == "op":
        return [*op_rows(show_ops(of, options), options, text, of.values(options.step))]
    return [*tree_rows(show_tree(of, view, options), view, options, text)]


def reference_model(name: str, way: str = "graph") -> Model:
    """Return the model of a set of the reference, from its graph and runs, or from its profile."""
    folder = REFERENCE / name
    if way == "profile":
        return read_model(Sources(profile=folder / "profile.pb"))
    metadata = {"mnist": "run_meta/*.pb", "mnist_res": "run_meta/*.pb"}.get(name, "run_metadata*.pb")
    steps = steps_of([str(folder / metadata)])
    return read_model(Sources(graph=folder / "graph.pb", run_metadata=steps, op_log=folder / "tfprof_log"))
