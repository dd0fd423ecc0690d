"""XLA: time and memory of compiled programs, and time of their HLO ops."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, fields
from tfperf.base.units import PS_PER_MS, percent
from tfperf.formats.wire.event_columns import unsigned
from tfperf.report.model import Column, Data, Ranked, at_levels
from tfperf.trace.known_stats import DEVICE_OPS, HLO_ENDS, XLA_FACTS

if TYPE_CHECKING:
    from tfperf.formats.hlo.buffers import Buffer, Plan
    from tfperf.formats.hlo.model import BufferSizes
    from tfperf.sections.roofline.bounds import Judged, Work
    from tfperf.sections.xla.analysis import Xla
    from tfperf.sections.xla.instructions import HloModule

PROGRAM_ID = Column("program_id", "Id", int, "", "id of the program in the profile", level="data", is_id=True)
LAYER = Column("layer", "Layer", str, "", "layer of the model, from the name of the op", level="data")
_COLUMNS = (
    Column("precision", "Numbers", str, "", "number type of the peak", level="data"),
    Column("intensity", "Flop/byte", float, "", "operations per byte"),
    Column("tflops_per_second", "TFLOP/s", float, "", "10^12 operations per second"),
    Column("gb_per_second", "GB/s", float, "", "10^9 bytes per second"),
    Column("compute_percent", "Of peak", float, "%", "operations per second / peak for these numbers"),
    Column("memory_percent", "Of bandw.", float, "%", "bytes per second / bandwidth of the memory"),
    Column("roofline_percent", "Of roofline", float, "%", "operations per second / maximum for the intensity", "data"),
    Column("bound", "Bound by", str, "", "compute, memory, or latency if both are below 30%; otherwise unknown"),
)
WORK_COLUMNS: Mapping[str, Column] = {column.key: column for column in _COLUMNS}
_RATES = ("intensity", "tflops_per_second", "gb_per_second")
_JUDGED = ("compute_percent", "memory_percent", "roofline_percent", "bound")


def work_cells(works: Sequence[Work | None], judged: Sequence[Judged]) -> Data:
    """Return the cells of rates and bounds; None for rows with unknown work."""
    rates = {key: [None if work is None else getattr(work, key) for work in works] for key in _RATES}
    return {
        # Three digits, because operations and bytes are not more precise.
        **{key: [None if rate is None else float(f"{rate:.3g}") for rate in column] for key, column in rates.items()},
        **{key: [getattr(each, key) for each in judged] for key in _JUDGED},
    }


def program_ids(ids: Sequence[int | None]) -> list[int | None]:
    """Return program ids as unsigned cells, up to 2^64 - 1."""
    return [None if each is None else unsigned(each) for each in ids]


_MODULE = Column("module", "Program", str, "", "name of the program")
_ESTIMATED = Column(
    "runs_are_estimated", "Estimated", bool, "", "whether runs are counted from kernels or without the program", "data"
)
PER_DEVICE = Column("device_mean_ms", "Per device", float, "ms", "total / devices that compute in the capture", "data")
_ONLY_IN_ROOFLINE = ("gb_per_second", "compute_percent", "memory_percent")
"""Shown only in the roofline table."""
_OP_COLUMNS = (
    Column("rank", "Rank", int, "", "position in the table", level="data"),
    Column("hlo_op", "HLO op", str, "", "name of the HLO op"),
    _MODULE,
    PROGRAM_ID,
    Column("category", "Category", str, "", "kind of HLO op"),
    Column("opcode", "Opcode", str, "", "its opcode", level="data"),
    Column("target", "Target", str, "", "target of a custom call", level="data"),
    Column("framework_op", "Op", str, "", "framework op that it was compiled from", level="data"),
    LAYER,
    Column("source", "Source", str, "", "line of the program that made the op", level="data"),
    Column("shape", "Shape", str, "", "shape and layout of its result", level="data"),
    Column("operands", "Operands", str, "", "shapes and layouts of its operands", level="data"),
    Column("deduplicated_name", "Same as", str, "", "HLO op with identical code that represents it", level="data"),
    Column("runs", "Runs", int, "count", "number of runs, summed over devices"),
    _ESTIMATED,
    Column("events", "Kernels", int, "count", "kernels and copies of a GPU, otherwise events", level="data"),
    Column("devices", "Devices", int, "count", "devices that it ran on; 0 on a host", level="data"),
    Column(
        "total_ms", "Total", float, "ms", "time of all runs, summed over devices or threads; on a host, an upper bound"
    ),
    PER_DEVICE,
    Column("least_ms", "At least", float, "ms", "on a host, time until its work was dispatched", level="data"),
    Column("mean_us", "Mean", float, "us", "time of a run; on a host, an upper bound", level="data"),
    Column("percent", "Time", float, "%", "share of device time; on a host, share of the time of all HLO ops"),
    Column("flops", "Flops", float, "", "operations of a run, without exp, tanh and similar functions", level="data"),
    Column("matrix_flops", "Matrix flops", float, "", "operations of matrix products and convolutions", level="data"),
    Column(
        "moved_bytes", "Bytes", float, "bytes", "maximum bytes that a run reads and writes; on a TPU, in HBM", "data"
    ),
    Column(
        "counted_by",
        "Counted by",
        str,
        "",
        "source of both counts: the profile, or tfperf from the program",
        level="data",
    ),
    *at_levels([*WORK_COLUMNS.values()], {"intensity": "data", **dict.fromkeys(_ONLY_IN_ROOFLINE, "data")}),
)
RATES = ("tflops_per_second", "gb_per_second", "bound")


def _ops(results: Results) -> Data | None:
    xla: Xla = results["xla"]
    if not xla.ops:
        return None
    texts = fields([column for column in _OP_COLUMNS if column.dtype is str], xla.ops)
    return {
        **{key: [text or None for text in column] for key, column in texts.items()},
        "rank": list(range(1, len(xla.ops) + 1)),
        "hlo_op": [op.op for op in xla.ops],
        "program_id": program_ids([op.program_id for op in xla.ops]),
        "deduplicated_name": [op.stands_for or None for op in xla.ops],
        "runs": [op.runs for op in xla.ops],
        "runs_are_estimated": [op.is_estimated for op in xla.ops],
        "events": [op.events for op in xla.ops],
        "devices": [op.devices for op in xla.ops],
        "total_ms": [op.time_ps / PS_PER_MS for op in xla.ops],
        "device_mean_ms": _per_device(xla, [op.time_ps for op in xla.ops]),
        "least_ms": [None if op.least_ps is None else op.least_ps / PS_PER_MS for op in xla.ops],
        "mean_us": [1000.0 * op.time_ps / PS_PER_MS / op.runs if op.runs else None for op in xla.ops],
        "percent": [percent(op.time_ps, xla.whole_ps) for op in xla.ops],
        **{key: [getattr(op, key) for op in xla.ops] for key in ("flops", "matrix_flops")},
        "moved_bytes": [op.bytes for op in xla.ops],
        **work_cells([op.work for op in xla.ops], xla.judged),
    }


def _modules(results: Results) -> Data | None:
    xla: Xla = results["xla"]
    if not xla.modules:
        return None
    from tfperf.sections.xla.instructions import main_memory

    main, plans = main_memory(xla.place), [module.memory for module in xla.modules]
    return {
        **fields(_MODULE_COLUMNS, xla.modules),
        "module": [module.module or None for module in xla.modules],
        "program_id": program_ids([module.program_id for module in xla.modules]),
        "runs_are_estimated": [module.is_estimated for module in xla.modules],
        "total_ms": [module.time_ps / PS_PER_MS for module in xla.modules],
        "device_mean_ms": _per_device(xla, [module.time_ps for module in xla.modules]),
        "compile_ms": [None if each.compile_ps is None else each.compile_ps / PS_PER_MS for each in xla.modules],
        **{
            f"{size}_bytes": [None if each is None else getattr(each.get(main), size, 0) for each in plans]
            for size in _SIZES
        },
    }


def _per_device(xla: Xla, times_ps: Sequence[int]) -> list[float | None]:
    return [time_ps / xla.device_count / PS_PER_MS if xla.device_count else None for time_ps in times_ps]


def _memory(results: Results) -> Data | None:
    from tfperf.sections.xla.instructions import main_memory

    xla: Xla = results["xla"]
    main = main_memory(xla.place)
    rows: list[tuple[HloModule, str, BufferSizes | None]] = []
    for module in xla.modules:
        memory = {name: sizes for name, sizes in (module.memory or {}).items() if name == main or sizes.total > _LITTLE}
        scoped = {"VMEM": memory.get("VMEM")} if module.vmem_bytes else {}
        rows += [(module, name, sizes) for name, sizes in (memory | scoped).items()]
    if all(name == main for _, name, _ in rows):
        return None
    return {
        "module": [module.module or None for module, _, _ in rows],
        "program_id": program_ids([module.program_id for module, _, _ in rows]),
        "memory": [name for _, name, _ in rows],
        **{f"{size}_bytes": [sizes and getattr(sizes, size) for _, _, sizes in rows] for size in _SIZES},
        "scoped_bytes": [module.vmem_bytes if name == "VMEM" else None for module, name, _ in rows],
    }


def plans_of(xla: Xla) -> list[tuple[HloModule, str, Plan]]:
    """Return the contents of memories, those of the program with the most memory first."""
    found = [(module, name, plan) for module in xla.modules for name, plan in module.plans.items()]
    return sorted(found, key=lambda each: -each[2].total_bytes)


def _buffers(results: Results) -> Data | None:
    rows = [(module, name, plan, each) for module, name, plan in plans_of(results["xla"]) for each in plan.buffers]
    if not rows:
        return None
    from tfperf.sections.ops.analysis import OpKey
    from tfperf.sections.ops.groups import NO_SCOPE, ModelLayers

    rows.sort(key=lambda row: -row[3].bytes)
    buffers = [each for *_, each in rows]
    names = [op.framework_op for op in results["xla"].ops] + [each.framework_op for each in buffers]
    of_model = ModelLayers(OpKey(name, "") for name in names)
    layers = [of_model.of(each.framework_op) for each in buffers]
    texts = ("opcode", "framework_op", "source", "shape")
    return {
        **_places([row[:3] for row in rows]),
        "kind": [each.kind for each in buffers],
        "hlo_op": [each.instruction or None for each in buffers],
        **{key: [getattr(each, key) or None for each in buffers] for key in texts},
        "layer": [None if layer == NO_SCOPE else layer for layer in layers],
        "total_bytes": [each.bytes for each in buffers],
        "padding_bytes": [each.padding_bytes for each in buffers],
        "peak_percent": [percent(each.bytes, plan.total_bytes) for _, _, plan, each in rows],
        "first_position": [each.first for each in buffers],
        "last_position": [each.last for each in buffers],
        "is_reused": [each.is_reused if each.kind == "parameter" else None for each in buffers],
    }


def _places(rows: Sequence[tuple[HloModule, str, Plan]]) -> dict[str, list[object]]:
    return {
        "module": [module.module or None for module, _, _ in rows],
        "program_id": [*program_ids([module.program_id for module, _, _ in rows])],
        "memory": [name for _, name, _ in rows],
    }


_NUMBER = re.compile(r"(?<=[_\[(])\d+")
"""A number that differs between layers: `block_3/`, `params['layers'][3]`."""
_LAYOUT = re.compile(r"\{[^{}]*\}")
_PROGRAM = re.compile(r"^jit\([^()]*\)/")


def _peak(results: Results) -> Data | None:
    """Return the sums over buffers of one kind and shape whose ops differ only in numbers."""
    plans = plans_of(results["xla"])
    if not plans:
        return None
    keys: list[tuple[HloModule, str, Plan]] = []
    sums: list[tuple[str, str | None, str | None, list[Buffer]]] = []
    for place in plans:
        groups: dict[tuple[str, ...], list[Buffer]] = {}
        for each in place[2].buffers:
            op = _NUMBER.sub("*", each.framework_op) or each.opcode
            groups.setdefault((each.kind, op, _LAYOUT.sub("", each.shape)), []).append(each)
        for (kind, op, shape), members in groups.items():
            names = {each.framework_op for each in members}
            name = _PROGRAM.sub("", (names.pop() if len(names) == 1 else "") or op)
            keys.append(place)
            sums.append((kind, name or None, shape or None, members))
    paddings = [[each.padding_bytes for each in members] for *_, members in sums]
    totals = [sum(each.bytes for each in members) for *_, members in sums]
    order = sorted(range(len(sums)), key=lambda row: -totals[row])
    columns: Data = {
        **_places(keys),
        "kind": [kind for kind, *_ in sums],
        "what": [op or _WITHOUT_OP.get(kind, "(contents not recorded)") for kind, op, *_ in sums],
        "shape": [shape for _, _, shape, _ in sums],
        "count": [len(members) if kind not in _WITHOUT_OP else None for kind, _, _, members in sums],
        "total_bytes": totals,
        "padding_bytes": [None if None in each else sum(filter(None, each)) for each in paddings],
        "peak_percent": [percent(total, plan.total_bytes) for total, (_, _, plan) in zip(totals, keys, strict=True)],
    }
    return {key: [values[row] for row in order] for key, values in columns.items()}


_WITHOUT_OP = {"unused": "(free at the peak)", "others": "(smaller buffers)"}


def _live(results: Results) -> Data | None:
    rows = [(place, point) for place in plans_of(results["xla"]) for point in place[2].live]
    if not rows:
        return None
    return {
        **_places([place for place, _ in rows]),
        "position": [at for _, (at, _, _) in rows],
        "hlo_op": [name for _, (_, name, _) in rows],
        "live_bytes": [used for _, (_, _, used) in rows],
    }


def _op_profile(results: Results) -> Data | None:
    xla: Xla = results["xla"]
    if not xla.ops:
        return None
    from tfperf.sections.xla.op_profile import op_profile

    nodes = op_profile(xla, results.view.by)
    leaves = [node.op for node in nodes]
    return {
        "depth": [node.depth for node in nodes],
        "kind": [node.kind for node in nodes],
        "node": [node.name for node in nodes],
        "program": [node.path[0] for node in nodes],
        "program_id": program_ids([None if op is None else op.program_id for op in leaves]),
        "hlo_op": [None if op is None else op.op for op in leaves],
        "framework_op": [None if op is None else op.framework_op or None for op in leaves],
        "source": [None if op is None else op.source or None for op in leaves],
        "runs": [None if op is None else op.runs for op in leaves],
        "ops": [node.ops or None for node in nodes],
        "total_ms": [node.time_ps / PS_PER_MS for node in nodes],
        "percent": [percent(node.time_ps, xla.whole_ps) for node in nodes],
        "tflops_per_second": [_rate(node.flops, node.flops_ps, 1.0) for node in nodes],
        "gb_per_second": [_rate(node.bytes, node.bytes_ps, 1000.0) for node in nodes],
        "wasted_ms": [node.wasted_ps / PS_PER_MS if node.judged_ps else None for node in nodes],
        "wasted_percent": [percent(node.wasted_ps, xla.whole_ps) if node.judged_ps else None for node in nodes],
        "judged_percent": [percent(node.judged_ps, node.time_ps) for node in nodes],
        "recomputed_ms": [None if node.kind == "outside" else node.recomputed_ps / PS_PER_MS for node in nodes],
    }


def _rate(amount: float, time_ps: int, scale: float) -> float | None:
    return float(f"{scale * amount / time_ps:.3g}") if time_ps else None


_LITTLE = 1 << 16
"""Bytes of flags and scalars that do not justify a row."""
_MAIN, _PLAN = "main memory", "according to the compiler"
_MODULE_COLUMNS = (
    _MODULE,
    PROGRAM_ID,
    Column("runs", "Runs", int, "count", "number of runs, summed over devices"),
    _ESTIMATED,
    Column("total_ms", "Total", float, "ms", "time of its HLO ops; on a host, time in which at least one is running"),
    PER_DEVICE,
    Column("compile_ms", "Compile", float, "ms", "compilation time within the capture"),
    Column("instructions", "HLO ops", int, "count", "HLO ops in all its computations", level="data"),
    Column("parameters_bytes", "Parameters", int, "bytes", f"{_MAIN} of its parameters, {_PLAN}"),
    Column("temporaries_bytes", "Temporaries", int, "bytes", f"{_MAIN} of temporaries, {_PLAN}"),
    Column("outputs_bytes", "Outputs", int, "bytes", f"{_MAIN} of results outside of parameters, {_PLAN}"),
    Column("constants_bytes", "Constants", int, "bytes", f"{_MAIN} of its constants, {_PLAN}", level="data"),
)
_MEMORY_COLUMNS = (
    _MODULE,
    PROGRAM_ID,
    Column("memory", "Memory", str, "", "HBM or VMEM of a TPU, device memory of a GPU, host memory"),
    Column("parameters_bytes", "Parameters", int, "bytes", "its parameters"),
    Column("aliased_bytes", "Aliased", int, "bytes", "bytes of parameters reused for results"),
    Column("outputs_bytes", "Outputs", int, "bytes", "results outside of the memory of parameters"),
    Column("temporaries_bytes", "Temporaries", int, "bytes", "temporaries"),
    Column("constants_bytes", "Constants", int, "bytes", "its constants", level="data"),
    Column("scoped_bytes", "Scoped", int, "bytes", "VMEM: largest use of a single HLO op"),
)
_OF_MEMORY = (
    Column("module", "Program", str, "", "name of the program", level="data"),
    PROGRAM_ID,
    Column("memory", "Memory", str, "", "memory that it uses", level="data"),
)
_BUFFER = (
    Column("total_bytes", "Total", int, "bytes", f"size, {_PLAN}"),
    Column("padding_bytes", "Padding", int, "bytes", "part of it that the layout adds to the elements"),
    Column("peak_percent", "Share", float, "%", "share of the program's memory"),
)
_KIND = Column(
    "kind",
    "Kind",
    str,
    "",
    "parameter, output, temporary, constant, unused (free at the peak), or others (sum of smaller ones)",
)
_BUFFER_COLUMNS = (
    *_OF_MEMORY,
    _KIND,
    Column("hlo_op", "HLO op", str, "", "HLO op that computes it"),
    Column("opcode", "Opcode", str, "", "its opcode", level="data"),
    Column("framework_op", "Op", str, "", "framework op that it was compiled from", level="data"),
    LAYER,
    Column("source", "Source", str, "", "line of the program that made the op", level="data"),
    Column("shape", "Shape", str, "", "shape and layout"),
    *_BUFFER,
    Column("first_position", "From", int, "", "position where it is allocated; unknown: before the program runs"),
    Column("last_position", "To", int, "", "last position before it is freed"),
    Column("is_reused", "Reused", bool, "", "for parameters: whether a result reuses the memory", level="data"),
)
_PEAK_COLUMNS = (
    *_OF_MEMORY,
    _KIND,
    Column("what", "Op", str, "", "framework op that computes it, else opcode; * replaces the numbers of several ops"),
    Column("shape", "Shape", str, "", "shape without layout"),
    Column("count", "Count", int, "count", "buffers"),
    *_BUFFER,
)
_LIVE_COLUMNS = (
    *_OF_MEMORY,
    Column("position", "Position", int, "", "position in program order, in HLO ops that allocate memory"),
    Column("hlo_op", "HLO op", str, "", "HLO op at this position"),
    Column("live_bytes", "In use", int, "bytes", "memory in use; the maximum of each interval"),
)
_SIZES = ("parameters", "aliased", "outputs", "temporaries", "constants")
MEMORY_KEYS = tuple(f"{size}_bytes" for size in _SIZES if size != "aliased")
"""Program columns about main memory."""
_KNOWN = "of its HLO ops with known"
_PROFILE_COLUMNS = (
    Column("node", "Program, category, HLO op", str, "", "name of the node, below that around it", depth_key="depth"),
    Column("depth", "Depth", int, "count", "level in the tree, from 0", level="data"),
    Column("kind", "Kind", str, "", "program, category (scope, layer), op, or outside of programs", level="data"),
    Column("program", "Program", str, "", "program of the node", level="data"),
    PROGRAM_ID,
    Column("hlo_op", "HLO op", str, "", "the HLO op, if the node is one", level="data"),
    Column("framework_op", "Op", str, "", "framework op that it was compiled from", level="data"),
    Column("source", "Source", str, "", "line of the program that made the op", level="data"),
    Column("ops", "HLO ops", int, "count", "HLO ops in the node", level="data"),
    Column("runs", "Runs", int, "count", "number of runs of the HLO op, summed over devices", level="data"),
    Column(
        "total_ms",
        "Total",
        float,
        "ms",
        "time of its HLO ops, summed over devices or threads; on a host, an upper bound",
    ),
    Column("percent", "Time", float, "%", "share of device time; on a host, share of the time of all HLO ops"),
    Column("tflops_per_second", "TFLOP/s", float, "", f"10^12 operations per second {_KNOWN} operations"),
    Column("gb_per_second", "GB/s", float, "", f"10^9 bytes per second {_KNOWN} bytes"),
    Column("wasted_ms", "Wasted", float, "ms", f"time beyond the roofline {_KNOWN} roofline"),
    Column("wasted_percent", "Wasted", float, "%", "wasted / device time", level="data"),
    Column("judged_percent", "Known", float, "%", "share of its time in HLO ops with a known roofline"),
    Column("recomputed_ms", "Recomputed", float, "ms", "time of HLO ops that recompute results (remat)", level="data"),
)
HLO_OPS = TableSpec(
    name="hlo_ops",
    title="HLO ops, by time",
    row="HLO ops of XLA programs that ran",
    details=(
        "One row per HLO op that ran, in each program. Its time on a GPU is the time of its kernels; on a TPU "
        "core, nested HLO ops are excluded; on a host, it includes all time until the recorded end of each run, an "
        "upper bound, and HLO ops overlap. [XLA](xla.md) has the rules."
    ),
    columns=_OP_COLUMNS,
    data=_ops,
    name_key="hlo_op",
    ranked=Ranked("total_ms"),
)
HLO_MODULES = TableSpec(
    name="hlo_modules",
    title="XLA programs",
    row="XLA programs that ran",
    details="One row per program that ran in the capture; programs that were only compiled are omitted.",
    columns=_MODULE_COLUMNS,
    data=_modules,
    name_key="module",
    ranked=Ranked("total_ms"),
)
HLO_MEMORY = TableSpec(
    name="hlo_memory",
    title="Memory of XLA programs",
    row="memories that XLA's programs use, according to the compiler",
    details=(
        "One row per program and memory. Only if a program uses more than one memory. HBM is the main memory of a "
        "TPU, VMEM the vector memory of its core. The program copies parameters in host memory to the device."
    ),
    columns=_MEMORY_COLUMNS,
    data=_memory,
    name_key="module",
    brief_rows=12,
)
HLO_PEAK = TableSpec(
    name="hlo_peak",
    title="Live at peak",
    row="memory of XLA programs when it is fullest, by op and shape",
    details=(
        "Memory of each program when it is fullest, summed over buffers of one kind and shape whose ops differ only in "
        "numbers. Programs with less than 1% of the memory of the largest one are omitted."
    ),
    columns=_PEAK_COLUMNS,
    data=_peak,
    name_key="what",
    ranked=Ranked("total_bytes"),
)
HLO_BUFFERS = TableSpec(
    name="hlo_buffers",
    title="Buffers live at the peak",
    row="buffers of XLA programs when their memory is fullest",
    details=(
        "One row per buffer of each program that is live when its memory is fullest. Positions are those of "
        "`hlo_live`; buffers without them stay for the whole run. [XLA](xla.md#memory-of-a-program) has the rules."
    ),
    columns=_BUFFER_COLUMNS,
    data=_buffers,
    name_key="hlo_op",
    ranked=Ranked("total_bytes"),
)
HLO_LIVE = TableSpec(
    name="hlo_live",
    title="Memory in use over the program",
    row="memory in use over XLA programs, in program order",
    details="Memory in use over each program in program order, at most 1000 points per program and memory.",
    columns=_LIVE_COLUMNS,
    data=_live,
    name_key="hlo_op",
)
OP_PROFILE = TableSpec(
    name="op_profile",
    title="Op profile",
    row="tree of programs, categories and HLO ops by time",
    details=(
        "One row per program, category and HLO op, in the order of a tree; with --by scope or --by layer, scopes or "
        "layers take the place of categories. [Op profile](xla.md#op-profile) explains the columns."
    ),
    columns=_PROFILE_COLUMNS,
    data=_op_profile,
    name_key="node",
)
TABLES = (HLO_OPS, HLO_MODULES, HLO_MEMORY, HLO_PEAK, HLO_BUFFERS, HLO_LIVE, OP_PROFILE)


SECTION = SectionSpec(
    name="xla",
    title="XLA programs",
    rests_on=("steps",),
    analyze="tfperf.sections.xla.analysis:analyze",
    combine="tfperf.sections.xla.analysis:combine",
    combines_in_tree=True,
    shorten="tfperf.sections.xla.analysis:shorten",
    build="tfperf.sections.xla.section:build",
    stats=DEVICE_OPS | HLO_ENDS | XLA_FACTS,
    tables=TABLES,
)
