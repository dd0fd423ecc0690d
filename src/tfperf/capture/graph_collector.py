"""Collects the files that `tfperf tfprof` reads, inside the job.

A collection is a folder:

    graph.pb                the graph, with shapes (GraphDef)
    tfprof_log              stacks that built the nodes, their float operations and types (OpLogProto)
    run_metadata_STEP.pb    record of a traced step (RunMetadata), one file each; none for a tf.function
    model.ckpt.*            a checkpoint of the variables, if a saver is given

TensorFlow's logger, which writes the log, permanently replaces open shapes in its graph with those of one run; later
steps with another batch size could fail. Therefore it gets a copy.
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

from msgspec import Struct

from tfperf.base.errors import OutputError, TfperfWarning
from tfperf.base.files import cannot_write, replace_file, write_files
from tfperf.base.units import counted, format_bytes

GRAPH_NAME = "graph.pb"
CHECKPOINT_NAME = "model.ckpt"
_FULL_TRACE = 3


def step_name(step: int) -> str:
    """Return the file name for the record of a step."""
    return f"run_metadata_{step}.pb"


class Collected(Struct, frozen=True, kw_only=True):
    """Collected files: the traced steps, their bytes, and a note on missing data (times, for a function) or a stop."""

    folder: Path
    steps: tuple[int, ...] = ()
    size_bytes: int = 0
    stopped: str = ""
    note: str = ""


class Collector:
    """Collects the files for `tfperf tfprof` in a new or empty folder.

    The folder gets graph.pb, tfprof_log, run_metadata_STEP.pb of each traced step, and model.ckpt.* if requested.

    Sessions of `tf.compat.v1`: call `run` instead of `session.run`. Every `every`-th step, starting with the first, is
    traced (FULL_TRACE, which makes it slower), and its record is written at once. Tracing stops for good, with a
    TfperfWarning, after `max_steps` steps, if their files would exceed `max_bytes`, or if one cannot be written; the
    job continues. `saver`, a `tf.compat.v1.train.Saver`, writes a checkpoint of its variables at the end.

    Functions of TensorFlow 2: call `add_function`. TensorFlow 2 records no times and memory of nodes, so the views
    contain only parameters, float operations and code; for times, use `tfperf capture`.

    Raises OutputError if the folder is not empty or cannot be written, ValueError for limits below 1.

        with Collector("collected", every=10) as collector:
            for step in range(100):
                collector.run(session, [train_op, loss], feed_dict=batch())
    """

    def __init__(
        self, folder: str | Path, *, every: int = 10, max_steps: int = 20, max_bytes: int = 256 << 20, saver: Any = None
    ) -> None:
        for name, value in (("every", every), ("max_steps", max_steps), ("max_bytes", max_bytes)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        self._folder = Path(folder)
        self._every, self._max_steps, self._max_bytes, self._saver = every, max_steps, max_bytes, saver
        self._sizes: dict[int, int] = {}
        self._stopped = ""
        self._note = ""
        self._is_closed = False
        self._next_step = 0
        self._session: Any = None
        self._written_version: int | None = None
        self._latest = b""
        with self._reported():
            self._folder.mkdir(parents=True, exist_ok=True)
            if any(self._folder.iterdir()):
                raise OutputError(
                    f"{self._folder} is not empty, and its files are not overwritten; choose a new folder"
                )

    @property
    def collected(self) -> Collected:
        """The state of the collection so far."""
        steps = tuple(self._sizes)
        return Collected(
            folder=self._folder,
            steps=steps,
            size_bytes=sum(self._sizes.values()),
            stopped=self._stopped,
            note=self._note,
        )

    def run(
        self,
        session: Any,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        *,
        options: Any = None,
        run_metadata: Any = None,
        step: int | None = None,
    ) -> Any:
        """Return the result of `session.run`; trace the run if it is due.

        `step` is by default counted from 0; `options`, `run_metadata` and errors are those of `session.run`.
        """
        step = self._next_step if step is None else step
        self._next_step = step + 1
        is_turn = step >= 0 and step % self._every == 0 and step not in self._sizes
        if self._stopped or self._is_closed or not is_turn:
            return session.run(fetches, feed_dict, options=options, run_metadata=run_metadata)
        from tensorflow.compat import v1

        traced = v1.RunOptions()
        if options is not None:
            traced.CopyFrom(options)
        traced.trace_level = _FULL_TRACE
        metadata = v1.RunMetadata()
        result = session.run(fetches, feed_dict, options=traced, run_metadata=metadata)
        if run_metadata is not None:
            run_metadata.CopyFrom(metadata)
        self._session = session
        try:
            self._keep(step, metadata.SerializeToString())
        except OutputError as error:
            self._session = None  # Write nothing more, not even at the end.
            self._stop(str(error))
        return result

    def add_function(self, function: Any) -> Collected:
        """Write the graph and the log of a concrete function, `function.get_concrete_function(...)`.

        Float operations exclude called functions and loops. A folder holds one graph. Raises ValueError for others.
        """
        if not hasattr(getattr(function, "graph", None), "captures"):
            raise ValueError(
                f"expected a concrete function, not {type(function).__name__}: "
                "collector.add_function(train_step.get_concrete_function(x, y))"
            )
        if self._written_version is not None:
            raise OutputError(f"{self._folder} already has a graph; use another Collector for another function")
        self._write_graph(function.graph, *function_graph_and_log(function))
        self._note = "times and memory are missing: TensorFlow 2 does not record them per node; use tfperf capture"
        return self.collected

    def close(self) -> Collected:
        """Write the current graph and the checkpoint. The files stay, and later runs are not traced."""
        if self._session is not None:
            session, self._session = self._session, None
            graph = session.graph
            if graph.version != self._written_version:
                self._write_graph(graph, *graph_and_log(graph, run_metadata=self._latest))
            if self._saver is not None:
                # A separate saver, because the given one would delete its oldest checkpoint.
                from tensorflow.compat import v1

                with session.graph.as_default():
                    saver = v1.train.Saver(saver_def=self._saver.as_saver_def())
                    saver.save(session, str(self._folder / CHECKPOINT_NAME), write_meta_graph=False, write_state=False)
        self._is_closed = True
        return self.collected

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()

    def _keep(self, step: int, record: bytes) -> None:
        """Write the record of a step if it fits, and check whether another one fits."""
        taken = sum(self._sizes.values())
        if taken + len(record) > self._max_bytes:
            needs = f"the record of step {step} has {format_bytes(len(record))}; already written: {format_bytes(taken)}"
            self._stop(f"max_bytes={self._max_bytes} is reached ({needs})")
            return
        self._write(step_name(step), record)
        self._sizes[step] = len(record)
        self._latest = record
        if self._written_version is None:
            graph = self._session.graph
            self._write_graph(graph, *graph_and_log(graph, run_metadata=record))
        if len(self._sizes) == self._max_steps:
            self._stop(f"max_steps={self._max_steps} is reached")

    def _stop(self, limit: str) -> None:
        self._stopped = limit
        steps = counted(len(self._sizes), "step")
        message = f"wrote tfprof data of {steps} to {self._folder}; tracing stopped: {limit}"
        warnings.warn(message, TfperfWarning, stacklevel=4)

    def _write_graph(self, graph: Any, definition: bytes, log: bytes) -> None:
        self._write(GRAPH_NAME, definition)
        self._write(LOG_NAME, log)
        self._written_version = graph.version

    def _write(self, name: str, data: bytes) -> None:
        with self._reported():
            replace_file(self._folder / name, data)

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(self._folder, error) from error


TRAINABLE = "_trainable_variables"
LOG_NAME = "tfprof_log"
_UNKNOWN = re.compile(r"(\d+) ops no flops stats due to incomplete shapes\.\n")
_FED = re.compile(r"_arg_(.+)_0_\d+")
"""The op that replaces a placeholder whose first output is fed."""


def graph_and_log(
    graph: Any, *, run_metadata: bytes = b"", op_log: bytes = b"", add_trace: bool = True
) -> tuple[bytes, bytes]:
    """Return a `tf.Graph` as a serialized GraphDef with shapes, and its OpLogProto.

    `run_metadata` of one run provides shapes that the graph leaves open, such as the batch size. The log contains the
    float operations of each op (lower bounds, because some ops have no formula), the stacks that built it unless
    `add_trace` is False, the type `_trainable_variables` of variables, and `op_log`. The graph does not change.
    """
    outputs = (output for op in graph.get_operations() for output in op.outputs)
    is_open = run_metadata and any(not output.shape.is_fully_defined() for output in outputs)
    shaped = _with_shapes_of_feeds(graph, run_metadata) if is_open else None
    if shaped is not None:
        op_log, _ = _logged(shaped, op_log, run_metadata=run_metadata, add_trace=False)
    log, unknown = _logged(graph, op_log, add_trace=add_trace)
    if unknown and shaped is None:
        _say_unknown(unknown, "add a step, which records them")
    return bytes((shaped or graph).as_graph_def(add_shapes=True).SerializeToString()), log


def function_graph_and_log(function: Any) -> tuple[bytes, bytes]:
    """Return the graph and the log of a concrete function, as `graph_and_log` does.

    Variables enter this graph through placeholders. Each becomes a VarHandleOp with the variable's name and shape, as
    in graphs of TensorFlow 1, and has the type `_trainable_variables` if it is trainable.
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
    placeholders = {id(outside): inside for outside, inside in graph.captures}
    insides = [(placeholders.get(id(getattr(variable, "handle", None))), variable) for variable in graph.variables]
    variables = {inside.op.name: variable for inside, variable in insides if inside is not None}
    taken, renamed = {node.name for node in definition.node}, {}
    for placeholder, variable in variables.items():
        wanted = variable.name.partition(":")[0]
        name, number = wanted, 0
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        renamed[placeholder] = name
        taken.add(name)
    for node in definition.node:
        if (variable := variables.get(node.name)) is not None:
            name = renamed[node.name]
            node.name, node.op = name, "VarHandleOp"
            node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
            node.attr["dtype"].type = variable.dtype.as_datatype_enum
            node.attr["shared_name"].s = name.encode()
        for place, source in enumerate(node.input):
            # An input is `name`, `name:slot` or `^name`.
            name, colon, slot = source.removeprefix("^").partition(":")
            node.input[place] = f"{'^' * source.startswith('^')}{renamed.get(name, name)}{colon}{slot}"
    for entry in log.log_entries:
        if (variable := variables.get(entry.name)) is not None:
            entry.name = renamed[entry.name]
            entry.types.extend([TRAINABLE] if variable.trainable else [])
    return bytes(definition.SerializeToString()), bytes(log.SerializeToString())


def write_op_log(
    graph: Any, log_dir: str | Path, op_log: Any = None, run_meta: Any = None, *, add_trace: bool = True
) -> Path:
    """Write the log of a `tf.Graph` as `tfprof_log` into an existing folder, replacing the file; return its path.

    `op_log` is an additional OpLogProto, `run_meta` a RunMetadata with missing shapes. Raises OutputError.
    """
    given, run = (b"" if each is None else each.SerializeToString() for each in (op_log, run_meta))
    _, log = graph_and_log(graph or default_graph(), run_metadata=run, op_log=given, add_trace=add_trace)
    path = Path(log_dir) / LOG_NAME
    write_files({path: log})
    return path


def default_graph() -> Any:
    """Return the default graph of TensorFlow 1's functions; None in eager mode."""
    import tensorflow

    return None if tensorflow.executing_eagerly() else tensorflow.compat.v1.get_default_graph()


def _logged(graph: Any, op_log: bytes, *, run_metadata: bytes = b"", add_trace: bool = True) -> tuple[bytes, int]:
    """Return TensorFlow's log of a graph merged with `op_log`, and the number of ops without shapes."""
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
    # Other text is not TensorFlow's, and may come from another thread.
    sys.stderr.write(_UNKNOWN.sub("", text))
    return data, int(unknown[1]) if unknown else 0


def _say_unknown(count: int, advice: str) -> None:
    message = f"float operations of {counted(count, 'op')} are unknown, because shapes are not fully defined; {advice}"
    warnings.warn(message, TfperfWarning, stacklevel=4)


def _with_shapes_of_feeds(graph: Any, run_metadata: bytes) -> Any:
    """Return a copy of the graph in which fed tensors have the shapes of a run, propagated to their consumers."""
    import tensorflow

    # Merge stated and inferred shapes, because inference does not cover loops.
    definition, fed = graph.as_graph_def(add_shapes=True), {}
    for device in tensorflow.compat.v1.RunMetadata.FromString(run_metadata).step_stats.dev_stats:
        for record in device.node_stats:
            if (name := _FED.fullmatch(record.node_name)) and record.output:
                fed[name[1]] = record.output[0].tensor_description.shape
    for node in definition.node:
        if node.op.startswith("Placeholder") and node.name in fed:
            node.attr["shape"].shape.CopyFrom(fed[node.name])
    copy = tensorflow.Graph()
    with copy.as_default(), contextlib.suppress(ValueError):
        tensorflow.import_graph_def(definition, name="")
        return copy
    return None  # A graph that cannot be copied keeps its open shapes.
