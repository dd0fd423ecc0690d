"""The Python API of tfprof, as code for `tf.compat.v1.profiler` uses it: graph, records and log of this process.

Nothing is imported from TensorFlow unless a live `tf.Graph` is given. Each Profiler is its own; any number may exist.
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
    """Joins a graph with what its steps recorded, and shows it in four views.

    `graph` is a `tf.Graph`, which may still grow, or a GraphDef (also serialized); without it, the default graph of
    TensorFlow 1. `op_log` is an OpLogProto (also serialized) with types of one's own. The log of a `tf.Graph` is made
    here: float operations, code, trainable variables.

        profiler = Profiler(session.graph)
        profiler.add_step(70, run_metadata)
        profiler.profile_name_scope(ProfileOptionBuilder.trainable_variables_parameter())

    The methods `profile_...` take options as `ProfileOptionBuilder` makes them, and return the root of what they print
    or write. They raise ValueError for options that mean nothing, TfprofInputError (a TfperfError) for damaged data,
    and OutputError.
    """

    def __init__(self, graph: Any = None, op_log: Any = None) -> None:
        self._source = _GraphSource(graph, op_log)
        self._steps: dict[int, list[Records]] = {}
        self._latest = b""
        self._read: tuple[Any, Graph, Model] | None = None

    def add_step(self, step: int, run_meta: Any) -> None:
        """Add what a run recorded: a RunMetadata (also serialized) of its own; several of one step are put together.

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
        """Show op types; each total counts what follows."""
        return self._profile("op", options)

    def profile_python(self, options: Mapping[str, Any]) -> ProfileNode:
        """Show nodes by the lines of code that built them."""
        return self._profile("code", options)

    def advise(self, options: Mapping[str, Any] | None = None) -> Report:
        """Print what the checkers find, and return it: all of them, or those that `options` has as keys.

        Keys are names such as `OperationChecker`; their values are not used. Raises ValueError for an unknown one.
        """
        from tfperf.models.tfprof.advise import CHECKERS, advise_report
        from tfperf.report.render import render, write

        report = advise_report(self.model, checkers=[*options] if options else CHECKERS)
        write(render(report, "table"), None)
        return report

    def serialize_to_string(self) -> bytes:
        """Return all that is known as a ProfileProto, which `tfperf tfprof --profile` and TensorFlow's tfprof read."""
        graph, model = self._joined()
        return profile_bytes(graph, model)

    @property
    def model(self) -> Model:
        """All that is known of the graph now."""
        return self._joined()[1]

    def _joined(self) -> tuple[Graph, Model]:
        state = (self._source.version, {step: len(parts) for step, parts in self._steps.items()})
        if self._read is None or self._read[0] != state:
            graph, log = self._source.read(self._latest)
            self._read = (state, graph, build_model(graph, dict(sorted(self._steps.items())), log))
        return self._read[1:]

    def _profile(self, view: View, options: Mapping[str, Any]) -> ProfileNode:
        """Print or write a view, and return it."""
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
    """Show one view (`cmd`: scope, graph, op or code) of a graph and of one run of it, if there is one.

    All is as for `Profiler`; without options, the parameters of trainable variables are shown.
    """
    if cmd not in get_args(View):
        raise OptionError(f"cmd {cmd!r} is unknown: use one of {', '.join(get_args(View))}")
    profiler = Profiler(graph, op_log)
    if run_meta is not None:
        profiler.add_step(0, run_meta)
    given = ProfileOptionBuilder.trainable_variables_parameter() if options is None else options
    return profiler._profile(cast(View, cmd), given)


class _GraphSource:
    """Where a graph and its log come from: a live graph of TensorFlow, or messages."""

    def __init__(self, graph: Any, op_log: Any) -> None:
        self._graph = _default_graph() if graph is None else graph
        self._is_live = hasattr(self._graph, "as_graph_def")
        self._op_log = b"" if op_log is None else _serialized(op_log)
        if not self._is_live:
            self._graph = _serialized(self._graph)

    @property
    def version(self) -> Any:
        """What changes when the graph does."""
        return self._graph.version if self._is_live else 0

    def read(self, run_metadata: bytes) -> tuple[Graph, OpLog | None]:
        """Return the graph and its log as they are now; the record of a run says the shapes that are open."""
        definition, log = self._graph, self._op_log
        if self._is_live:
            from tfperf.capture.graph_collector import graph_and_log

            definition, log = graph_and_log(self._graph, run_metadata=run_metadata, op_log=self._op_log)
        graph = read_graph(InputFile(Path("graph"), "GraphDef", definition))
        return graph, read_op_log(InputFile(Path("op_log"), "OpLogProto", log)) if log else None


def _default_graph() -> Any:
    """Return the default graph of TensorFlow 1, which is there where TensorFlow has been imported."""
    graph = None
    if "tensorflow" in sys.modules:
        from tfperf.capture.graph_collector import default_graph

        graph = default_graph()
    if graph is None:
        raise OptionError("there is no default graph (TensorFlow runs eagerly, or is not imported): give one")
    return graph


def _serialized(message: Any) -> bytes:
    """Return a message as bytes, from itself or from bytes."""
    if isinstance(message, (bytes, bytearray, memoryview)):
        return bytes(message)
    if not hasattr(message, "SerializeToString"):
        raise OptionError(f"give a message of TensorFlow, or its bytes, not {type(message).__name__}")
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
"""Which attribute each field has; `total_` fields have the totals."""


class ProfileNode(Struct, kw_only=True):
    """A row of a view, and the rows below it: a node, a scope, an op type, or a line of code.

    Times are microseconds, memory is bytes, of one step or the mean of all. `total_` fields hold what is below too; in
    the op view, what follows: there each row is the only child of the one before, as in tfprof. `graph_nodes` are the
    nodes that an op type or a line of code stands for. `depth` is 0 for the root.
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
    """The shape of a variable."""
    devices: tuple[str, ...] = ()
    graph_nodes: list[ProfileNode] = field(default_factory=list)
    children: list[ProfileNode] = field(default_factory=list)

    def __repr__(self) -> str:
        """Name the row, and how many are below it."""
        return f"ProfileNode({self.name!r}, {sum(1 for _ in self.rows()) - 1} rows below)"

    def rows(self) -> Iterator[ProfileNode]:
        """Yield this row and all below it, in the order in which they are printed."""
        waiting = [self]
        while waiting:
            row = waiting.pop()
            yield row
            waiting += row.children[::-1]

    @property
    def table(self) -> pandas.DataFrame:
        """The rows as a DataFrame, one each: `name`, `depth`, and all fields that are numbers."""
        import pandas

        columns = ("name", "depth", *FIELDS, *(f"total_{name}" for name in FIELDS), "total_definition_count")
        rows = [*self.rows()]
        return pandas.DataFrame({name: [getattr(row, name) for row in rows] for name in columns})


def profile_model(model: Model, view: View, options: Options) -> ProfileNode:
    """Return what a view shows of a model: its root, with the rows below it."""
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
    """Return the op view: a root, and each row below the one before."""
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
    """Return a list of the attributes of each row."""
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
