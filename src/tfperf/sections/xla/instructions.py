"""Instructions and programs that ran: what events say of them, joined with what their program says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.base.arrays import MOST
from tfperf.formats.hlo.library_calls import vmem_bytes
from tfperf.formats.hlo.model import HOST_MEMORY
from tfperf.formats.wire.memory_access import accessed_bytes
from tfperf.sections.ops.groups import NO_SCOPE, layer_of
from tfperf.sections.roofline.bounds import Work
from tfperf.sections.xla.costs import CONTAINERS, OpCost, ProgramCosts
from tfperf.sections.xla.op_events import Key, OpTime, OpTimes, Place
from tfperf.sections.xla.work_columns import main_memory
from tfperf.trace.device.device_peaks import Precision
from tfperf.trace.event_names import parse_op

if TYPE_CHECKING:
    from tfperf.formats.hlo.model import BufferSizes, Instruction, Module
    from tfperf.trace.host_trace import HostTrace


class HloOp(Struct, frozen=True, kw_only=True):
    """An instruction that ran; what neither the trace nor its program tells is empty or None."""

    module: str
    program_id: int | None
    op: str
    opcode: str = ""
    category: str = ""
    target: str = ""
    """What a custom call calls."""
    framework_op: str = ""
    layer: str = ""
    source: str = ""
    """The line of the user's program: `file:line`."""
    shape: str = ""
    operands: str = ""
    stands_for: str = ""
    """The instruction of equal code that stands for it."""
    runs: int
    is_estimated: bool
    """Whether runs are counted by kernels, since nothing tells which kernels one run launched."""
    events: int
    in_steps: int = 0
    """Those of the events that start in the steps that count."""
    devices: int
    time_ps: int
    """Over all runs and devices. On a host it goes to the end of each run, an upper bound."""
    least_ps: int | None
    """On a host, the time until the work was handed out: a lower bound."""
    flops: float | None = None
    """Operations of one run."""
    matrix_flops: float | None = None
    """Those of products of matrices and convolutions in it."""
    bytes: float | None = None
    """Bytes that one run reads and writes, an upper bound."""
    precision: Precision | None = None
    sizes: Mapping[str, int] = {}
    """Of a product or convolution, those that tiles of matrix units cover, by name."""
    counted_by: str = ""
    """Who counted operations and bytes: the trace, or tfperf by the program."""
    is_least: bool = False
    """Whether it may have computed and moved more: of a kernel of a TPU, only its shapes are known."""
    pass_flops: float | None = None
    """Of a kernel of a TPU, the operations of one pass through its body, as the profile states them."""

    @property
    def key(self) -> tuple[str, int | None, str, str]:
        """Return what it is merged by over hosts."""
        return (self.module, self.program_id, self.op, self.shape)

    @property
    def array_types(self) -> str:
        """Return the shapes of all that it reads and writes, as far as they are known."""
        return f"{self.operands} {self.shape}".strip()

    @property
    def work(self) -> Work | None:
        """Return what all runs amount to; None where that is no work of a device on its memory, or runs are a guess."""
        is_elsewhere = self.least_ps is not None or moves_elsewhere(self.opcode or self.category)
        if is_elsewhere or self.is_estimated:
            return None
        flops, moved = (None if each is None else each * self.runs for each in (self.flops, self.bytes))
        return Work(flops=flops, bytes=moved, time_ps=self.time_ps, precision=self.precision, is_least=self.is_least)

    @property
    def runs_in_steps(self) -> float:
        """Return how often it ran in the steps that count."""
        return self.runs * self.in_steps / self.events if self.events else 0.0


_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-", "ragged-all-to-all")
_ELSEWHERE = ("infeed", "outfeed", "send", "recv", "copy-start", "copy-done", "async-", *_COLLECTIVES)


def moves_elsewhere(opcode: str) -> bool:
    """Tell whether an instruction waits for others or exchanges data with them, so that no peak of its own counts."""
    return opcode.startswith(_ELSEWHERE)


class HloModule(Struct, frozen=True, kw_only=True):
    """A program that ran. `time_ps` is that of its instructions; on a host, that in which any was under way.

    Memory is by the compiler's plan, by the name of the memory; None where the trace has none.
    """

    module: str
    program_id: int | None
    runs: int
    is_estimated: bool
    time_ps: int
    compile_ps: int | None = None
    instructions: int | None = None
    """None: the trace does not hold the program, or it cannot be read."""
    memory: Mapping[str, BufferSizes] | None = None
    vmem_bytes: int | None = None
    """The most vector memory of a TPU core that one of its instructions works in."""

    @property
    def key(self) -> tuple[str, int | None]:
        """Return what it is merged by over hosts."""
        return (self.module, self.program_id)


def other_instructions(ops: Sequence[HloOp]) -> HloOp:
    """Return one row for several instructions; what they compute is not known any more."""
    least = [op.least_ps for op in ops if op.least_ps is not None]
    return HloOp(
        module="",
        program_id=None,
        op="(other instructions)",
        runs=_total(op.runs for op in ops),
        is_estimated=True,
        events=_total(op.events for op in ops),
        in_steps=_total(op.in_steps for op in ops),
        devices=max(op.devices for op in ops),
        time_ps=_total(op.time_ps for op in ops),
        least_ps=_total(least) if len(least) == len(ops) else None,
    )


def other_programs(modules: Sequence[HloModule]) -> HloModule:
    """Return one row for several programs; unless the trace holds all, they count as lost."""
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
    """Return the programs of these ids; what is not there or cannot be read is omitted."""
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


# --- instructions ---

_NAME_STATS = {
    "category": "hlo_category",
    "framework_op": "tf_op",
    "source": "source",
    "shape": "shape_with_layout",
    "stands_for": "deduplicated_name",
}
"""What the profiler of a TPU writes about an instruction beside its name."""


def joined_op(trace: HostTrace, op: OpTime, module: Module | None, costs: ProgramCosts | None) -> HloOp:
    """Return an instruction with what its program, and else the name of its event, says of it."""
    facts = _facts_of_name(trace, op.name)
    cost = OpCost()
    if module is not None and costs is not None:
        at = module.by_name.get(op.key.op) or module.by_name.get(facts.get("stands_for", ""))
        if at is not None:
            # The compiler of a TPU knows categories that no opcode tells.
            facts = {**_facts_of_program(module, *at), **{key: facts[key] for key in ("category",) if key in facts}}
            cost = costs.of(*at)
    facts |= _counted(trace, op, facts.get("category", ""), cost)
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


def _facts_of_name(trace: HostTrace, name: int) -> dict[str, Any]:
    found = {field: trace.name_stat(stat).get(name) for field, stat in _NAME_STATS.items()}
    facts = {field: str(value) for field, value in found.items() if value is not None}
    if "framework_op" in facts:
        facts["framework_op"] = parse_op(facts["framework_op"]).name
    return facts | _layer(facts.get("framework_op", ""))


def _counted(trace: HostTrace, op: OpTime, category: str, cost: OpCost) -> dict[str, Any]:
    """Return operations and bytes of a run: those that the profiler of a TPU writes, else by the program."""
    is_tpu = trace.device_kind == "tpu"
    # Matrix units of a TPU multiply float32 as bfloat16 by default, and no other peak of it is public.
    precision = "bf16" if is_tpu and cost.precision in _TPU_FLOATS else cost.precision
    stated = {stat: trace.name_stat(stat).get(op.name) for stat in ("flops", "bytes_accessed")}
    flops, moved = (float(value) if isinstance(value, int) and value >= 0 else None for value in stated.values())
    breakdown = trace.name_stat("memory_access_breakdown").get(op.name)
    if isinstance(breakdown, str) and (in_hbm := accessed_bytes(breakdown)) is not None:
        moved = float(in_hbm)
    is_kernel = is_tpu and category == "custom-call"
    if is_kernel:
        # What is stated of a kernel is one pass through its body, as often as that runs, and no bytes.
        flops, pass_flops = None, max(flops or 0.0, float(op.pass_flops or 0)) or None
        if pass_flops is not None and pass_flops > (cost.flops or 0.0):
            return {"pass_flops": pass_flops}
    if flops is None or category in CONTAINERS or (category == "custom-call" and not flops):  # 0: unknown in a call
        if precision == "fp32" and cost.matrix_flops and "tf32" in trace.names[op.name].lower():
            precision = "tf32"
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


def _facts_of_program(module: Module, computation: int, place: int) -> dict[str, Any]:
    from tfperf.formats.hlo.library_calls import sizes_of

    inside = module.computations[computation]
    instruction = inside.instructions[place]
    operands = [operand.shape for operand in inside.operands_of(instruction)]
    facts: dict[str, Any] = {
        "opcode": instruction.opcode,
        "category": category(instruction),
        "target": instruction.target,
        "framework_op": instruction.metadata.op_name,
        "source": str(instruction.metadata.source),
        "shape": str(instruction.shape),
        "operands": "; ".join(map(str, operands)),
        "stands_for": instruction.metadata.deduplicated_name,
        "sizes": sizes_of(instruction, operands),
    }
    return {field: value for field, value in facts.items() if value} | _layer(instruction.metadata.op_name)


def _layer(framework_op: str) -> dict[str, Any]:
    layer = layer_of(framework_op) if framework_op else NO_SCOPE
    return {} if layer == NO_SCOPE else {"layer": layer}


_TPU_FLOATS = ("fp32", "fp16")
_FUSIONS = {"kLoop": "loop fusion", "kInput": "input fusion", "kOutput": "output fusion", "kCustom": "custom fusion"}
_FORMATTING = frozenset({"copy", "transpose", "reshape", "reverse", "bitcast", "copy-start", "copy-done"})


def category(instruction: Instruction) -> str:
    """Return the kind of an instruction, in the words of XProf where it has some."""
    if instruction.opcode == "fusion":
        return _FUSIONS.get(instruction.fusion_kind, "fusion")
    if instruction.opcode in _FORMATTING:
        return "data formatting"
    target = instruction.target.lower()
    if instruction.opcode == "custom-call" and "$conv" in target:
        return "convolution"
    return (
        "dot"
        if instruction.opcode == "custom-call" and ("matmul" in target or "gemm" in target)
        else instruction.opcode
    )


# --- programs ---

_TPU_MEMORIES = {1: "VMEM", 2: "sync flags"}


def _memory_name(space: int, place: Place | None) -> str:
    """Return what a memory space of a program is; what tfperf does not know is called by its number."""
    if space == HOST_MEMORY and place != "cpu":
        return "host memory"
    return _TPU_MEMORIES.get(space, f"space {space}") if place == "tpu" and space else main_memory(place)


def program_keys(times: OpTimes) -> tuple[Key, ...]:
    """Return the key of an instruction for each program, without an instruction if none of it takes time."""
    first: dict[int | None, Key] = {}
    for op in times.ops:
        first.setdefault(op.key.program, op.key)
    for program, ran in times.programs.items():
        first.setdefault(program, Key(program, ran.name, ""))
    return tuple(first.values())


def joined_module(key: Key, module: Module | None, times: OpTimes) -> HloModule:
    """Return what a program did as a whole.

    Where cores do not record runs, it ran as often as the instruction of its entry that ran most often; without the
    program that is an estimate.
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
        facts["vmem_bytes"] = vmem_bytes(module.entry.instructions) if place == "tpu" else None
        if module.buffers is not None:
            memory: dict[str, BufferSizes] = {}
            facts["memory"] = memory
            for space, sizes in sorted(module.buffers.items()):
                name = _memory_name(space, place)
                memory[name] = memory[name].plus(sizes) if name in memory else sizes
    return HloModule(module=module.name if module else key.module, program_id=key.program, **facts)
