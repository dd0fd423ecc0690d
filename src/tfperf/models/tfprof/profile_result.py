"""What a view shows, as a tree of objects with the names of tfprof's messages (GraphNodeProto, MultiGraphNodeProto)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tfperf.base.arrays import Int64s
from tfperf.models.tfprof.attributes import PLACE, Attribute
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import Options
from tfperf.models.tfprof.tree import ROOT
from tfperf.models.tfprof.views import View, show_ops, show_tree

if TYPE_CHECKING:
    import pandas

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
