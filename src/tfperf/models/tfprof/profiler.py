"""The Python API of tfprof, as code for `tf.compat.v1.profiler` uses it: graph, records and log of this process.

Nothing is imported from TensorFlow unless a live `tf.Graph` is given. Each Profiler is its own; any number may exist.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

from tfperf.models.tfprof.attributes import OptionError
from tfperf.models.tfprof.graph_def import Graph, read_graph
from tfperf.models.tfprof.input_file import InputFile
from tfperf.models.tfprof.model import Model, build_model
from tfperf.models.tfprof.op_log import OpLog, read_op_log
from tfperf.models.tfprof.option_builder import ProfileOptionBuilder
from tfperf.models.tfprof.options import Options, options_from
from tfperf.models.tfprof.outputs import parse_output, write_output
from tfperf.models.tfprof.profile_result import ProfileNode, profile_model
from tfperf.models.tfprof.profile_writer import profile_bytes
from tfperf.models.tfprof.run_metadata import Records, read_run_metadata
from tfperf.models.tfprof.views import View

if TYPE_CHECKING:
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
        return _shown(self.model, view, options_from(options))


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


def _shown(model: Model, view: View, options: Options) -> ProfileNode:
    """Print or write a view, and return it."""
    target = parse_output(options.output, view)
    write_output(model, view, options, target, quirks=False)
    return profile_model(model, view, options)


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
