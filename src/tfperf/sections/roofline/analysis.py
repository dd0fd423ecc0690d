"""Roofline: ops with known work, time by bound, and utilization of device peaks in steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host, Results, Tabular
from tfperf.base.arrays import MOST, Bools, Int64s, capped_sum, covers, group_equal, union
from tfperf.base.display import Plotted
from tfperf.base.units import PS_PER_US, percent
from tfperf.formats.hlo.cost_rules import Product
from tfperf.sections.ops.analysis import OpKey, op_runs
from tfperf.sections.ops.groups import NO_SCOPE, ModelLayers
from tfperf.sections.roofline.bounds import Bound, Judged, Work, judge, time_by_bound
from tfperf.sections.xla.analysis import Xla, capped_total, common_peaks, device_ps
from tfperf.trace.device.device_peaks import DevicePeaks, Precision, peaks_of
from tfperf.trace.device.device_work import DeviceWork, computing, trace_texts
from tfperf.trace.device.kernels import uses_tensor_cores
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.steps import Steps

if TYPE_CHECKING:
    from tfperf.sections.xla.instructions import HloOp

_AGAIN = ("rematted_computation", "checkpoint/", "/remat")
"""Parts of the names of recomputed ops."""
_SMALL_PS = 10 * PS_PER_US
"""A run that takes less than this at the roofline has little work: an op takes some microseconds to start and end."""


class RooflineOp(Struct, frozen=True, kw_only=True):
    """An HLO op or a TensorFlow op with known work."""

    op: HloOp | FrameworkOp
    work: Work
    judged: Judged

    @property
    def is_small(self) -> bool:
        """Return whether a run has too little work to come near a peak: the fixed time of any op is a part of it."""
        least_ps = self.work.time_ps * (self.judged.roofline_percent or 0.0) / 100.0
        return self.judged.bound == "latency" and least_ps < _SMALL_PS * self.op.runs


class Utilisation(Struct, frozen=True, kw_only=True):
    """Shares of the peaks that steps reach, in percent; None if unknown.

    `hardware` counts all operations of matrix products and convolutions (HFU), `model` those that the model requires
    (MFU): three times the forward pass in a training step, without recomputation.
    """

    hardware: float | None = None
    model: float | None = None
    bandwidth: float | None = None


class Roofline(Plotted, Tabular, frozen=True, kw_only=True):
    """HLO ops and TensorFlow ops with known work, the longest first."""

    home = ("roofline", "roofline_ops")

    ops: tuple[RooflineOp, ...] = ()
    peaks: DevicePeaks = DevicePeaks()
    precision: Precision | None = None
    """Number format of most operations in matrix products."""
    bound_percent: Mapping[str, float] = {}
    """Shares of device time: compute, memory, latency, unknown."""
    busy: Utilisation = Utilisation()
    """While devices run work that is known."""
    steps: Utilisation = Utilisation()
    step_count: int = 0
    host_count: int = 0
    """Number of hosts that these steps come from."""
    whole_ps: int = 0
    untold_percent: Mapping[str, float] = {}
    """TensorFlow ops with recorded shapes but unknown work: share of device time by op type."""
    kernels: tuple[HloOp, ...] = ()
    """Custom TPU kernels with known work of only one pass, or a known lower bound."""
    is_tpu: bool = False

    @property
    def judged_percent(self) -> float | None:
        """Return the share of device time with a known bound, in percent."""
        return 100.0 - self.bound_percent["unknown"] if self.bound_percent else None


def derive(results: Results) -> Roofline:
    """Combine the HLO ops of section xla and the TensorFlow ops with shapes."""
    if not results.has_device:
        return Roofline()
    xla: Xla = results["xla"]
    framework: FrameworkWork = results.combined("roofline")
    compiled: tuple[HloOp, ...] = () if xla.place in (None, "cpu") else xla.ops
    ops: list[RooflineOp] = []
    every: tuple[HloOp | FrameworkOp, ...] = (*compiled, *framework.ops)
    for op in every:
        work = op.work
        if work is not None and (work.flops is not None or work.bytes is not None):
            ops.append(RooflineOp(op=op, work=work, judged=judge(work, framework.peaks)))
    if framework.ops:
        ops.sort(key=lambda row: -row.work.time_ps)
    whole_ps = framework.whole_ps
    if not whole_ps:
        return Roofline()
    times = Counter[Bound | None]()
    for row in ops:
        times[row.judged.bound] += row.work.time_ps
    times[None] += max(0, whole_ps - sum(times.values()))
    matrix_flops = Counter[Precision | None]()
    for op in every:
        matrix_flops[op.precision] += int((op.matrix_flops or 0) * op.runs)
    (main, most), *_ = matrix_flops.most_common(1) or [(None, 0)]
    peaks, precision = framework.peaks, main if most else None
    peak, bandwidth = peaks.flops_per_second(precision), peaks.bytes_per_second
    known_ps = sum(row.work.time_ps for row in ops)
    run = [(row.op, float(row.op.runs)) for row in ops]
    # Copies between host and HBM, or between chips, are not compute, but move HBM bytes.
    copies = [op for op in compiled if op.work is None and op.counted_by == "trace"]
    stepped = [(op, op.runs_in_steps) for op in (*(row.op for row in ops), *copies)]
    return Roofline(
        ops=tuple(ops),
        peaks=peaks,
        precision=precision,
        bound_percent={key: share for key, share in time_by_bound(times).items() if share or key == "unknown"},
        busy=_utilisation(run, known_ps, peak, bandwidth),
        steps=_utilisation(stepped, framework.step_ps, peak, bandwidth) if framework.step_count else Utilisation(),
        step_count=framework.step_count,
        host_count=framework.host_count,
        whole_ps=whole_ps,
        untold_percent={kind: 100.0 * time_ps / whole_ps for kind, time_ps in framework.untold_ps.items()},
        kernels=tuple(op for op in compiled if op.pass_flops is not None or op.is_least),
        is_tpu=xla.place == "tpu",
    )


def _utilisation(
    runs: list[tuple[HloOp | FrameworkOp, float]], time_ps: int, peak: float | None, bandwidth: float | None
) -> Utilisation:
    flops = sum((op.matrix_flops or 0) * count for op, count in runs)
    moved = sum((op.bytes or 0) * count for op, count in runs)
    seconds = time_ps / 1e12
    return Utilisation(
        hardware=percent(flops, peak * seconds) if peak and flops else None,
        model=percent(_model_flops(runs), peak * seconds) if peak and flops else None,
        bandwidth=percent(moved, bandwidth * seconds) if bandwidth and moved else None,
    )


def _model_flops(runs: list[tuple[HloOp | FrameworkOp, float]]) -> float:
    """Return the operations that the model requires (training: 3 x forward pass), at most those that ran."""
    products = [(op, op.matrix_flops * count) for op, count in runs if op.matrix_flops]
    forward = sum(
        flops for op, flops in products if not is_gradient(op) and not any(part in op.framework_op for part in _AGAIN)
    )
    trains = any(is_gradient(op) for op, _ in products)
    return min(3.0 * forward, sum(flops for _, flops in products)) if trains else forward


def is_gradient(op: HloOp | FrameworkOp) -> bool:
    """Return whether an op belongs to the backward pass, by its name."""
    return any(part in op.framework_op for part in ("transpose(", "gradient_tape", "gradients/"))


class FrameworkOp(Struct, frozen=True, kw_only=True):
    """A TensorFlow op that ran with inputs of these shapes, and the work of one run."""

    op: str
    type: str
    shapes: str
    runs: int
    events: int
    """Number of its kernels."""
    in_steps: int
    """Kernels that start in the averaged steps."""
    time_ps: int
    matrix_flops: float
    flops: float
    bytes: float | None
    precision: Precision | None
    product: Product | None = None
    module: str = ""
    program_id: int | None = None
    source: str = ""
    layer: str = ""
    """The layer of the model; empty without one."""

    @property
    def framework_op(self) -> str:
        """Return the op name, as for HLO ops."""
        return self.op

    @property
    def array_types(self) -> str:
        """Return the shapes of all inputs."""
        return self.shapes

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return M, N and K of a matrix product; empty for other ops."""
        return {} if self.product is None else self.product.sizes

    @property
    def key(self) -> tuple[object, ...]:
        """Return the key by which hosts are merged."""
        return (self.op, self.type, self.shapes, self.flops, self.bytes, self.precision)

    @property
    def work(self) -> Work:
        """Return the work of all runs."""
        moved = None if self.bytes is None else self.bytes * self.runs
        return Work(flops=self.flops * self.runs, bytes=moved, time_ps=self.time_ps, precision=self.precision)

    @property
    def runs_in_steps(self) -> float:
        """Return the number of runs in the averaged steps."""
        return self.runs * self.in_steps / self.events if self.events else 0.0


class FrameworkWork(Struct, frozen=True, kw_only=True):
    """Ops with known work, and the time of ops with shapes but unknown work by op type."""

    ops: tuple[FrameworkOp, ...] = ()
    untold_ps: Mapping[str, int] = {}
    whole_ps: int = 0
    """Time of all device work, summed over streams."""
    peaks: DevicePeaks = DevicePeaks()
    step_ps: int = 0
    """Time of the averaged steps, once for each device that computes in them."""
    step_count: int = 0
    host_count: int = 1


class _Group(NamedTuple):
    """Kernels of one op with inputs of the same shapes."""

    shapes: OpShapes
    text: str
    runs: int
    is_counted: bool
    events: int
    in_steps: int
    time_ps: int


def analyze(host: Host) -> FrameworkWork:
    """Return the ops with known work that ran on GPUs; none without shapes.

    Times and peaks of devices are set if work can be known, of these ops or of XLA programs.
    """
    trace, work = host.trace, host.device_work
    steps: Steps = host["steps"].steps
    groups = _groups(trace, work, steps) if trace.stat("shape").texts and len(work.rows) else []
    if not groups and host["xla"].place in (None, "cpu"):
        return FrameworkWork()
    layers = Layers(group.shapes for group in groups)
    counted = union(steps.start_ps[steps.headline], steps.end_ps[steps.headline])
    of_model = ModelLayers(OpKey(group.shapes.name, group.shapes.type) for group in groups)
    found, untold = [], Counter[str]()
    for group in groups:
        of_run = work_of(group.shapes, layers) if group.is_counted else None
        if of_run is None:
            untold[group.shapes.type] += group.time_ps
            continue
        op = FrameworkOp(
            op=group.shapes.name,
            type=group.shapes.type,
            shapes=group.text,
            runs=group.runs,
            events=group.events,
            in_steps=group.in_steps,
            time_ps=group.time_ps,
            matrix_flops=float(of_run.matrix_flops),
            flops=float(of_run.flops),
            bytes=None if of_run.bytes is None else float(of_run.bytes),
            precision=of_run.precision,
            product=of_run.product,
            layer=of_model.of(group.shapes.name).replace(NO_SCOPE, ""),
        )
        found.append(op)
    return FrameworkWork(
        ops=_ordered(found),
        untold_ps=dict(untold),
        whole_ps=device_ps(host),
        peaks=common_peaks([peaks_of(trace.planes[plane], host.peaks) for plane in trace.devices]),
        step_ps=capped_sum(steps.duration_ps[steps.headline]) * len(computing(host.device_times, counted)),
        step_count=int(steps.headline.sum()),
    )


def shorten(work: FrameworkWork, most: int) -> FrameworkWork:
    """Return the `most` longest ops; the bound of all other time becomes unknown."""
    return work if len(work.ops) <= most else replace(work, ops=work.ops[:most])


def _groups(trace: HostTrace, work: DeviceWork, steps: Steps) -> list[_Group]:
    is_op = np.array([not op.hlo_op for op in work.ops] + [False], np.bool_)
    places = np.flatnonzero(is_op[work.op] & ~work.moves)
    shape, equation = (trace.number_at(stat, work.rows[places], -1) for stat in ("shape", "equation"))
    places, shape, equation = (column[shape >= 0] for column in (places, shape, equation))
    if not len(places):
        return []
    order, starts = group_equal([work.op[places], shape, equation])
    of_row = np.empty(len(places), np.int64)
    of_row[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(places)))
    first = order[starts]
    runs, is_counted = _runs(trace, work, places, of_row, first)
    rows = work.rows[places]
    counts = steps.headline
    inside = covers(union(steps.start_ps[counts], steps.end_ps[counts]), trace.start_ps[rows])
    shapes, equations = trace_texts(trace, "shape"), trace_texts(trace, "equation")
    found = []
    for at, (lead, begin, end) in enumerate(zip(first.tolist(), starts, [*starts[1:], len(places)], strict=True)):
        inputs = parse_shapes(shapes[shape[lead]])
        if inputs is None:
            continue
        op, members = work.ops[work.op[places[lead]]], order[begin:end]
        kernels = tuple(sorted({trace.names[name] for name in np.unique(trace.name[rows[members]]).tolist()}))
        found.append(
            _Group(
                OpShapes(op.name, op.type, inputs, equations[equation[lead]], kernels),
                shapes[shape[lead]],
                int(runs[at]),
                bool(is_counted[at]),
                len(members),
                int(inside[members].sum()),
                capped_sum(trace.duration_ps[rows[members]]),
            )
        )
    return found


def _runs(trace: HostTrace, work: DeviceWork, places: Int64s, of_row: Int64s, first: Int64s) -> tuple[Int64s, Bools]:
    """Return the number of runs of each group, and whether it is known."""
    ops = work.op[places[first]]
    group = np.full(len(work.rows), -1, np.int64)
    group[places] = of_row
    runs = op_runs(trace, replace(work, op=group, ops=tuple(work.ops[op] for op in ops.tolist())))
    # The op lines that a profiler derived do not distinguish shapes.
    shapes_of_op = np.bincount(ops, minlength=len(work.ops))
    whole = op_runs(trace, work)
    sums = np.bincount(ops, runs.runs, minlength=len(work.ops)).astype(np.int64)
    return runs.runs, runs.is_known & ((shapes_of_op[ops] == 1) | (sums == whole.runs)[ops])


def combine(hosts: Sequence[FrameworkWork]) -> FrameworkWork:
    """Add up equal ops of several hosts."""
    known = [host for host in hosts if host.whole_ps]
    if len(known) < 2:
        return next(iter(known), FrameworkWork())
    merged: dict[object, FrameworkOp] = {}
    untold = Counter[str]()
    for host in known:
        untold.update(host.untold_ps)
        for op in host.ops:
            before = merged.get(op.key)
            fields = ("runs", "events", "in_steps", "time_ps")
            sums = {field: getattr(op, field) + getattr(before, field, 0) for field in fields}
            merged[op.key] = replace(op, **{field: min(value, MOST) for field, value in sums.items()})
    return FrameworkWork(
        ops=_ordered(merged.values()),
        untold_ps={kind: min(time_ps, MOST) for kind, time_ps in untold.items()},
        whole_ps=capped_total(host.whole_ps for host in known),
        peaks=common_peaks([host.peaks for host in known]),
        step_ps=capped_total(host.step_ps for host in known),
        step_count=sum(host.step_count for host in known),
        host_count=sum(host.host_count for host in known),
    )


def _ordered(ops: Iterable[FrameworkOp]) -> tuple[FrameworkOp, ...]:
    return tuple(sorted(ops, key=lambda op: (-op.time_ps, op.op, op.shapes)))


# --- the shapes of an op's inputs as TensorFlow's profiler writes them: `(half[4,384,1024];int32[2];)` ---
# TensorFlow writes them at trace level 3 (`--host-tracer-level 3`), and at all levels in 2.2. Inputs that are not
# tensors (variables, missing ones) have an empty place. The trace contains neither outputs nor attributes of ops.

_TENSOR = r"([a-z][a-z0-9_]*)\[([0-9,]*)\]"
_LONGEST = 4096
_SIZES = {"bool": 1, "half": 2, "bfloat16": 2, "float": 4, "double": 8, "complex64": 8, "complex128": 16}
_SIZES |= {f"{sign}int{bits}": bits // 8 for sign in ("", "u", "q", "qu") for bits in (8, 16, 32, 64)}
_PRECISIONS: dict[str, Precision] = {"double": "fp64", "float": "fp32", "half": "fp16", "bfloat16": "bf16"}
_PRECISIONS |= dict.fromkeys(("int8", "uint8", "qint8", "quint8"), "int8")


class Tensor(NamedTuple):
    """Element type of a tensor, as named by TensorFlow, and its dimensions."""

    type: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Return the number of elements."""
        return prod(self.dims)

    @property
    def bytes(self) -> int | None:
        """Return the size; None for elements without a fixed size (strings)."""
        size = _SIZES.get(self.type)
        return None if size is None else size * self.elements

    @property
    def precision(self) -> Precision | None:
        """Return the precision whose peak applies to products of this type; None if no peak is known for it."""
        return _PRECISIONS.get(self.type)


def parse_shapes(text: str) -> tuple[Tensor | None, ...] | None:
    """Return the inputs of an op, None for each that is not a tensor; None if the text has another format."""
    if not text.startswith("(") or not text.endswith(")") or len(text) >= _LONGEST:
        return None
    inputs: list[Tensor | None] = []
    for part in text[1:-1].split(";"):
        match = re.fullmatch(_TENSOR, part)
        dims = [] if match is None or not match[2] else match[2].split(",")
        if (match is None and part) or not all(dim and len(dim) < len(str(MOST)) for dim in dims):
            return None
        inputs.append(None if match is None else Tensor(match[1], tuple(map(int, dims))))
    return tuple(inputs)


def bytes_of(*tensors: Tensor) -> int | None:
    """Return the size of several tensors; None if any size is unknown."""
    sizes = [tensor.bytes for tensor in tensors]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of an elementwise op on tensors of these shapes; None if they do not broadcast."""
    rank = max(map(len, shapes), default=0)
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide) > 1:
            return None
        result.append(wide.pop() if wide else 1)
    return tuple(result)


# --- operations and bytes of one run of a TensorFlow op, from the shapes of its inputs ---
# Attributes (strides, padding, transposes) are not in the trace, so:
#
# - *Products.* The contracted dimensions are known if the sizes permit one choice only; otherwise the kernel name may
#   contain which operand is transposed (`nn`, `nt`, `tn`, in cuBLAS terms, for column-major matrices).
# - *Convolutions.* The kernel, and the gradient of the result in the backward pass, give the operations of all three
#   products of a layer: forward, and the gradients of input and kernel. A single op has too few inputs, so the ops of a
#   layer are combined (`Layers`). Windows count whole, including parts beyond the border, as in TensorFlow.
# - *Batch norm, softmax.* Operations per element, from their formulas; see `_PER_ELEMENT`.
# - *Elementwise ops.* One operation per element of the result; `exp`, `tanh` and the like count as zero. Casts and
#   comparisons count too.
#
# All other work is unknown. Bytes are the sizes of inputs and results, once each: an upper bound if caches serve some,
# as for XLA programs.

Inputs = tuple[Tensor | None, ...]


class OpWork(Struct, frozen=True, kw_only=True):
    """Operations of one run, those in products, bytes, and the peak for its numbers; None if unknown."""

    flops: int
    matrix_flops: int = 0
    bytes: int | None
    precision: Precision | None
    product: Product | None = None


class OpShapes(NamedTuple):
    """Name, type and inputs of an op, an equation (Einsum), and the names of its kernels."""

    name: str
    type: str
    inputs: Inputs
    equation: str = ""
    kernels: tuple[str, ...] = ()


_PRODUCTS = frozenset({"MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
_TRANSPOSED = {"nn": (1, 0), "tn": (1, 1), "nt": (0, 0), "tt": (0, 1)}
"""Contracted dimensions of a and b; libraries use column-major matrices, so they get b first."""
_LETTERS = r"(?<![a-z0-9])([nt][nt])(?![a-z0-9])"


def _contracted(a: Tensor, b: Tensor, kernels: Iterable[str]) -> tuple[int, int] | None:
    ways = [(i, j) for i, j in _TRANSPOSED.values() if a.dims[i - 2] == b.dims[j - 2]]
    results = {(a.dims[-1 - i], b.dims[-1 - j], a.dims[i - 2]) for i, j in ways}
    if len(results) == 1:
        return ways[0]
    named = {letters for kernel in kernels for letters in re.findall(_LETTERS, kernel.lower().replace("_", " "))}
    way = _TRANSPOSED[named.pop()] if len(named) == 1 else None
    return way if way in ways else None


def _matrix_product(op: OpShapes) -> OpWork | None:
    a, b = (*op.inputs, None, None)[:2]
    if a is None or b is None or a.type != b.type or min(len(a.dims), len(b.dims)) < 2:
        return None
    batch, way = broadcast(a.dims[:-2], b.dims[:-2]), _contracted(a, b, op.kernels)
    if batch is None or way is None:
        return None
    product = Product(a.dims[-1 - way[0]], b.dims[-1 - way[1]], a.dims[way[0] - 2], prod(batch))
    result = Tensor(a.type, (product.times, product.m, product.n))
    tensors = [tensor for tensor in op.inputs if tensor is not None]
    return _product_work(op, product.flops, bytes_of(*tensors, result), product)


def _einsum(op: OpShapes) -> OpWork | None:
    match = re.fullmatch(r"([A-Za-z]+),([A-Za-z]+)->([A-Za-z]*)", op.equation.replace(" ", ""))
    a, b = (*op.inputs, None, None)[:2]
    if match is None or a is None or b is None or len(op.inputs) != 2:
        return None
    sizes: dict[str, int] = {}
    for letters, tensor in ((match[1], a), (match[2], b)):
        pairs = list(zip(letters, tensor.dims, strict=False))
        if len(letters) != len(tensor.dims) or any(sizes.setdefault(letter, size) != size for letter, size in pairs):
            return None
    sets = [set(letters) for letters in match.groups()]
    if any(len(letters) != len(found) for letters, found in zip(match.groups(), sets, strict=True)):
        return None
    # A letter of only one operand that is not in the result is summed before, so this is not a product of sizes.
    if (sets[0] ^ sets[1]) - sets[2] or sets[2] - sets[0] - sets[1]:
        return None
    of = {
        "batch": sets[0] & sets[1] & sets[2],
        "k": (sets[0] & sets[1]) - sets[2],
        "m": sets[0] - sets[1],
        "n": sets[1] - sets[0],
    }
    size = {key: prod(sizes[letter] for letter in letters) for key, letters in of.items()}
    product = Product(size["m"], size["n"], size["k"], size["batch"])
    result = Tensor(a.type, tuple(sizes[letter] for letter in match[3]))
    return _product_work(op, product.flops, bytes_of(a, b, result), product)


def _product_work(op: OpShapes, flops: int, moved: int | None, product: Product | None = None) -> OpWork:
    precision = next((each.precision for each in op.inputs if each is not None and each.precision), None)
    if precision == "fp32" and any(map(uses_tensor_cores, op.kernels)):
        precision = "tf32"
    return OpWork(flops=flops, matrix_flops=flops, bytes=moved, precision=precision, product=product)


_FORWARD = frozenset({"Conv2D", "Conv3D", "DepthwiseConv2dNative"})
_OF_INPUT = frozenset({"Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"})
_OF_KERNEL = frozenset({"Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter"})
CONVOLUTIONS = _FORWARD | _OF_INPUT | _OF_KERNEL


class _Parts(NamedTuple):
    """The tensors of a convolution layer that one of its ops reads."""

    image: Tensor | None = None
    kernel: Tensor | None = None
    gradient: Tensor | None = None

    def agrees(self, other: _Parts) -> bool:
        """Return whether two ops may belong to one run of one layer: at least one shared tensor, and all equal."""
        pairs = [(one, two) for one, two in zip(self, other, strict=True) if one is not None and two is not None]
        return bool(pairs) and all(one == two for one, two in pairs)


def _parts(op: OpShapes) -> _Parts:
    first, second, third = (*op.inputs, None, None, None)[:3]
    if op.type in _FORWARD:
        return _Parts(image=first, kernel=second)
    return _Parts(kernel=second, gradient=third) if op.type in _OF_INPUT else _Parts(image=first, gradient=third)


def _layer(op: OpShapes) -> str:
    if op.type in _FORWARD:
        return op.name
    path = re.sub(r"(^|/)(?:gradient_tape|gradients)(?:_\d+)?/", r"\1", op.name).rpartition("/")[0]
    return path.removesuffix("_grad")


class Layers:
    """The convolutions of a trace by layer, which complete the tensors that a single op does not read."""

    def __init__(self, ops: Iterable[OpShapes]) -> None:
        self._of_layer: dict[str, list[_Parts]] = {}
        for op in ops:
            if op.type in CONVOLUTIONS:
                self._of_layer.setdefault(_layer(op), []).append(_parts(op))

    def completed(self, op: OpShapes) -> _Parts:
        """Return the tensors of the op, completed by the other ops of its layer; None if unknown or contradictory."""
        own = _parts(op)
        others = [parts for parts in self._of_layer.get(_layer(op), ()) if parts.agrees(own)]
        found = []
        for at, tensor in enumerate(own):
            values = {parts[at] for parts in others} - {None} if tensor is None else {tensor}
            found.append(values.pop() if len(values) == 1 else None)
        return _Parts(*found)


def _convolution(op: OpShapes, layers: Layers) -> OpWork | None:
    """Return the work of a convolution: per result element, the kernel window of each input channel."""
    parts = layers.completed(op)
    kernel, gradient = parts.kernel, parts.gradient
    if kernel is None or gradient is None or len(kernel.dims) != len(gradient.dims) or len(kernel.dims) < 3:
        return None
    *window, inputs, outputs = kernel.dims
    is_depthwise = op.type.startswith("Depthwise")
    if (inputs * outputs if is_depthwise else outputs) not in gradient.dims[1:]:
        return None
    flops = 2 * gradient.elements * prod(window) * (1 if is_depthwise else inputs)
    moved = None if parts.image is None else bytes_of(parts.image, kernel, gradient)
    return _product_work(op, flops, moved)


_NO_OPERATION = frozenset({"Exp", "Expm1", "Log", "Log1p", "Tanh", "Sigmoid", "Sqrt", "Rsqrt", "Erf", "Sin", "Cos"})
_NO_OPERATION |= {"Pow", "Softplus", "Selu", "Elu", "Gelu", "Floor", "Round", "Rint", "Ceil"}
_UNARY = frozenset({"Relu", "Relu6", "LeakyRelu", "Neg", "Square", "Abs", "Sign", "Reciprocal", "Inv"})
_BINARY = frozenset(
    {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "ReluGrad", "Relu6Grad", "LeakyReluGrad", "BiasAdd"}
)
_TO_BOOL = frozenset({"Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual", "LogicalAnd", "LogicalOr"})
_TO_BOOL |= {"LogicalNot", "IsNan", "IsInf", "IsFinite"}
_PER_ELEMENT = {
    # mean: 1; x - mean, squared, summed: 3; times scale, plus offset: 2
    "FusedBatchNorm": 6,
    # x - mean, divided by the deviation, times dy, summed; dy summed: 5; dx by its formula: 4
    "FusedBatchNormGrad": 9,
    # maximum, difference, sum, quotient or difference
    "Softmax": 4,
    "LogSoftmax": 4,
    # difference, square
    "SquaredDifference": 2,
    # dy * y * (1 - y), and dy * (1 - y * y)
    "SigmoidGrad": 3,
    "TanhGrad": 3,
}
"""Operations per element, if not one."""
_VERSION = re.compile(r"V\d$")
_CONVERSION = (
    r"TensorConversionOp<(?:\w+::)*(half|bfloat16|float|double|bool|int|long|unsigned char|signed char)\b"
    r"|\bCast_GPU_DT_[A-Z0-9]+_DT_([A-Z0-9]+)_kernel"
)
"""Result types of casts: in Eigen kernels, and in kernels generated by TensorFlow."""
_C_TYPES = {"int": "int32", "long": "int64", "unsigned char": "uint8", "signed char": "int8"}


def _elementwise(op: OpShapes) -> OpWork | None:
    tensors = [tensor for tensor in op.inputs if tensor is not None]
    kind = _VERSION.sub("", op.type) if op.type not in ("AddV2", "SelectV2") else op.type
    if not tensors or len(tensors) != len(op.inputs):
        return None
    if kind in ("FusedBatchNorm", "FusedBatchNormGrad"):
        # In training, the running mean is an empty input, unless it is averaged.
        trains = kind.endswith("Grad") or (len(tensors) == 5 and tensors[3].elements == 0)
        return _known(_PER_ELEMENT[kind] * tensors[0].elements, tensors, tensors[0]) if trains else None
    if kind == "Transpose":
        return _known(0, tensors, tensors[0])
    if kind == "AddN":
        dims = {tensor.dims for tensor in tensors}
        return _known((len(tensors) - 1) * tensors[0].elements, tensors, tensors[0]) if len(dims) == 1 else None
    if kind == "BiasAdd":
        # A bias has the length of one dimension of the other input.
        is_bias = len(tensors) == 2 and len(tensors[1].dims) == 1 and tensors[1].dims[0] in tensors[0].dims
        shape = tensors[0].dims if is_bias else None
    else:
        shape = broadcast(*(tensor.dims for tensor in tensors))
    result_type = _result_type(op, kind, tensors)
    if shape is None or not result_type:
        return None
    result = Tensor(result_type, shape)
    operations = 0 if kind in _NO_OPERATION else _PER_ELEMENT.get(kind, 1)
    return _known(operations * result.elements, tensors, result)


def _result_type(op: OpShapes, kind: str, tensors: Sequence[Tensor]) -> str:
    if kind == "Cast":
        pairs = (pair for kernel in op.kernels for pair in re.findall(_CONVERSION, kernel))
        named = {(of_eigen or generated).lower() for of_eigen, generated in pairs}
        found = named.pop() if len(named) == 1 else ""
        return _C_TYPES.get(found, found)
    if kind in _TO_BOOL:
        return "bool"
    if kind in ("Select", "SelectV2"):
        return tensors[-1].type
    is_known = kind in _NO_OPERATION | _UNARY | _BINARY or kind in _PER_ELEMENT
    return tensors[0].type if is_known else ""


def _known(flops: int, inputs: Sequence[Tensor], result: Tensor) -> OpWork:
    is_wide = any(tensor.type in ("double", "complex128") for tensor in (*inputs, result))
    return OpWork(flops=flops, bytes=bytes_of(*inputs, result), precision="fp64" if is_wide else "fp32")


def work_of(op: OpShapes, layers: Layers) -> OpWork | None:
    """Return the work of one run of an op; None if its inputs do not determine it."""
    if op.type in _PRODUCTS:
        return _matrix_product(op)
    if op.type in ("Einsum", "XlaEinsum"):
        return _einsum(op)
    return _convolution(op, layers) if op.type in CONVOLUTIONS else _elementwise(op)
