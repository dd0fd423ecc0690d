"""Made TPU profiles: `synthetic_tpu`, in which all is regular, and `offload_tpu`, as odd as the real ones.

The first has two cores; what each does in a step of 100 us is to be checked by hand. Core 0 starts its steps at 0, 105,
210, ... and takes 100 us: infeed 20, a loop of 40 with two fusions inside (15 each), convolution 20, all-reduce 10,
outfeed 5; 5 us it does nothing. Core 1 starts 2 us later and takes 90 us: infeed 10, and the rest alike. There is no
SparseCore. Without the line of steps, `marked` says where the program began each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from builders import Event, Line, Plane, event, line, plane, space, u64
from hlo_builders import F32, TUPLE, computation, instruction, program, shape
from protobytes import field, message

STEPS = 6
EVERY_US = 105
CATEGORIES = {
    "infeed.1": "infeed",
    "while.2": "while",
    "fusion.3": "loop fusion",
    "convolution.4": "convolution",
    "all-reduce.5": "all-reduce",
    "outfeed.6": "outfeed",
}
TF_OPS = {"fusion.3": "jit(step)/while/body/mul:", "convolution.4": "jit(step)/dot_general:"}


def _ops(start: float, infeed: float) -> Iterator[Event]:
    begin = start + infeed
    yield event("infeed.1", start, infeed)
    yield event("while.2", begin, 40)
    yield event("fusion.3", begin + 5, 15)
    yield event("fusion.3", begin + 22, 15)
    yield event("convolution.4", begin + 40, 20)
    yield event("all-reduce.5", begin + 60, 10)
    yield event("outfeed.6", begin + 70, 5)


WORK = {
    "fusion.3": {"flops": 9_000_000, "bytes_accessed": 9_000_000},
    "convolution.4": {"flops": 1_000_000_000, "bytes_accessed": 2_000_000},
}
"""Of each run: 600 GB/s, and 50 TFLOP/s at 500 flop/byte."""
PEAKS = {"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0}
PROGRAM = program(
    computation(
        "main",
        instruction(1, "x", "parameter", shape(F32, 500, 100, 100)),
        instruction(2, "y", "parameter", shape(F32, 500, 100, 100), extra=field(9, 1)),
        instruction(
            3,
            "convolution.4",
            "dot",
            shape(F32, 500, 100, 100),
            [1, 2],
            extra=field(30, message(field(1, 2), field(2, 1), field(3, 0), field(4, 0)))
            + field(7, message(field(2, b"jit(step)/transpose(jvp(mlp))/dot_general"))),
        ),
        root=3,
    )
)
"""The program of the step, of which only the product is known: 500 times 100 x 100, padded to 104 x 128."""


def core(
    number: int,
    *,
    with_categories: bool = True,
    with_ops: bool = True,
    infeed: bool = True,
    steps: bool = True,
    with_work: bool = False,
) -> Plane:
    """One core; without an infeed, it does nothing in that time."""
    first, waits, takes = ((0, 20, 100), (2, 10, 90))[number]
    starts = [first + EVERY_US * step for step in range(STEPS)]
    ops = [op for start in starts for op in _ops(start, waits) if infeed or op.name != "infeed.1"]
    lines = [line("XLA Modules", *(event("jit_step(7)", start, takes, program_id=7) for start in starts), id=2)]
    if steps:
        lines.append(line("Steps", *(event(str(step), start, takes) for step, start in enumerate(starts)), id=1))
    facts: dict[str, dict[str, Any]] = {}
    for name, category in CATEGORIES.items():
        facts[name] = {"hlo_category": category} if with_categories else {"program_id": 7}
        facts[name] |= {"tf_op": TF_OPS[name]} if name in TF_OPS else {}
        facts[name] |= {**WORK.get(name, {}), "program_id": 7} if with_work else {}
    return plane(
        f"/device:TPU:{number}",
        *lines,
        *([line("XLA Ops", *ops, id=3)] if with_ops else []),
        stats=PEAKS if with_work else {"device_type_string": "TPU v5 lite"},
        name_stats=facts,
    )


def _host(*, fetches: bool, marked: bool, jax: bool) -> Plane:
    calls = [event("PjitFunction(step)" if jax else "EagerExecute", EVERY_US * step, 10) for step in range(STEPS)]
    marks = [event("train", EVERY_US * step, 11, step_num=step) for step in range(STEPS)]
    waits = [event("IteratorGetNextOp::DoCompute", EVERY_US * step + 1, 9, _r=0) for step in range(STEPS)]
    python = sorted([*calls, *(marks if marked else ())], key=lambda each: (each.start_us, -each.duration_us))
    return plane("/host:CPU", line("python", *python, id=1), line("reader", *(waits if fetches else ()), id=2))


def synthetic_tpu(*, fetches: bool = False, marked: bool = False, jax: bool = True, **parts: bool) -> bytes:
    """Return the profile; `parts` are those of `core`."""
    known = plane("/host:metadata", name_stats={"jit_step(7)": {"program_id": 7, "Hlo Proto": PROGRAM}})
    return space(core(0, **parts), core(1, **parts), _host(fetches=fetches, marked=marked, jax=jax), known)


PRODUCT = "%dot.1 = bf16[8] dot(bf16[8] %p)"


def core_with_work() -> Plane:
    """A core whose profile states its peak, and the work of the only op, a product of 1 ms: half of the public peak."""
    work = {"program_id": 7, "hlo_category": "dot", "flops": 98_500_000_000, "bytes_accessed": 123_400_000}
    return plane(
        "/device:TPU:0",
        line("XLA Ops", event(PRODUCT, 0, 1000)),
        stats={"device_type_string": "TPU v5 lite", "peak_teraflops_per_second": 100.0},
        name_stats={PRODUCT: work},
    )


MS_US = 1000
F_ID, PSUM_ID, SET_UP_ID = 12190760917235803885, 9646411105960254074, 11287434908481120160
"""Program ids as a real profile has them: as signed numbers, all are negative."""
ARRAY_BYTES = 1 << 30
"""Of each of the two arrays, f32[256,1024,1024]."""
HBM_BYTES = 33_550_237_696
SOURCE = "train/offload.py"
F_OPS: tuple[tuple[str, float, float], ...] = (
    ("copy-start", 0, 0),
    ("copy-start.2", 0, 0),
    ("copy-done", 0, 200),
    ("broadcast_add_fusion", 200, 40),
    ("copy-start.1", 240, 0),
    ("copy-done.2", 240, 280),
    ("broadcast_add_fusion.1", 520, 40),
    ("copy-start.3", 560, 0),
    ("copy-done.1", 560, 0),
    ("copy-done.3", 560, 240),
)
"""The ops of a run of 800 ms, from when and how long: for 480 it waits for copies to the device (200 and 280), for 240
for one to the host, and it computes for 80. The other copy to the host (.1) is in flight for 320, never waited for."""
F_COPIES = {"copy-start": (0, 200), "copy-start.2": (0, 520), "copy-start.1": (240, 320), "copy-start.3": (560, 240)}
"""When each copy begins, and how long it is in flight."""
PSUM_MS = 20
"""How long the all-reduce itself takes, once the last chip has come: each comes 10 ms after the one before it."""
JUMP = (2200.0, 2820.0, 200.0)
"""The clock of events is 200 ms ahead from within the second run until within the third: one op of 280 ms appears to
take 480, one of 40 ms none, and the op after that to come before it."""

_DEVICE, _HOST = "f32[256,1024,1024]{2,1,0:T(8,128)}", "f32[256,1024,1024]{2,1,0:T(8,128)S(5)}"
_IN, _OUT = f"({_DEVICE}, {_HOST}, u32[]{{:S(2)}})", f"({_HOST}, {_DEVICE}, u32[]{{:S(2)}})"
_TEXTS = {
    "copy-start": f"{_IN} copy-start({_HOST} %param)",
    "copy-start.2": f"{_IN} copy-start({_HOST} %param.1)",
    "copy-done": f"{_DEVICE} copy-done({_IN} %copy-start)",
    "broadcast_add_fusion": f"{_DEVICE} fusion({_DEVICE} %copy-done), kind=kLoop, calls=%fused",
    "copy-start.1": f"{_OUT} copy-start({_DEVICE} %broadcast_add_fusion)",
    "copy-done.2": f"{_DEVICE} copy-done({_IN} %copy-start.2)",
    "broadcast_add_fusion.1": f"{_DEVICE} fusion({_DEVICE} %copy-done.2), kind=kLoop, calls=%fused.1",
    "copy-start.3": f"{_OUT} copy-start({_DEVICE} %broadcast_add_fusion.1)",
    "copy-done.1": f"{_HOST} copy-done({_OUT} %copy-start.1)",
    "copy-done.3": f"{_HOST} copy-done({_OUT} %copy-start.3)",
    "all-reduce": f"{_DEVICE} all-reduce({_DEVICE} %param), replica_groups={{}}, to_apply=%sum",
    "broadcast": f"{_DEVICE} broadcast(f32[] %a), dimensions={{}}",
}


@dataclass(frozen=True)
class Offload:
    """What is odd in `offload_tpu`. Times are in ms.

    Of the chips that the program runs on, the file has some, from `first_chip` on.
    `own_clock` tells which lines state times of the chip's own clock (`device_offset_ps`); `jumps` when the clock of
    events runs ahead of it (from, until, by how much); `early` how far the device planes lie before the host. What
    begins before `begin` is in no line. A program that `waits` for each result can spend `fed` on a transfer to each
    chip before the next call.
    """

    chips: int = 2
    partitions: int = 4
    first_chip: int = 2
    runs: int = 5
    run_ms: float = 800
    large_ids: bool = True
    programs: bool = True
    steps_line: bool = False
    own_clock: Literal["ops", "all", "none"] = "ops"
    jumps: tuple[tuple[float, float, float], ...] = ()
    early: float = 0
    begin: float = 0
    async_on: tuple[int, ...] = (0,)
    shifted_run_ids: bool = True
    barrier: bool = True
    flows: bool = True
    allocator: bool = False
    waits: bool = False
    fed: float = 0

    def event_ms(self, chip_ms: float) -> float:
        """Return the time that events bear for a moment of the chip's own clock."""
        return chip_ms + sum(by for begin, until, by in self.jumps if begin <= chip_ms < until)

    def id(self, program: int) -> int:
        """Return the id of a program, or a small one instead."""
        return program if self.large_ids else {F_ID: 7, PSUM_ID: 8, SET_UP_ID: 9}[program]

    def runs_of(self, chip: int) -> list[OffloadRun]:
        """Return the runs of a chip in time order; the first chip runs a program before all others if ids shift."""
        flow, count = chip << 32, 1
        runs = []
        if self.shifted_run_ids and chip == 0:
            runs.append(OffloadRun("jit_broadcast_in_dim", SET_UP_ID, 1, 100, 104, flow))
            count += 1
        if self.barrier:
            end = 300 + 10 * (self.chips - 1) + PSUM_MS
            runs.append(OffloadRun("jit__psum", PSUM_ID, count, 300 + 10 * chip, end, flow + 1))
            count += 1
        every = self.run_ms + (0.24 + self.fed if self.waits else 0)
        for nth in range(self.runs):
            start = 1000 + every * nth
            runs.append(OffloadRun("jit_f", F_ID, count + nth, start, start + self.run_ms, flow + 2 + nth))
        return runs


class OffloadRun(NamedTuple):
    """A run of a program on a chip: when, in ms of the chip's own clock, and the number of its flow."""

    name: str
    program: int
    run_id: int
    start: float
    end: float
    flow: int


def offload_tpu(made: Offload = Offload()) -> bytes:
    """Return the profile of a program that keeps two arrays in host memory, as the real one does.

    One `psum` with its barrier, then runs of `jit_f` from 1,000 ms on, one after the other.
    """
    proto = {
        "jit_f": (F_ID, offload_program(made.partitions)),
        "jit__psum": (PSUM_ID, _one_op_program("jit__psum", "all-reduce", made.partitions)),
        "jit_broadcast_in_dim": (SET_UP_ID, _one_op_program("jit_broadcast_in_dim", "broadcast", 1)),
    }
    named = proto.items() if made.programs else ()
    names = {f"{name}({made.id(number)})": (made.id(number), data) for name, (number, data) in named}
    known = plane(
        "/host:metadata",
        name_stats={name: {"Hlo Proto": data} for name, (_, data) in names.items()},
        ids={name: signed(number) for name, (number, _) in names.items()},
    )
    times = {"profile_start_time": u64(1741722099081044120), "profile_stop_time": u64(1741722109081044120)}
    recorded = [*(_chip(made, chip) for chip in range(made.chips)), plane("/host:CPU", *_host_lines(made))]
    cut = [replace(each, lines=tuple(_since(made.begin, of_plane) for of_plane in each.lines)) for each in recorded]
    return space(*cut, known, plane("Task Environment", stats=times))


def _since(begin: float, whole: Line) -> Line:
    return replace(whole, events=tuple(each for each in whole.events if each.start_us >= begin * MS_US))


def signed(number: int) -> int:
    """Return the signed number with the bits of an unsigned one."""
    return number - (number >> 63 << 64)


def _layout(space: int) -> bytes:
    made = message(field(1, b"\2\1\0"), field(6, message(field(1, b"\x08\x80\x01"))))
    return made + (field(8, space) if space else b"")


def module_fields(name: str, number: int, partitions: int, *, aliases: int = 0) -> bytes:
    """Further fields of a module: its name and number, the outputs that are inputs, and where its partitions run."""
    entries = [message(field(1, bytes([each])), field(2, each), field(4, 1)) for each in range(aliases)]
    devices = [field(3, message(field(1, bytes([each])))) for each in range(partitions)]
    assignment = message(field(1, 1), field(2, partitions), *devices)
    made = message(field(1, name.encode()), field(5, number), field(15, assignment))
    return made + (field(8, message(*(field(1, each) for each in entries))) if aliases else b"")


def offload_program(partitions: int) -> bytes:
    """The program `jit_f`: two donated arrays in host memory are copied to the device, added to, and copied back."""
    device, host = (shape(F32, 256, 1024, 1024, layout=_layout(space)) for space in (0, 5))
    flag = shape(8, layout=field(8, 2))
    to_device, to_host = (shape(TUPLE, parts=parts) for parts in ((device, host, flag), (host, device, flag)))
    add = field(7, field(2, b"jit(f)/jit(main)/add") + field(3, SOURCE.encode()) + field(4, 29))
    fused = [
        computation(
            name,
            instruction(first, "param_0", "parameter", device),
            instruction(first + 1, "add", "add", device, [first, first], extra=add),
            number=number,
            root=first + 1,
        )
        for name, number, first in (("fused", 2, 20), ("fused.1", 3, 22))
    ]
    parameters = (
        instruction(1, "param", "parameter", host, extra=field(7, field(2, b"ws[0]"))),
        instruction(2, "param.1", "parameter", host, extra=field(7, field(2, b"ws[1]")) + field(9, 1)),
    )
    main = computation(
        "main",
        *parameters,
        instruction(3, "copy-start", "copy-start", to_device, [1]),
        instruction(4, "copy-start.2", "copy-start", to_device, [2]),
        instruction(5, "copy-done", "copy-done", device, [3]),
        instruction(6, "broadcast_add_fusion", "fusion", device, [5], [2], extra=add + field(11, b"kLoop")),
        instruction(7, "copy-start.1", "copy-start", to_host, [6]),
        instruction(8, "copy-done.2", "copy-done", device, [4]),
        instruction(9, "broadcast_add_fusion.1", "fusion", device, [8], [3], extra=add + field(11, b"kLoop")),
        instruction(10, "copy-start.3", "copy-start", to_host, [9]),
        instruction(11, "copy-done.1", "copy-done", host, [7]),
        instruction(12, "copy-done.3", "copy-done", host, [10]),
        instruction(13, "tuple", "tuple", shape(TUPLE, parts=(host, host)), [11, 12]),
        root=13,
    )
    held_by_caller = field(5, 1) + field(7, 1) + field(8, 5) + field(13, 1)
    buffers = (
        field(1, 0) + field(2, ARRAY_BYTES) + held_by_caller,
        field(1, 1) + field(2, ARRAY_BYTES) + field(6, 1) + held_by_caller,
        field(1, 2) + field(2, _TEMPORARIES) + message(*(field(9, field(1, value)) for value in _VALUES)),
        field(1, 3) + field(2, 12) + field(8, 2),
    )
    values = (
        field(1, value) + field(2, ARRAY_BYTES) + field(3, message(*(field(3, at) for at in index), field(4, made_by)))
        for value, (made_by, *index) in _VALUES.items()
    )
    events = (
        message(field(1, kind), *(field(key, value) for key, value in zip((2, 5), of, strict=False)))
        for kind, *of in _EVENTS
    )
    plan = (
        *(field(1, each) for each in values),
        *(field(3, each) for each in buffers),
        field(4, message(*(field(1, each) for each in events))),
    )
    extra = module_fields("jit_f", 31, partitions, aliases=2)
    return program(*fused, main, extra=extra, buffers=message(*plan))


_VALUES = {10: (3, 0), 11: (4, 0), 12: (6,), 13: (9,)}
"""Values on the device: instruction, and index in its result."""
_EVENTS = ((0, 10), (0, 11), (2, 12, 10), (1, 10), (2, 13, 11), (1, 11), (1, 12), (1, 13))
"""Each array is allocated when its copy starts; the sum takes its place."""


_TEMPORARIES = 2 * ARRAY_BYTES + 98304


def _one_op_program(name: str, opcode: str, partitions: int) -> bytes:
    array = shape(F32, 256, 1024, 1024, layout=_layout(0))
    op = instruction(2, opcode, opcode, array, [1])
    made = computation("main", instruction(1, "param", "parameter", array), op, root=2)
    return program(made, extra=module_fields(name, 32, partitions))


def _chip(made: Offload, chip: int) -> Plane:
    scale, on_ops, on_all = made.run_ms / 800, made.own_clock != "none", made.own_clock == "all"

    def at(name: str, start: float, length: float, is_stated: bool, **stats: Any) -> Event:
        """An event on the clock of events, which may also state its times on that of the chip."""
        begin, end = start - made.early, start - made.early + length
        shown = made.event_ms(begin)
        own = {"device_offset_ps": u64(round(begin * 1e9)), "device_duration_ps": u64(round(length * 1e9))}
        stats |= own if is_stated else {}
        return event(name, shown * MS_US, max(0.0, made.event_ms(end) - shown) * MS_US, **stats)

    modules, ops, copies, marks = list[Event](), list[Event](), list[Event](), list[Event]()
    for run in made.runs_of(chip):
        ids = {"run_id": u64(run.run_id), "replica_id": 0, "queue_id": u64(0), "core_type": u64(0)}
        ids |= {"_c": run.flow, "_ct": 12} if made.flows else {}
        modules.append(at(f"{run.name}({made.id(run.program)})", run.start, run.end - run.start, on_all, **ids))
        if run.program == SET_UP_ID:
            ops.append(at("broadcast", run.start, run.end - run.start, on_ops))
        elif run.program == PSUM_ID:
            unique = u64((run.run_id - 1) << 16 | 1)
            marks.append(at("barrier-cores", run.start, run.end - PSUM_MS - run.start, on_all))
            ops.append(at("all-reduce", run.end - PSUM_MS, PSUM_MS, on_ops, all_reduce_unique_id=unique))
        else:
            marks.append(at("dependency-wait", run.start, 0, on_all))
            ops += [at(name, run.start + scale * start, scale * length, on_ops) for name, start, length in F_OPS]
            for number, (name, (start, length)) in enumerate(F_COPIES.items()):
                facts = {"hlo_op": name.replace("start", "done"), "_a": 1, "flow": u64(600 + number), "id": u64(number)}
                copies.append(at(f"async {name}", run.start + scale * start, scale * length, on_all, **facts))
    steps = [at(str(nth), run.start, run.end - run.start, on_all) for nth, run in enumerate(_f_runs(made, chip))]
    core = {2: chip, 4: chip, 5: made.first_chip + chip, 6: made.first_chip + chip}
    texts = {name: (f"%{name} = {text}", name) for name, text in _TEXTS.items()}
    texts |= {f"async {name}": (texts[name][0], "async-copy") for name in F_COPIES}
    return plane(
        f"/device:TPU:{chip}",
        *([line("Steps", *steps, id=1)] if made.steps_line else []),
        line("XLA Modules", *modules, id=2),
        line("XLA Ops", *ops, id=3),
        line("Async XLA Ops", *(_in_order(copies) if chip in made.async_on else ()), id=4),
        line("Overlay", id=7),
        line("XLA TraceMe", *marks, id=6),
        stats={
            "core_details": message(*(field(number, value) for number, value in core.items() if value)),
            "device_type_string": "TPU v6 Lite",
            "peak_teraflops_per_second": 918.0,
            "peak_hbm_bw_gigabytes_per_second": 1637.993152512,
            "has_megacore": 0,
            "has_merged_vmem": 1,
        },
        name_stats={name: _facts(made, name.removeprefix("async ")) for name in texts},
        texts=texts,
    )


def _f_runs(made: Offload, chip: int) -> list[OffloadRun]:
    return [run for run in made.runs_of(chip) if run.program == F_ID]


_READ, _WRITTEN = 1, 2


def _facts(made: Offload, name: str) -> dict[str, Any]:
    """Return what the profile states of an op: category, work, bytes, and for some the line that it comes from."""
    kind, _, number = name.partition(".")
    accesses, flops, op = list[int](), 0, dict[str, Any]()
    if kind == "broadcast_add_fusion":
        accesses, flops, category = [_READ, _WRITTEN], ARRAY_BYTES // 4, "loop fusion"
        op = {"source": f"{SOURCE}:29", "source_stack": f"{SOURCE}:45:9\n{SOURCE}:29:10"}
        op = {"tf_op": "jit(f)/jit(main)/add:", **op}
    elif kind == "all-reduce":
        flops, category = ARRAY_BYTES // 4, kind
        op = {"tf_op": "jit(_psum)/jit(main)/reduce_sum:", "source": f"{SOURCE}:38"}
    else:
        is_to_host, category = number in {"1", "3"}, kind
        if kind == "broadcast" or (kind == "copy-done" and not is_to_host):
            accesses = [_WRITTEN]
        elif kind == "copy-start" and is_to_host:
            accesses = [_READ]
    size = ARRAY_BYTES * (2 if flops else 1)
    breakdown = (field(1, field(1, each) + field(2, 1) + field(3, ARRAY_BYTES)) for each in accesses)
    return op | {
        "hlo_category": category,
        "program_id": u64(made.id({"all-reduce": PSUM_ID, "broadcast": SET_UP_ID}.get(kind, F_ID))),
        "symbol_id": u64(list(_TEXTS).index(name)),
        "flops": flops,
        "model_flops": flops,
        "bytes_accessed": size,
        "raw_bytes_accessed": size,
        "memory_access_breakdown": message(*breakdown),
        "shape_with_layout": _TEXTS[name].partition(f" {kind}(")[0],
    }


def _in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda each: (each.start_us, -each.duration_us))


def _span(name: str, start: float, end: float, /, **stats: Any) -> Event:
    return event(name, start * MS_US, (end - start) * MS_US, **stats)


def _calls(made: Offload) -> Iterator[tuple[str, float, float, list[tuple[int, OffloadRun]]]]:
    """Yield the calls: function, start and end, and the runs that each causes on chips.

    The program runs ahead: a call returns once the last run but one has ended. If it waits for results, each call is
    made 0.04 ms before its run.
    """
    runs = [made.runs_of(chip) for chip in range(made.chips)]
    if made.shifted_run_ids:
        yield "broadcast_in_dim", 90, 99.995, [(0, runs[0].pop(0))]
    if made.barrier:
        yield "_psum", 290, 300 + 10 * made.chips, [(chip, of_chip.pop(0)) for chip, of_chip in enumerate(runs)]
    start, end = 600.0, 999.98
    for nth, of_chips in enumerate(zip(*runs, strict=True)):
        if made.waits:
            start, end = of_chips[0].start - 0.04, of_chips[0].start - 0.006
        elif nth:
            start = end + 0.05
            end = max(start + 0.2, runs[0][nth - 1].start + 0.3)
        yield "f", start, end, list(enumerate(of_chips))


def _memory(made: Offload, chip: int) -> dict[str, Any]:
    """Return the facts of a memory event: half of the fractions are whole numbers, and no allocator has a name."""
    free = HBM_BYTES - _TEMPORARIES - 857216
    sizes = {"bytes_reserved": _TEMPORARIES, "bytes_allocated": 857216, "bytes_available": free, "addr": 33549380736}
    named = {"allocator_name": f"TPU_{chip}"} if made.allocator else {}
    fraction = {"fragmentation": 0.25 if chip else 0}
    return {"index_on_host": chip, **sizes, "peak_bytes_in_use": ARRAY_BYTES, **fraction, **named}


def _host_lines(made: Offload) -> Iterator[Line]:
    """Yield the threads: that of the program, and for each chip those that launch, enqueue and are told of the end."""

    def flows(**numbers: int) -> dict[str, int]:
        return numbers if made.flows else {}

    python = list[Event]()
    launching, enqueuing, completing = ([list[Event]() for _ in range(made.chips)] for _ in range(3))
    for number, (function, start, end, runs) in enumerate(_calls(made)):
        nested, handed_out = (end - start) / 1000, 4294967393 + number
        python += [_span(f"PjitFunction({function})", start + nested * depth, end - nested * depth) for depth in (0, 1)]
        executing = flows(_p=handed_out, _pt=5)
        python.append(_span("TfrtTpuLoadedExecutable::Execute", start + 2 * nested, end - 2 * nested, **executing))
        is_first = function == "f" and start == 600
        if is_first:
            python.append(_span("backend_compile", 601, 700))
        if made.waits and made.fed and function == "f":
            fed = start - 0.01 - made.fed, start - 0.01
            python.append(_span("PjRtClient::BufferFromHostBuffer", *fed))
            for chip in range(made.chips):
                size = {"size": ARRAY_BYTES >> 4, "device_ordinal": made.first_chip + chip}
                issued = 77 << 32 | chip << 16 | number
                launching[chip].append(_span("tpu::System::TransferToDevice", *fed, **size, **flows(_p=issued, _pt=7)))
                told = fed[1] - 0.005, fed[1]
                arrived = _span("tpu::System::TransferToDevice=>Done", *told, **flows(_c=issued, _ct=7))
                completing[chip].append(arrived)
        if made.waits and function == "f":
            waited = runs[-1][1].end + 0.1 + 0.01 * made.chips
            python.append(_span("block_until_ready", end + 0.001, waited + 0.013))
        for chip, run in runs:
            launch = run.start - 0.03 if made.waits or function != "f" else end - 0.03
            enqueued, done, issued = launch + 0.003, run.end + 0.1 + 0.01 * chip, 25769803965 + 1000 * chip + number
            ids = {"run_id": run.run_id, "queue_id": 0, "device_ordinal": chip, "core_type": 0}
            used, asked = _memory(made, chip), {"requested_bytes": 32, "allocation_bytes": 128}
            loading = ("LoadProgram", 700.5) if is_first else ("Acquire semaphore", start + 5 * nested)
            issuing, continuing, beginning = (
                flows(_p=issued, _pt=7),
                flows(_c=issued, _ct=7),
                flows(_p=run.flow, _pt=12),
            )
            execute, taken_over = "TfrtTpuLoadedExecutable::Execute", flows(_c=handed_out, _ct=5)
            launching[chip] += [
                _span(f"Scheduled {execute}", start + 3 * nested, launch + 0.02, **taken_over),
                _span(f"{execute}Prepare", start + 4 * nested, launch - 0.001),
                _span(*loading, launch - 0.002),
                _span(f"{execute}Launch", launch, launch + 0.018),
                _span("tpu::System::Execute", launch + 0.001, launch + 0.015, **issuing),
                _span("MemoryAllocation", launch + 0.002, launch + 0.002, **used, **asked),
            ]
            enqueuing[chip] += [
                _span("tpu::System::Execute=>IssueSequencedEvent", enqueued - 0.0008, enqueued + 0.01, **continuing),
                _span("EnqueueContinuationProgram", enqueued - 0.0004, enqueued + 0.0095),
                _span("DoEnqueueProgram", enqueued, enqueued + 0.009, continuation=1, **ids, **beginning),
            ]
            completing[chip] += [
                _span("ReadSyncFlag", done - 0.05, done - 0.002),
                _span("CompleteCallbacks", done, done + 0.006, **ids, **flows(_c=run.flow, _ct=12)),
                _span("tpu::System::Execute=>Done", done + 0.001, done + 0.005),
                _span("MemoryDeallocation", done + 0.002, done + 0.002, **used),
            ]
    yield line("main/3116817", *_in_order(python), id=3116817)
    pools = {"py_xla_execute": launching, "tfrt-non-blocking-queue": enqueuing, "switchto-default-SDomainT": completing}
    for first, (pool, threads) in enumerate(pools.items(), 3118000):
        for thread, events in enumerate(threads, first * 10):
            yield line(f"{pool}/{thread}", *_in_order(events), id=thread)
