"""HLO ops and programs that ran: events joined with the data of their programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.arrays import MOST, Int64s, Intervals, capped_sum, covers, distinct_rows, lookup, union
from tfperf.formats.hlo.cost_rules import is_attention, sizes_of, vmem_bytes
from tfperf.formats.hlo.messages import accessed_bytes
from tfperf.formats.hlo.model import HOST_MEMORY, BufferSizes, Instruction, Module, ProductPrecision
from tfperf.formats.wire.event_columns import MODULE_LINE, OP_LINES
from tfperf.sections.ops.analysis import OpKey, op_runs
from tfperf.sections.ops.groups import NO_SCOPE, ModelLayers
from tfperf.sections.roofline.bounds import Work
from tfperf.trace.device.device_peaks import Precision, capability, vendor
from tfperf.trace.device.device_work import DeviceOp, DeviceWork, trace_texts
from tfperf.trace.device.families import Family, family_of_opcodes
from tfperf.trace.device.kernels import uses_tensor_cores
from tfperf.trace.device.tpu_runs import module_name, program_in_name
from tfperf.trace.event_names import mask, parse_op
from tfperf.trace.host_trace import HostTrace, Plane
from tfperf.trace.nesting import nest, self_time

if TYPE_CHECKING:
    from tfperf.formats.hlo.buffers import Plan
    from tfperf.formats.hlo.cost import ModuleCost

Recorded = Mapping[str, int | float | str]
"""Stats of the name of an HLO op."""


class HloOp(Struct, frozen=True, kw_only=True, dict=True):
    """An HLO op that ran; values in neither the trace nor the program are empty or None."""

    module: str
    program_id: int | None
    op: str
    opcode: str = ""
    category: str = ""
    target: str = ""
    family: Family | None = None
    framework_op: str = ""
    layer: str = ""
    source: str = ""
    """Line of the user's program: `file:line`."""
    shape: str = ""
    operands: str = ""
    stands_for: str = ""
    """The HLO op with equal code that represents it."""
    runs: int
    is_estimated: bool
    """Whether runs are counted by kernels, because it is unknown which kernels one run launched."""
    events: int
    in_steps: int = 0
    """Events that start in the averaged steps."""
    devices: int
    time_ps: int
    """Over all runs and devices. On a host, until the end of each run: an upper bound."""
    least_ps: int | None
    """On a host, the time until the work was issued: a lower bound."""
    flops: float | None = None
    """Operations of one run."""
    matrix_flops: float | None = None
    """Operations of matrix products and convolutions in one run."""
    bytes: float | None = None
    """Bytes that one run reads and writes, an upper bound."""
    precision: Precision | None = None
    sizes: Mapping[str, int] = {}
    """Sizes of a product or convolution that matrix unit tiles cover, by name."""
    counted_by: str = ""
    """Source of operations and bytes: the trace, or tfperf's count from the program."""
    is_least: bool = False
    """Whether the work may be more, because only the shapes of a TPU kernel are known."""
    pass_flops: float | None = None
    """Operations of one pass through the body of a TPU kernel, as recorded in the profile."""
    converted: str = ""
    """The FP8 type of both inputs of a product before it converts them to a wider type; empty if it does not."""

    @property
    def key(self) -> tuple[str, int | None, str, str]:
        """Return the key by which hosts are merged."""
        return (self.module, self.program_id, self.op, self.shape)

    @property
    def array_types(self) -> str:
        """Return the known shapes of all inputs and outputs."""
        return f"{self.operands} {self.shape}".strip()

    @cached_property
    def work(self) -> Work | None:
        """Return the work of all runs; None if it is not device work on device memory, or runs are estimated."""
        is_elsewhere = self.least_ps is not None or moves_elsewhere(self.opcode or self.category)
        if is_elsewhere or self.is_estimated:
            return None
        flops, moved = (None if each is None else each * self.runs for each in (self.flops, self.bytes))
        return Work(flops=flops, bytes=moved, time_ps=self.time_ps, precision=self.precision, is_least=self.is_least)

    @cached_property
    def is_recomputed(self) -> bool:
        """Return whether it computes again what was not kept: by the program (jax.checkpoint), or by XLA."""
        return ".remat" in self.op or "rematted_computation" in self.framework_op or "/remat" in self.framework_op

    @property
    def runs_in_steps(self) -> float:
        """Return the number of runs in the averaged steps."""
        return self.runs * self.in_steps / self.events if self.events else 0.0


_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-", "ragged-all-to-all")
_ELSEWHERE = ("infeed", "outfeed", "send", "recv", "copy-start", "copy-done", "async-", *_COLLECTIVES)


def moves_elsewhere(opcode: str) -> bool:
    """Return whether an HLO op waits for or exchanges data with others, so that it has no peak of its own."""
    return opcode.startswith(_ELSEWHERE)


class Constants(Struct, frozen=True):
    """Constants of at least `_LARGE_BYTES` in a program: the bytes of all, their number, and the largest one."""

    bytes: int
    count: int
    shape: str
    source: str
    """Line of the program with the op that the largest one is from; empty if unknown."""


_LARGE_BYTES = 1 << 20


class HloModule(Struct, frozen=True, kw_only=True):
    """A program that ran. `time_ps` is the time of its HLO ops; on a host, the time with at least one running.

    Memory is from the compiler's plan, by memory name; None if the trace has no plan.
    """

    module: str
    program_id: int | None
    runs: int
    is_estimated: bool
    time_ps: int
    compile_ps: int | None = None
    instructions: int | None = None
    """None if the trace does not contain the program, or it cannot be read."""
    memory: Mapping[str, BufferSizes] | None = None
    vmem_bytes: int | None = None
    """Largest vector memory of a TPU core used by one of its HLO ops."""
    plans: Mapping[str, Plan] = {}
    """Contents of its memory when it is fullest, by memory name; empty if unknown or small (`SMALL_SHARE`)."""
    constants: Constants | None = None
    """Large constants; None if there are none, or without the program."""

    @property
    def key(self) -> tuple[str, int | None]:
        """Return the key by which hosts are merged."""
        return (self.module, self.program_id)


SMALL_SHARE = 0.01
"""Share of the memory of the largest program below which the contents of a program's memory are not read."""


def with_plans(
    trace: HostTrace, modules: Sequence[HloModule], programs: Mapping[int | None, Module], place: Place | None
) -> list[HloModule]:
    """Return the programs that ran with the contents of their memory, except small ones."""
    sizes = [sum(sizes.total for sizes in (module.memory or {}).values()) for module in modules]
    least = SMALL_SHARE * max(sizes, default=0)
    if not any(sizes):
        return list(modules)
    from tfperf.formats.hlo.buffers import read_plans

    found = []
    for module, size in zip(modules, sizes, strict=True):
        key = module.program_id
        if size and size >= least and key is not None and trace.hlo_protos is not None:
            plans = read_plans(trace.hlo_protos[key], programs[key], partial(memory_name, place=place))
            module = replace(module, plans=plans)
        found.append(module)
    return found


def other_instructions(ops: Sequence[HloOp]) -> HloOp:
    """Return one row for several HLO ops, with unknown work."""
    least = [op.least_ps for op in ops if op.least_ps is not None]
    return HloOp(
        module="",
        program_id=None,
        op="(other HLO ops)",
        runs=_total(op.runs for op in ops),
        is_estimated=True,
        events=_total(op.events for op in ops),
        in_steps=_total(op.in_steps for op in ops),
        devices=max(op.devices for op in ops),
        time_ps=_total(op.time_ps for op in ops),
        least_ps=_total(least) if len(least) == len(ops) else None,
    )


def other_programs(modules: Sequence[HloModule]) -> HloModule:
    """Return one row for several programs, counted as lost unless the trace contains all."""
    instructions = [module.instructions for module in modules if module.instructions is not None]
    return HloModule(
        module="(other programs)",
        program_id=None,
        runs=_total(module.runs for module in modules),
        is_estimated=any(module.is_estimated for module in modules),
        time_ps=_total(module.time_ps for module in modules),
        instructions=sum(instructions) if len(instructions) == len(modules) else None,
    )


def _total(values: Iterable[int]) -> int:
    return min(sum(values), MOST)


def read_programs(trace: HostTrace, ids: Iterable[int | None]) -> dict[int | None, Module]:
    """Return the programs with these ids, without missing and unreadable ones."""
    from tfperf.formats.hlo.hlo_proto import read_proto
    from tfperf.formats.hlo.model import ProgramError

    programs: dict[int | None, Module] = {}
    for program_id in ids:
        serialized = None if program_id is None else (trace.hlo_protos or {}).get(program_id)
        if serialized is None:
            continue
        try:
            programs[program_id] = read_proto(serialized)
        except ProgramError:
            continue
    return programs


_NAME_STATS = {
    "category": "hlo_category",
    "framework_op": "tf_op",
    "source": "source",
    "shape": "shape_with_layout",
    "stands_for": "deduplicated_name",
}
"""Facts besides the name that TPU profilers record about HLO ops."""
_COUNTS = ("flops", "bytes_accessed", "memory_access_breakdown")
"""Counts of a run that they record."""


def joined_ops(trace: HostTrace, ops: Iterable[OpTime], programs: Mapping[int | None, Module]) -> list[HloOp]:
    """Return HLO ops with the data of their programs, else of their event names."""
    costs = {key: ProgramCosts(module) for key, module in programs.items()}
    stats = {stat: trace.name_stat(stat) for stat in (*_NAME_STATS.values(), *_COUNTS)}
    joined = []
    for op in ops:
        recorded = {stat: values[op.name] for stat, values in stats.items() if op.name in values}
        program = op.key.program
        joined.append(_joined_op(trace, op, recorded, programs.get(program), costs.get(program)))
    layers = ModelLayers(OpKey(each.framework_op, "") for each in joined)
    return [replace(each, layer=layers.of(each.framework_op).replace(NO_SCOPE, "")) for each in joined]


def _joined_op(
    trace: HostTrace, op: OpTime, recorded: Recorded, module: Module | None, costs: ProgramCosts | None
) -> HloOp:
    facts: dict[str, Any] = {field: str(recorded[stat]) for field, stat in _NAME_STATS.items() if stat in recorded}
    if "framework_op" in facts:
        facts["framework_op"] = parse_op(facts["framework_op"]).name
    cost = OpCost()
    if module is not None and costs is not None:
        at = module.by_name.get(op.key.op) or module.by_name.get(facts.get("stands_for", ""))
        if at is not None:
            # The TPU compiler knows categories that opcodes do not show.
            facts = {**_facts_of_program(module, *at), **{key: facts[key] for key in ("category",) if key in facts}}
            cost = costs.of(*at)
    facts |= _counted(trace, op, recorded, facts.get("category", ""), cost)
    return HloOp(
        module=module.name if module else op.key.module,
        program_id=op.key.program,
        op=op.key.op,
        runs=op.runs,
        is_estimated=op.is_estimated,
        events=op.events,
        in_steps=op.in_steps,
        devices=op.devices,
        time_ps=op.time_ps,
        least_ps=op.least_ps,
        **facts,
    )


def _counted(trace: HostTrace, op: OpTime, recorded: Recorded, category: str, cost: OpCost) -> dict[str, Any]:
    """Return operations and bytes of a run as recorded by TPU profilers, else from the program."""
    is_tpu = trace.device_kind == "tpu"
    # TPU matrix units multiply float32 as bfloat16 by default, and only the bfloat16 peak is public.
    precision = "bf16" if is_tpu and cost.precision in _TPU_FLOATS else cost.precision
    stated = (recorded.get(stat) for stat in ("flops", "bytes_accessed"))
    flops, moved = (float(value) if isinstance(value, int) and value >= 0 else None for value in stated)
    breakdown = recorded.get("memory_access_breakdown")
    if isinstance(breakdown, str) and (in_hbm := accessed_bytes(breakdown)) is not None:
        moved = float(in_hbm)
    is_kernel = is_tpu and category == "custom-call"
    if is_kernel:
        # The recorded value covers one pass through the kernel body, however often it runs, and no bytes.
        flops, pass_flops = None, max(flops or 0.0, float(op.pass_flops or 0)) or None
        if pass_flops is not None and pass_flops > (cost.flops or 0.0):
            return {"pass_flops": pass_flops}
    if flops is None or category in CONTAINERS or (category == "custom-call" and not flops):  # 0: unknown in a call
        if precision == "fp32" and cost.matrix_flops and trace.device_kind == "gpu":
            precision = _format_of_float32(trace.planes[trace.devices[0]], trace.names[op.name], cost)
        counted_by = "program" if cost.flops is not None or cost.bytes is not None else ""
        of_kernel = {"is_least": cost.flops is not None, "pass_flops": pass_flops} if is_kernel else {}
        return {
            "flops": cost.flops,
            "matrix_flops": cost.matrix_flops,
            "bytes": cost.bytes,
            "precision": precision,
            "counted_by": counted_by,
            **of_kernel,
        }
    is_product = any(word in category for word in ("custom-call", "convolution", "dot", "matmul"))
    matrix = cost.matrix_flops if cost.matrix_flops is not None else flops if is_product else 0.0
    precision = precision or ("bf16" if is_tpu or is_product else "fp32")
    return {"flops": flops, "matrix_flops": matrix, "bytes": moved, "precision": precision, "counted_by": "trace"}


_TRITON = '"__triton'
"""Start of the kind in the configuration of a fusion for Triton."""


def _format_of_float32(plane: Plane, kernel: str, cost: OpCost) -> Precision | None:
    """Return the format in which a GPU multiplies float32 numbers in a kernel; None if unknown.

    By default XLA allows TF32: for its own (Triton) kernels, it is then the format where the hardware has it (NVIDIA
    since Ampere; AMD only gfx942). A library chooses, and the name of its kernel usually shows its choice.
    """
    number, on_tensor_cores = capability(plane), uses_tensor_cores(kernel)
    if vendor(plane) == "amd":
        return "tf32" if cost.by_triton and cost.allows_tf32 and number == "9.4" else "fp32"
    if not cost.allows_tf32 or on_tensor_cores is False or number.startswith(("5.", "6.", "7.")):
        return "fp32"
    return "tf32" if on_tensor_cores or (cost.by_triton and number) else None


def _facts_of_program(module: Module, computation: int, place: int) -> dict[str, Any]:
    inside = module.computations[computation]
    instruction = inside.instructions[place]
    operands = [operand.shape for operand in inside.operands_of(instruction)]
    facts: dict[str, Any] = {
        "opcode": instruction.opcode,
        "category": category(instruction),
        "target": instruction.target,
        "family": _family(module, instruction),
        "framework_op": instruction.metadata.op_name,
        "source": str(instruction.metadata.source),
        "shape": str(instruction.shape),
        "operands": "; ".join(map(str, operands)),
        "stands_for": instruction.metadata.deduplicated_name,
        "sizes": sizes_of(instruction, operands),
        "converted": _converted(module, computation, instruction),
    }
    return {field: value for field, value in facts.items() if value}


_KEEPS_VALUES = frozenset(("bitcast", "broadcast", "copy", "multiply", "reshape", "slice", "transpose"))
"""Opcodes between a conversion and a product, with the product of a value and its scale."""
_MOST_BETWEEN = 12


def _converted(module: Module, computation: int, instruction: Instruction) -> str:
    """Return the FP8 type from which both inputs of a product are converted; empty if there is no such product."""
    at, product = computation, instruction
    if instruction.opcode == "fusion" and instruction.calls:
        at = instruction.calls[0]
        inside = (each for each in module.computations[at].instructions if each.opcode in ("dot", "convolution"))
        product = next(inside, instruction)
    is_product = product.opcode in ("dot", "convolution") or (
        product.opcode == "custom-call" and category(product) in ("dot", "convolution")
    )
    if not is_product or len(product.operands) < 2:
        return ""
    outer = () if product is instruction else ((computation, instruction),)
    types = [_type_before(module, at, operand, outer) for operand in product.operands[:2]]
    return types[0] if all(types) else ""


def _type_before(module: Module, at: int, place: int, outer: tuple[tuple[int, Instruction], ...]) -> str:
    """Return the FP8 type of a value before its conversion to a wider type; empty if it is not converted.

    `outer` has the fusion around the computation `at`, whose inputs are the operands of that fusion.
    """
    for _ in range(_MOST_BETWEEN):
        instructions = module.computations[at].instructions
        each = instructions[place]
        if each.opcode == "convert":
            before = instructions[each.operands[0]].shape.type
            return before if before.startswith("f8") and not each.shape.type.startswith("f8") else ""
        if each.opcode == "parameter" and outer:
            (at, fusion), outer = outer[0], outer[1:]
            place = fusion.operands[each.parameter]
        elif each.opcode == "fusion" and each.calls and not outer:
            outer, at = ((at, each),), each.calls[0]
            place = module.computations[at].root
        elif each.opcode in _KEEPS_VALUES and each.operands:
            place = each.operands[0]
        else:
            return ""
    return ""


def _family(module: Module, instruction: Instruction) -> Family | None:
    inside, waiting, root = {instruction.opcode}, [instruction], ""
    while waiting:
        each = waiting.pop()
        if each.opcode == "fusion" and each.calls:
            called = module.computations[each.calls[0]]
            root = root or called.root_instruction.opcode
            inside.update(part.opcode for part in called.instructions)
            waiting += (part for part in called.instructions if part.opcode == "fusion")
    return family_of_opcodes(frozenset(inside), root, instruction.target)


_TPU_FLOATS = ("fp32", "fp16")
_FUSIONS = {"kLoop": "loop fusion", "kInput": "input fusion", "kOutput": "output fusion", "kCustom": "custom fusion"}
_FORMATTING = frozenset({"copy", "transpose", "reshape", "reverse", "bitcast", "copy-start", "copy-done"})


def category(instruction: Instruction) -> str:
    """Return the category of an HLO op, in XProf's terms where they exist."""
    if instruction.opcode == "fusion":
        return _FUSIONS.get(instruction.fusion_kind, "fusion")
    if instruction.opcode in _FORMATTING:
        return "data formatting"
    target = instruction.target.lower()
    if instruction.opcode == "custom-call" and "$conv" in target:
        return "convolution"
    if instruction.opcode == "custom-call" and is_attention(instruction.target):
        return "attention"
    is_dot = instruction.opcode == "custom-call" and ("matmul" in target or "gemm" in target)
    return "dot" if is_dot else instruction.opcode


def program_keys(times: OpTimes) -> tuple[Key, ...]:
    """Return the HLO op keys of each program; a program without timed ops has a key without an op."""
    first: dict[int | None, Key] = {}
    for op in times.ops:
        first.setdefault(op.key.program, op.key)
    for program, ran in times.programs.items():
        first.setdefault(program, Key(program, ran.name, ""))
    return tuple(first.values())


def joined_module(key: Key, module: Module | None, times: OpTimes) -> HloModule:
    """Return the totals of a program.

    If cores do not record runs, it ran as often as the most frequent op of its entry (an estimate without the program).
    """
    place, recorded = times.place, None if key.program is None else times.programs.get(key.program)
    facts: dict[str, Any] = {}
    if recorded is not None:
        facts |= {"runs": recorded.runs, "is_estimated": False}
        facts["time_ps"] = times.busy_ps.get(key.program, recorded.time_ps)
    else:
        own = [op for op in times.ops if op.key.program == key.program]
        entry = {each.name for each in module.entry.instructions} if module else set()
        in_entry = [op for op in own if op.key.op in entry]
        most = max(in_entry or own, key=lambda op: op.runs)
        facts |= {"runs": most.runs, "is_estimated": most.is_estimated or not in_entry}
        facts["time_ps"] = times.busy_ps[key.program]
    if module is not None:
        facts["instructions"] = sum(len(each.instructions) for each in module.computations)
        facts["constants"] = _large_constants(module)
        facts["vmem_bytes"] = vmem_bytes(module.entry.instructions) if place == "tpu" else None
        if module.buffers is not None:
            memory: dict[str, BufferSizes] = {}
            facts["memory"] = memory
            for space, sizes in sorted(module.buffers.items()):
                name = memory_name(space, place)
                memory[name] = memory[name].plus(sizes) if name in memory else sizes
    return HloModule(module=module.name if module else key.module, program_id=key.program, **facts)


def _large_constants(module: Module) -> Constants | None:
    every = (each for computation in module.computations for each in computation.instructions)
    large = [each for each in every if each.opcode == "constant" and each.shape.bytes >= _LARGE_BYTES]
    if not large:
        return None
    largest = max(large, key=lambda each: each.shape.bytes)
    whole = sum(each.shape.bytes for each in large)
    shape = f"{largest.shape.type}[{','.join(map(str, largest.shape.dims))}]"
    return Constants(bytes=whole, count=len(large), shape=shape, source=str(largest.metadata.source))


def memory_name(space: int, place: Place | None) -> str:
    """Return the name of a memory space of the compiler on this kind of device."""
    if space == HOST_MEMORY and place != "cpu":
        return "host memory"
    on_tpu = {1: "VMEM", 2: "sync flags"}.get(space, f"space {space}")
    return on_tpu if place == "tpu" and space else main_memory(place)


def main_memory(place: Place | None) -> str:
    """Return the default memory of programs on this kind of device."""
    return {"tpu": "HBM", "gpu": "device memory"}.get(place or "", "memory")


# --- times of HLO ops, from the events of a host or its devices ---
# On a GPU, the time of an HLO op is that of its kernels, and one run may launch several. On a TPU core HLO ops nest, so
# the time of a loop excludes its body. On a host, the event of an HLO op lasts until its work is issued, and another,
# `end: NAME`, marks its end. The time between them is an upper bound, because it includes waits for threads, and HLO
# ops overlap.

Place = Literal["gpu", "tpu", "cpu"]


class Key(NamedTuple):
    """Identity of an HLO op: program id (int64 with the same bits; None if unknown), recorded program name, op name."""

    program: int | None
    module: str
    op: str


class OpTime(Struct, frozen=True, kw_only=True):
    """Sums over the events of one HLO op on all devices or threads, in picoseconds, with the fields of `HloOp`.

    Time excludes nested ops (TPU), is summed over kernels (GPU), or ends with each run, an upper bound (host).
    """

    key: Key
    runs: int
    is_estimated: bool = False
    events: int
    time_ps: int
    least_ps: int | None = None
    in_steps: int = 0
    devices: int = 0
    pass_flops: int | None = None
    name: int
    """The name of its longest event: index into the names of the trace."""


class ProgramRuns(NamedTuple):
    """Runs of a program on TPU cores: name, number of runs, and their total time."""

    name: str
    runs: int
    time_ps: int


class OpTimes(Struct, frozen=True, kw_only=True):
    """All HLO ops that ran, and where; `busy` is the time with any op of a program running, by program id.

    `programs` contains the runs recorded by TPU cores, including programs without timed HLO ops.
    """

    place: Place | None
    ops: tuple[OpTime, ...] = ()
    busy_ps: dict[int | None, int] = {}
    programs: dict[int, ProgramRuns] = {}


def op_times(
    trace: HostTrace, work: DeviceWork, steps: Intervals, on_cores: Mapping[int, Intervals] | None = None
) -> OpTimes:
    """Return the times of HLO ops on the devices, else on the host.

    `steps` contains the averaged steps as a flat set; `on_cores` contains them for each TPU core, by plane index.
    """
    if trace.device_kind == "gpu":
        return _on_gpu(trace, work, steps)
    return _on_tpu(trace, steps, on_cores or {}) if trace.device_kind == "tpu" else _on_host(trace)


def _on_gpu(trace: HostTrace, work: DeviceWork, steps: Intervals) -> OpTimes:
    places = np.flatnonzero(trace.number_at("hlo_op", work.rows, -1) >= 0)
    if not len(places):
        return OpTimes(place="gpu")
    rows = work.rows[places]
    groups = _Groups.of(_key_columns(trace, rows, trace.number_at("hlo_module", rows, -1)))
    keys = _keys(trace, groups.values)
    op = np.full(len(work.rows), -1, np.int64)
    op[places] = groups.of_row
    ops = tuple(DeviceOp("", "", key.op, key.module) for key in keys)
    runs = op_runs(trace, replace(work, op=op, ops=ops))
    kernels = np.bincount(groups.of_row, minlength=len(keys))
    is_known = runs.is_known & (runs.runs <= kernels)
    # Estimate: the count of the most frequent kernel name, because a run launches each kernel at least once.
    first, name = distinct_rows([groups.of_row, trace.name[rows]])
    most = np.zeros(len(keys), np.int64)
    np.maximum.at(most, groups.of_row[first], np.bincount(name))
    first, _ = distinct_rows([groups.of_row, work.plane[places]])
    found = _op_times(
        keys,
        runs=np.where(is_known, runs.runs, most),
        is_estimated=~is_known,
        events=kernels,
        time_ps=groups.sums(trace.duration_ps[rows]),
        in_steps=groups.sums(covers(steps, trace.start_ps[rows]).astype(np.int64)),
        devices=np.bincount(groups.of_row[first], minlength=len(keys)),
        name=trace.name[rows][groups.longest(trace.duration_ps[rows])],
    )
    return OpTimes(place="gpu", ops=found, busy_ps=_summed(found))


def _on_tpu(trace: HostTrace, steps: Intervals, on_cores: Mapping[int, Intervals]) -> OpTimes:
    programs = trace.name_stat("program_id")
    stated = trace.stat("flops")
    stating, first = np.unique(trace.name[stated.event], return_index=True)
    pass_flops = dict(zip(stating.tolist(), stated.value[first].tolist(), strict=True))
    ran = _program_runs(trace)
    found: dict[Key, OpTime] = {}
    for line in trace.lines:
        if line.plane not in trace.devices or line.name not in OP_LINES or line.stop == line.start:
            continue
        rows = slice(line.start, line.stop)
        self_ps = self_time(trace.duration_ps[rows], nest(trace.start_ps[rows], trace.end_ps[rows]).parent)
        names, which = np.unique(trace.name[rows], return_inverse=True)
        counts = np.bincount(which)
        sums = np.minimum(np.bincount(which, weights=self_ps), MOST).astype(np.int64)
        is_stepped = covers(on_cores.get(line.plane, steps), trace.start_ps[rows])
        stepped = np.bincount(which, weights=is_stepped).astype(np.int64)
        for name, *values in zip(names.tolist(), *map(np.ndarray.tolist, (counts, sums, stepped)), strict=True):
            op = trace.display_names[name] or trace.names[name].partition(" = ")[0].lstrip("%")
            program = programs.get(name)
            key = Key(None, "", op)
            if isinstance(program, int):
                key = Key(program, ran[program].name if program in ran else "", op)
            before = found.get(key)
            olds = (before.runs, before.time_ps, before.in_steps) if before else (0, 0, 0)
            runs, time_ps, in_steps = (min(one + other, MOST) for one, other in zip(values, olds, strict=True))
            found[key] = OpTime(
                key=key,
                runs=runs,
                events=runs,
                time_ps=time_ps,
                in_steps=in_steps,
                devices=1 + (before.devices if before else 0),
                pass_flops=pass_flops.get(name),
                name=name,
            )
    ops = tuple(found.values())
    return OpTimes(place="tpu", ops=ops, busy_ps=_summed(ops), programs=ran)


def _program_runs(trace: HostTrace) -> dict[int, ProgramRuns]:
    found: dict[int, ProgramRuns] = {}
    for line in trace.lines:
        if line.plane not in trace.devices or line.name != MODULE_LINE:
            continue
        rows = slice(line.start, line.stop)
        names, which = np.unique(trace.name[rows], return_inverse=True)
        sums = np.bincount(which, weights=trace.duration_ps[rows], minlength=len(names))
        for name, runs, time_ps in zip(names.tolist(), np.bincount(which).tolist(), sums.tolist(), strict=True):
            program = program_in_name(trace.names[name])
            if program is not None:
                before = found.get(program, ProgramRuns("", 0, 0))
                module = module_name(trace.names[name])
                found[program] = ProgramRuns(module, before.runs + runs, min(before.time_ps + int(time_ps), MOST))
    return found


def _summed(ops: tuple[OpTime, ...]) -> dict[int | None, int]:
    sums: dict[int | None, int] = {}
    for op in ops:
        sums[op.key.program] = min(sums.get(op.key.program, 0) + op.time_ps, MOST)
    return sums


_END = "end: "


def _on_host(trace: HostTrace) -> OpTimes:
    stat = trace.stat("hlo_op")
    rows = stat.event.astype(np.int64)
    rows = np.sort(rows[trace.on_host[rows]])
    if not len(rows):
        return OpTimes(place=None)
    groups = _Groups.of(_key_columns(trace, rows, np.full(len(rows), -1, np.int64)))
    keys = _keys(trace, groups.values)
    end = _ends(trace, rows)
    runs = np.bincount(groups.of_row, minlength=len(keys))
    found = _op_times(
        keys,
        runs=runs,
        events=runs,
        time_ps=groups.sums(end - trace.start_ps[rows]),
        least_ps=groups.sums(trace.duration_ps[rows]),
        name=trace.name[rows][groups.first],
    )
    programs = tuple(dict.fromkeys(key.program for key in keys))
    program = np.array([programs.index(key.program) for key in keys], np.int64)[groups.of_row]
    busy_ps: dict[int | None, int] = {}
    for at, each in enumerate(programs):
        flat: Intervals = union(trace.start_ps[rows][program == at], end[program == at])
        busy_ps[each] = capped_sum(flat.end - flat.start)
    return OpTimes(place="cpu", ops=found, busy_ps=busy_ps)


def _ends(trace: HostTrace, rows: Int64s) -> Int64s:
    end = trace.end_ps[rows].copy()
    noted = trace.host_events(mask(trace.names, lambda name: name.startswith(_END)))
    if not len(noted):
        return end
    ids, links = trace.number_at("_c", noted, -1), trace.number_at("_p", rows, -2)
    order = np.argsort(ids, kind="stable")
    place = lookup(ids[order], links)
    later = np.where(place >= 0, trace.start_ps[noted[order[np.maximum(place, 0)]]], 0)
    return np.maximum(end, later)


class _Groups(NamedTuple):
    """Rows with equal values: the group of each row, a row of each group, and the values of each group."""

    of_row: Int64s
    first: Int64s
    values: Int64s

    @classmethod
    def of(cls, columns: list[Int64s]) -> _Groups:
        first, of_row = distinct_rows(columns)
        return cls(of_row, first, np.stack([column[first] for column in columns], axis=1))

    def longest(self, values: Int64s) -> Int64s:
        """Return for each group the last row of the largest value, which is not negative."""
        most = np.zeros(len(self.first), np.int64)
        np.maximum.at(most, self.of_row, values)
        rows = np.flatnonzero(values == most[self.of_row])
        found = np.empty(len(self.first), np.int64)
        found[self.of_row[rows]] = rows
        return found

    def sums(self, values: Int64s) -> Int64s:
        """Return the sum of values of each group."""
        sums = np.bincount(self.of_row, weights=values, minlength=len(self.first))
        return np.minimum(sums, MOST).astype(np.int64)


def _key_columns(trace: HostTrace, rows: Int64s, module: Int64s) -> list[Int64s]:
    program, known = trace.known_at("program_id", rows)
    return [program, known.astype(np.int64), module, trace.number_at("hlo_op", rows, -1)]


def _keys(trace: HostTrace, values: Int64s) -> tuple[Key, ...]:
    modules, ops = trace_texts(trace, "hlo_module"), trace_texts(trace, "hlo_op")
    return tuple(
        Key(program if known else None, modules[module], ops[op].split("::")[-1])
        for program, known, module, op in values.tolist()
    )


def _op_times(keys: tuple[Key, ...], **columns: npt.NDArray[Any]) -> tuple[OpTime, ...]:
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    return tuple(OpTime(key=key, **dict(zip(columns, row, strict=True))) for key, row in zip(keys, rows, strict=True))


CONTAINERS = frozenset({"while", "call", "conditional"})
"""HLO ops that run other HLO ops, which have their own events and costs."""
_PRECISIONS: dict[str, Precision] = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16"}
_PRECISIONS |= dict.fromkeys(("s8", "u8"), "int8")
_SMALL: dict[str, Precision] = {"f8": "fp8", "f4": "fp4"}
"""The first letters of types that have variants, such as `f8e4m3fn`."""


class OpCost(Struct, frozen=True):
    """Cost of one run: operations, those in matrix products and convolutions, bytes, number format; None if unknown."""

    flops: float | None = None
    matrix_flops: float | None = None
    bytes: float | None = None
    precision: Precision | None = None
    by_triton: bool = False
    """Whether the product is a kernel that XLA generates by Triton."""
    allows_tf32: bool = True
    """Whether XLA may multiply float32 as TF32."""


class ProgramCosts:
    """The costs of a program; empty if they cannot be computed."""

    def __init__(self, module: Module) -> None:
        from tfperf.formats.hlo.cost import cost_of
        from tfperf.formats.hlo.model import ProgramError

        try:
            self._costs: ModuleCost | None = cost_of(module)
        except ProgramError:
            self._costs = None
        self._module = module
        self._products = _main_products(module, self._costs) if self._costs else []

    def of(self, computation: int, place: int) -> OpCost:
        """Return the cost of an HLO op, by its position."""
        instruction = self._module.computations[computation].instructions[place]
        if self._costs is None or instruction.opcode in CONTAINERS:
            return OpCost()
        cost = self._costs.instructions[computation][place]
        costs = cost.flops, cost.matrix_flops, cost.bytes
        flops, matrix, moved = (None if each is None else float(each) for each in costs)
        if matrix:
            product = _product_in(self._module, instruction, computation, self._products)
            by_triton, allows_tf32 = _TRITON in instruction.backend_config, product.precision.allows_tf32
            return OpCost(flops, matrix, moved, precision_of(product.type), by_triton, allows_tf32)
        # Other work than matrix products runs on the vector units, with one peak for all numbers of up to 32 bits.
        wide = any(leaf.type in ("f64", "c128") for leaf in instruction.shape.leaves())
        return OpCost(flops, matrix, moved, "fp64" if wide else "fp32")


def precision_of(element_type: str) -> Precision | None:
    """Return the peak for matrix products of this element type; None if devices state none."""
    return _SMALL.get(element_type[:2]) or _PRECISIONS.get(element_type)


class _Product(NamedTuple):
    """The element type of a product's first operand, and the precision requested for it."""

    type: str
    precision: ProductPrecision


def _main_products(module: Module, costs: ModuleCost) -> list[_Product | None]:
    """Return the product with most operations of each computation; None without products."""
    products: list[_Product | None] = [None] * len(module.computations)
    for at in module.callees_first:
        if not costs.computations[at].work.matrix_flops:
            continue
        most = 0
        for instruction, cost in zip(module.computations[at].instructions, costs.instructions[at], strict=True):
            if (cost.matrix_flops or 0) > most:
                most = cost.matrix_flops or 0
                products[at] = _product_in(module, instruction, at, products)
    return products


def _product_in(
    module: Module, instruction: Instruction, computation: int, products: list[_Product | None]
) -> _Product:
    """Return the product that an instruction is or contains."""
    inner = next((product for call in instruction.calls if (product := products[call]) is not None), None)
    if inner is not None:
        return inner
    inputs = module.computations[computation].operands_of(instruction)
    return _Product(inputs[0].shape.type if inputs else "", instruction.precision)
