"""The Python API of tfprof, compatible with `tf.compat.v1.profiler`.

TensorFlow is imported only for a live `tf.Graph`. Profilers are independent of each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from msgspec import Struct, field

from tfperf.base.arrays import Int64s
from tfperf.formats.models.graph_def import Graph, read_graph
from tfperf.formats.models.input_file import InputFile
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import Model, build_model
from tfperf.models.tfprof.op_log import OpLog, read_op_log
from tfperf.models.tfprof.options import PLACE, Attribute, Options, ProfileOptionBuilder, options_from
from tfperf.models.tfprof.outputs import parse_output, write_output
from tfperf.models.tfprof.profile_proto import profile_bytes
from tfperf.models.tfprof.run_metadata import Records, read_run_metadata
from tfperf.models.tfprof.views import ROOT, View, show_ops, show_tree

if TYPE_CHECKING:
    import pandas

    from tfperf.report.model import Report


class Profiler:
    """Joins a graph with the records of its steps, and shows it in four views.

    `graph` is a `tf.Graph`, which may still grow, or a GraphDef (also serialized); the default is the default graph of
    TensorFlow 1. `op_log` is an OpLogProto (also serialized) with additional types. For a `tf.Graph`, float operations,
    code and trainable variables are logged automatically.

        profiler = Profiler(session.graph)
        profiler.add_step(70, run_metadata)
        profiler.profile_name_scope(ProfileOptionBuilder.trainable_variables_parameter())

    The methods `profile_...` take options of `ProfileOptionBuilder`, and return the root of the printed or written
    view. They raise ValueError for invalid options, TfprofInputError (a TfperfError) for damaged data, and OutputError.
    """

    def __init__(self, graph: Any = None, op_log: Any = None) -> None:
        self._source = _GraphSource(graph, op_log)
        self._steps: dict[int, list[Records]] = {}
        self._latest = b""
        self._read: tuple[Any, Graph, Model] | None = None

    def add_step(self, step: int, run_meta: Any) -> None:
        """Add the RunMetadata (also serialized) of a run; several runs of one step are merged.

        Raises TfprofInputError if it holds no records, ValueError for a negative step.
        """
        if step < 0:
            raise OptionError(f"step must be 0 or more, not {step}")
        serialized = _serialized(run_meta)
        records = read_run_metadata(InputFile(Path(f"RunMetadata of step {step}"), "RunMetadata", serialized))
        self._steps.setdefault(step, []).append(records)
        self._latest = serialized

    def profile_name_scope(self, options: Mapping[str, Any]) -> ProfileNode:
        """Show nodes by name scope."""
        return self._profile("scope", options)

    def profile_graph(self, options: Mapping[str, Any]) -> ProfileNode:
        """Show nodes below those that they feed."""
        return self._profile("graph", options)

    def profile_operations(self, options: Mapping[str, Any]) -> ProfileNode:
        """Show op types; each total includes the rows that follow."""
        return self._profile("op", options)

    def profile_python(self, options: Mapping[str, Any]) -> ProfileNode:
        """Show nodes by the lines of code that built them."""
        return self._profile("code", options)

    def advise(self, options: Mapping[str, Any] | None = None) -> Report:
        """Print and return the findings of all checkers, or of those that are keys of `options`.

        Keys are names such as `OperationChecker`; their values are ignored. Raises ValueError for an unknown checker.
        """
        from tfperf.models.tfprof.advise import CHECKERS, advise_report
        from tfperf.report.render import render, write

        report = advise_report(self.model, checkers=[*options] if options else CHECKERS)
        write(render(report, "table"), None)
        return report

    def serialize_to_string(self) -> bytes:
        """Return the model as a ProfileProto, which `tfperf tfprof --profile` and TensorFlow's tfprof read."""
        graph, model = self._joined()
        return profile_bytes(graph, model)

    @property
    def model(self) -> Model:
        """Current model of the graph."""
        return self._joined()[1]

    def _joined(self) -> tuple[Graph, Model]:
        state = (self._source.version, {step: len(parts) for step, parts in self._steps.items()})
        if self._read is None or self._read[0] != state:
            graph, log = self._source.read(self._latest)
            self._read = (state, graph, build_model(graph, dict(sorted(self._steps.items())), log))
        return self._read[1:]

    def _profile(self, view: View, options: Mapping[str, Any]) -> ProfileNode:
        asked, model = options_from(options), self.model
        write_output(model, view, asked, parse_output(asked.output, view), quirks=False)
        return profile_model(model, view, asked)


def profile(
    graph: Any = None,
    run_meta: Any = None,
    op_log: Any = None,
    cmd: str = "scope",
    options: Mapping[str, Any] | None = None,
) -> ProfileNode:
    """Show one view (`cmd`: scope, graph, op or code) of a graph, and of one run if `run_meta` is given.

    Arguments are as for `Profiler`; without options, the parameters of trainable variables are shown.
    """
    if cmd not in get_args(View):
        raise OptionError(f"cmd {cmd!r} is unknown: use one of {', '.join(get_args(View))}")
    profiler = Profiler(graph, op_log)
    if run_meta is not None:
        profiler.add_step(0, run_meta)
    given = ProfileOptionBuilder.trainable_variables_parameter() if options is None else options
    return profiler._profile(cast(View, cmd), given)


class _GraphSource:
    """Source of a graph and its log: a live TensorFlow graph, or messages."""

    def __init__(self, graph: Any, op_log: Any) -> None:
        self._graph = _default_graph() if graph is None else graph
        self._is_live = hasattr(self._graph, "as_graph_def")
        self._op_log = b"" if op_log is None else _serialized(op_log)
        if not self._is_live:
            self._graph = _serialized(self._graph)

    @property
    def version(self) -> Any:
        """Value that changes when the graph does."""
        return self._graph.version if self._is_live else 0

    def read(self, run_metadata: bytes) -> tuple[Graph, OpLog | None]:
        """Return the current graph and log; the record of a run completes unknown shapes."""
        definition, log = self._graph, self._op_log
        if self._is_live:
            from tfperf.capture.graph_collector import graph_and_log

            definition, log = graph_and_log(self._graph, run_metadata=run_metadata, op_log=self._op_log)
        graph = read_graph(InputFile(Path("graph"), "GraphDef", definition))
        return graph, read_op_log(InputFile(Path("op_log"), "OpLogProto", log)) if log else None


def _default_graph() -> Any:
    """Return the default graph of TensorFlow 1, if TensorFlow has been imported."""
    graph = None
    if "tensorflow" in sys.modules:
        from tfperf.capture.graph_collector import default_graph

        graph = default_graph()
    if graph is None:
        raise OptionError("there is no default graph (TensorFlow runs eagerly or is not imported): pass a graph")
    return graph


def _serialized(message: Any) -> bytes:
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message)
    if not hasattr(message, "SerializeToString"):
        raise OptionError(f"expected a TensorFlow message or its bytes, not {type(message).__name__}")
    return bytes(message.SerializeToString())


FIELDS: dict[str, Attribute] = {
    "exec_micros": "micros",
    "accelerator_exec_micros": "accelerator_micros",
    "cpu_exec_micros": "cpu_micros",
    "requested_bytes": "bytes",
    "peak_bytes": "peak_bytes",
    "residual_bytes": "residual_bytes",
    "output_bytes": "output_bytes",
    "parameters": "params",
    "float_ops": "float_ops",
    "run_count": "runs",
}
"""Attribute of each field; `total_` fields have the totals."""


class ProfileNode(Struct, kw_only=True):
    """A row of a view (node, scope, op type or line of code) with its child rows.

    Times are microseconds and memory is bytes, of one step or the mean of all. `total_` fields include the rows below.
    In the op view each row is the only child of the previous one, as in tfprof, so totals include all later rows.
    `graph_nodes` are the nodes of an op type or a line of code. `depth` is 0 for the root.
    """

    name: str
    depth: int = 0
    exec_micros: int = 0
    accelerator_exec_micros: int = 0
    cpu_exec_micros: int = 0
    requested_bytes: int = 0
    peak_bytes: int = 0
    residual_bytes: int = 0
    output_bytes: int = 0
    parameters: int = 0
    float_ops: int = 0
    run_count: int = 0
    total_exec_micros: int = 0
    total_accelerator_exec_micros: int = 0
    total_cpu_exec_micros: int = 0
    total_requested_bytes: int = 0
    total_peak_bytes: int = 0
    total_residual_bytes: int = 0
    total_output_bytes: int = 0
    total_parameters: int = 0
    total_float_ops: int = 0
    total_run_count: int = 0
    total_definition_count: int = 0
    shape: tuple[int, ...] = ()
    """Shape of a variable."""
    devices: tuple[str, ...] = ()
    graph_nodes: list[ProfileNode] = field(default_factory=list)
    children: list[ProfileNode] = field(default_factory=list)

    def __repr__(self) -> str:
        """Return the name of the row and its number of child rows."""
        return f"ProfileNode({self.name!r}, {sum(1 for _ in self.rows()) - 1} rows below)"

    def rows(self) -> Iterator[ProfileNode]:
        """Yield this row and all rows below it, in printed order."""
        waiting = [self]
        while waiting:
            row = waiting.pop()
            yield row
            waiting += row.children[::-1]

    @property
    def table(self) -> pandas.DataFrame:
        """The rows as a DataFrame, one each: `name`, `depth`, and all numeric fields."""
        import pandas

        columns = ("name", "depth", *FIELDS, *(f"total_{name}" for name in FIELDS), "total_definition_count")
        rows = [*self.rows()]
        return pandas.DataFrame({name: [getattr(row, name) for row in rows] for name in columns})


def profile_model(model: Model, view: View, options: Options) -> ProfileNode:
    """Return the root of a view, with the rows below it."""
    values = model.values(options.step)
    if view == "op":
        return _list_of_ops(model, options, values)
    shown = show_tree(model, view, options, values)
    nodes = shown.tree.node.tolist()
    own, total = _by_row(shown.tree.own), _by_row(shown.total)
    above: list[ProfileNode] = []
    for row, (name, depth) in enumerate(zip(shown.tree.names, shown.tree.depth.tolist(), strict=True)):
        of = shown.built.get(nodes[row], []) if view == "code" else [nodes[row]] if nodes[row] >= 0 else []
        made = _row(name, own[row], total[row])
        made.depth, made.devices = depth, _devices(model, of)
        if view == "code":
            made.graph_nodes = _graph_nodes(model, of, values)
        elif of:
            made.shape = model.shape.dims(of[0])
        del above[depth:]
        if above:
            above[-1].children.append(made)
        above.append(made)
    return above[0]


def _list_of_ops(model: Model, options: Options, values: Int64s) -> ProfileNode:
    """Return the op view: a root, and each row as the child of the previous one."""
    shown = show_ops(model, options, values)
    root = last = _row(ROOT, [0] * len(PLACE), shown.root_total.tolist())
    for depth, (name, own, total, nodes) in enumerate(
        zip(shown.names, _by_row(shown.own), _by_row(shown.total), shown.nodes, strict=True), 1
    ):
        made = _row(name, own, total)
        made.depth, made.devices = depth, _devices(model, nodes.tolist())
        made.graph_nodes = _graph_nodes(model, nodes.tolist(), values)
        last.children.append(made)
        last = made
    return root


def _by_row(values: Int64s) -> list[list[int]]:
    rows: list[list[int]] = values.T.tolist()
    return rows


def _row(name: str, own: Sequence[int], total: Sequence[int]) -> ProfileNode:
    made = ProfileNode(name=name, total_definition_count=total[PLACE["definitions"]])
    for name, attribute in FIELDS.items():
        setattr(made, name, own[PLACE[attribute]])
        setattr(made, f"total_{name}", total[PLACE[attribute]])
    return made


def _graph_nodes(model: Model, nodes: Sequence[int], values: Int64s) -> list[ProfileNode]:
    made = []
    for node in nodes:
        own = values[:, node].tolist()
        row = _row(model.names[node], own, own)
        row.devices, row.shape = _devices(model, [node]), model.shape.dims(node)
        made.append(row)
    return made


def _devices(model: Model, nodes: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted({model.device[node] for node in nodes} - {""}))
