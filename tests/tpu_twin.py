"""A twin of a real TPU profile that is not here: one chip, three calls of a Pallas matmul, each waited for.

Numbers and oddities are those of `spec-tpu-real.md` (B there): the device planes lie 0.4 ms before the host, and a run
takes 0.076; nothing but run ids links a run to its call; libtpu and Python record one thread each by themselves;
counters are of the compiled schedule, and the last two end at an absolute time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from builders import Event, Line, Plane, event, line, plane, space, u64
from hlo_builders import F32, computation, instruction, program, shape
from protobytes import field, message
from synthetic_tpu import module_fields

PROGRAM_ID = 17342868964687645945
MODULE_ID = 35
HOSTNAME = "t1v-n-0a1b2c3d-w-0"
HBM_BYTES = 33_550_235_648
STATED_FLOPS = 1_076_887_552
"""Of one pass through the body of the kernel; the product takes 2 * 2048 * 2048 * 1024."""
FLOPS = 8_589_934_592
TICK_US = 0.00125

BEGIN_US = 81_600.0
"""When the first call begins, after 81 ms of `start_trace`."""
CALLS_US = (0.0, 500.6, 723.5)
RETURNS_US = (190.2, 534.8, 757.4)
RUNS_US = (75.56625, 75.785, 75.91125)
IDLE_US = (242.9, 136.9)
"""Between the runs, on the clock of the chip."""
BEFORE_ENQUEUE_US = (358.0, 392.0, 396.0)
"""How long each run begins before it is enqueued, as the file has it."""
COMPLETED_US = (563.0, 500.0, 491.0)
"""How long after its end the host is told, as the file has it: the chip's clock is 396 to 491 us behind."""
WOKEN_US = 13.04
"""How long after that Python goes on."""
STEPS_US = (500.6, 222.9, 203.1)
END_US = BEGIN_US + sum(STEPS_US)
FILE_US = 682_000.0
PYTHON_NS, LIBTPU_NS, COMPLETIONS_NS = 356_850, 81_442_345, 81_445_045

_FIRST = BEGIN_US + 173.5 - BEFORE_ENQUEUE_US[0]
STARTS_US = (_FIRST, _FIRST + RUNS_US[0] + IDLE_US[0], _FIRST + sum(RUNS_US[:2]) + sum(IDLE_US))
"""When the runs start, on the clock of the chip."""

_TARGET = 'custom_call_target="tpu_custom_call", operand_layout_constraints={f32[2048,1024]{1,0}, f32[1024,2048]{1,0}}'
_RESULT, _X, _Y = (f"f32[{dims}]{{1,0:T(8,128)}}" for dims in ("2048,2048", "2048,1024", "1024,2048"))
KERNEL = f"%matmul_optimized.1 = {_RESULT} custom-call({_X} %x.1, {_Y} %y.1), {_TARGET}"
MODULE = f"jit_matmul_optimized({PROGRAM_ID})"


def tpu_twin() -> bytes:
    """Return the profile."""
    of_jax = {"jax_version": "0.10.0", "jaxlib_version": "0.10.0"}
    versions = of_jax | {"tpu_version": "Built on Jun 30 2026", "process_id": 4711}
    known: dict[str, dict[str, Any]] = {MODULE: {"program_id": u64(PROGRAM_ID), "Hlo Proto": twin_program()}}
    for number in range(10):
        known[f"jit_matmul_optimized(29)::fusion.{number}"] = {"llo_proto": b"\x0a\x04body" * 20}
    environment = {
        "profile_start_time": u64(1783000000000000000),
        "profile_stop_time": u64(1783000000000000000 + round(FILE_US * 1000)),
        "profile_options": "host_tracer_level: 2 device_tracer_level: 1 python_tracer_level: 1",
    }
    return space(
        _chip(),
        plane("/host:metadata", stats=versions, name_stats=known),
        plane("/device:CUSTOM:Megascale Trace", stats={"graph_protos": b""}),
        plane("/host:CPU", *_host_lines()),
        plane("Task Environment", stats=environment),
        hostname=HOSTNAME,
    )


def twin_program() -> bytes:
    """The program: one custom call, whose source is a number of the frame index, and ids of 64 bit."""
    array, x, y = shape(F32, 2048, 2048), shape(F32, 2048, 1024), shape(F32, 1024, 2048)
    first = 1 << 32
    body = b'{"custom_call_config": {"body": "TUzvUgFNTElSMjMuMC4wZ2l0AAFBBwEFCQ==", "needs_layout_passes": true}}'
    scoped = field(9, 9 << 20)
    call = instruction(
        first + 3,
        "matmul_optimized.1",
        "custom-call",
        array,
        [first + 1, first + 2],
        extra=field(7, field(2, b"jit(matmul_optimized)/pallas_call") + scoped + field(15, 2))
        + field(28, b"tpu_custom_call")
        + field(43, body),
    )
    main = computation(
        "main.1",
        instruction(first + 1, "x.1", "parameter", x, extra=field(7, field(2, b"x"))),
        instruction(first + 2, "y.1", "parameter", y, extra=field(7, field(2, b"y")) + field(9, 1)),
        call,
        root=first + 3,
    )
    names = [field(1, b"/home/user/pallas_matmul.py"), field(2, b"<module>"), field(2, b"matmul_optimized")]
    places = [message(field(1, 1), field(2, 1), field(3, 66)), message(field(1, 1), field(2, 2), field(3, 34))]
    frames = [message(field(1, 1)), message(field(1, 2), field(2, 1))]
    index = message(*names, *(field(3, each) for each in places), *(field(4, each) for each in frames))
    megabyte = 1 << 20
    buffers = [
        field(1, 0) + field(2, 8 * megabyte) + field(5, 1),
        field(1, 1) + field(2, 8 * megabyte) + field(5, 1) + field(6, 1),
        field(1, 2) + field(2, 16 * megabyte) + field(7, 1),
    ]
    extra = module_fields("jit_matmul_optimized", MODULE_ID, 1) + field(17, index)
    return program(main, extra=extra, buffers=message(*(field(3, each) for each in buffers)))


def _on_chip(name: str, start: float, length: float, /, **stats: Any) -> Event:
    """An event that states its times on the chip's own clock, which the events of this file bear too."""
    ticks, lasts = round(start / TICK_US), round(length / TICK_US)
    own = {"device_offset_ps": u64(ticks * 1250), "device_duration_ps": u64(lasts * 1250)}
    return event(name, ticks * TICK_US, lasts * TICK_US, **stats, **own)


def _regions(start: float) -> Iterator[Event]:
    """Yield what the kernel marks in a run: 32 waits for blocks, 57.79 us in all, and 14.53 us of its body."""
    yield _on_chip("dependency-wait", start, TICK_US)
    now = start + 0.3
    for turn in range(16):
        for block in range(2):
            if turn < 15:
                yield _on_chip("ep_copy_in", now, 0.0175)
                now += 0.02
            yield _on_chip("ep_wait_in", now, 1.80625)
            now += 1.8075
            if block and turn % 2:
                yield _on_chip("ep_wait_out", now, TICK_US)
                now += 0.005
        yield _on_chip("ep_run_kernel", now, 0.9075)
        yield _on_chip("init" if turn % 2 == 0 else "acc", now + 0.0025, 0.9)
        now += 0.91
        if turn % 2:
            yield _on_chip("ep_copy_out", now, TICK_US)
            now += 0.0025
    yield _on_chip("ep_finalize", now, 1.87)


def _chip() -> Plane:
    modules, ops, regions, points, counters = (list[Event]() for _ in range(5))
    units = ("MXU", "XLU", "Vector ALU", "Vector EUP", "Vector Load", "Vector Store", "Scalar ALU", "Vector Spills")
    for number, (start, takes) in enumerate(zip(STARTS_US, RUNS_US, strict=True)):
        ids = {"run_id": u64(5 + number), "replica_id": 0, "queue_id": u64(0), "core_type": u64(0)}
        modules.append(_on_chip(MODULE, start, takes, **ids, _c=(1 << 50) + number, _ct=12))
        work = {"flops": STATED_FLOPS, "model_flops": STATED_FLOPS, "bytes_accessed": 0, "Time Scale Multiplier": 1.0}
        ops.append(_on_chip(KERNEL, start + 0.0025, takes - 0.005, **work))
        regions += _regions(start)
        points += [
            _on_chip(
                f"bundle.{134217797 + point}", start + point * 0.5, 0, long_name=f"[{point}]  0x{point:x}: bundle.id"
            )
            for point in range(146)
        ]
        for section in range(73):
            at = start + section
            counters += [event(unit, at, 1, **{"% util": 72.0 if unit == "MXU" else 10.0}) for unit in units]
    last = STARTS_US[-1] + 73
    counters += [event(unit, last, 81_918, **{"% util": 0.0}) for unit in units[:2]]
    source = {
        "hlo_category": "custom-call",
        "program_id": u64(PROGRAM_ID),
        "symbol_id": u64(3),
        "tf_op": "jit(matmul_optimized)/pallas_call:",
        "source": "/home/user/pallas_matmul.py:34",
        "source_stack": "/home/user/pallas_matmul.py:34:11\n/home/user/pallas_matmul.py:66:8",
    }
    return plane(
        "/device:TPU:0",
        line("XLA Modules", *modules, id=2),
        line("XLA Ops", *ops, id=3),
        line("Async XLA Ops", id=4),
        line("XLA TraceMe", *regions, id=6),
        line("TC Overlay", id=7),
        line("Tensor Core", *points, id=8),
        line("_counters_", *counters, id=(1 << 63) - 1),
        stats={
            "core_details": b"",
            "device_type_string": "TPU v6 Lite",
            "peak_teraflops_per_second": 946.7,
            "peak_hbm_bw_gigabytes_per_second": 1637.993152512,
            "peak_cmem_rd_bw_gigabytes_per_second": 0.0,
            "peak_vmem_rd_bw_gigabytes_per_second": 23296.0099876864,
            "peak_vmem_wr_bw_gigabytes_per_second": 16128.031693209601,
            "has_megacore": 0,
            "has_merged_vmem": 1,
        },
        name_stats={KERNEL: source},
        texts={KERNEL: (KERNEL, "matmul_optimized.1")},
    )


def _python() -> Iterator[Event]:
    """Yield the events of the program's thread that jaxlib records: the calls, and the frames of Python."""
    yield event("$profiler.py:115 start_trace", 400, 81_000)
    for call, returned, end in zip(CALLS_US, RETURNS_US, _wait_ends(), strict=True):
        start, takes = BEGIN_US + call, returned - call
        yield event("PjitFunction(matmul_optimized)", start, takes)
        yield event("PjitFunction(matmul_optimized)", start + 0.2, takes - 0.4)
        yield event("ParseArguments", start + 0.5, 1)
        yield event("PjRtCApiLoadedExecutable::Execute", start + 4, takes - 6)
        flow = u64(13_835_058_055_282_163_713 + round(call))
        yield event("PJRT_LoadedExecutable_Execute linkage", start + 5, takes - 8, _p=flow, _pt=14)
        waits = start + takes + 0.6
        yield event("$api.py:2794 block_until_ready", waits, end - waits)
        yield event("$tree_util.py:361 tree_map", waits + 1, end - waits - 1.5)
        yield event("$tree_util.py:371 <genexpr>", waits + 2, end - waits - 2.5)
        yield event("$api.py:2811 try_to_block", waits + 3, end - waits - 3.5)
        yield event("$array.py:655 block_until_ready", waits + 4, end - waits - 4.5)
    yield event("$profiler.py:235 stop_trace", END_US + 60, FILE_US - END_US - 160)


def _wait_ends() -> list[float]:
    ended = zip(STARTS_US, RUNS_US, COMPLETED_US, strict=True)
    return [start + takes + told + WOKEN_US for start, takes, told in ended]


def _memory(**more: int) -> dict[str, int]:
    reserved, allocated = 16 << 20, 50_331_648
    used = {"index_on_host": 0, "bytes_reserved": reserved, "bytes_allocated": allocated, "addr": 33_000_000}
    return used | {"bytes_available": HBM_BYTES - reserved - allocated, "peak_bytes_in_use": 67_108_864} | more


def _libtpu() -> Iterator[Event]:
    """Yield what libtpu records of the same thread: each call from the other side of the C API."""
    for number, (call, returned) in enumerate(zip(CALLS_US, RETURNS_US, strict=True)):
        start, takes, flow = BEGIN_US + call, returned - call, u64(13_835_058_055_282_163_713 + round(call))
        enqueued = STARTS_US[number] + BEFORE_ENQUEUE_US[number]
        end = start + takes
        yield event("PJRT_LoadedExecutable_Execute", start + 6, takes - 10, _c=flow, _ct=14)
        names = {"jit_name": "jit_matmul_optimized", "run_id": -1440502658 + number}
        yield event("CommonPjRtLoadedExecutable::Execute", start + 7, takes - 12, **names)
        yield event("CommonPjRtLoadedExecutable::ExecutePrepare", start + 8, 4)
        yield event("MemoryAllocation", start + 10, 0, **_memory(requested_bytes=16 << 20, allocation_bytes=16 << 20))
        yield event("TpuLoadedExecutable::ExecuteLaunch", enqueued - 5, end - enqueued - 1.5)
        yield event("tpu::System::Execute", enqueued - 4, end - enqueued - 3, _p=25_769_803_965 + number, _pt=7)
        yield event("tpu::System::Execute=>IssueSequencedEvent", enqueued - 2, 7, _c=25_769_803_965 + number, _ct=7)
        yield event("EnqueueContinuationProgram", enqueued - 1, 6)
        ids = {"run_id": 5 + number, "queue_id": 0, "device_ordinal": 0, "core_type": 0}
        yield event("DoEnqueueProgram", enqueued, 4.5, continuation=1, **ids)


def _completions() -> Iterator[Event]:
    for number in range(len(STARTS_US)):
        told = STARTS_US[number] + RUNS_US[number] + COMPLETED_US[number]
        ids = {"run_id": 5 + number, "queue_id": 0, "device_ordinal": 0, "core_type": 0}
        yield event("ReadSyncFlag", told - 44, 42)
        yield event("CompleteCallbacks", told, 9, **ids)
        yield event("tpu::System::Execute=>Done", told + 1, 7)
        yield event("MemoryDeallocation", told + 2, 0, **_memory())
    for turn in range(20):
        for name in ("MutexLock", "MutexLock::Acquire", "MutexLock::Release"):
            yield event(name, END_US + 100 + turn, 0.1, mutex="MEGA_SCALE_GRAPH_PROFILER_SINGLETON")


def _host_lines() -> Iterator[Line]:
    for name in ("GrpcClientRequest", "GrpcClientResponse", "GrpcServerRequest", "GrpcServerResponse"):
        yield line(f"{name}Events")
    named = (("python", -1_234_567_890, PYTHON_NS, _python()), ("main/4711", 4711, LIBTPU_NS, _libtpu()))
    for name, number, begin_ns, events in (
        *named,
        ("futex-default-SDomainT/4790", 4790, COMPLETIONS_NS, _completions()),
    ):
        from_begin = (
            event(each.name, each.start_us - begin_ns / 1000, each.duration_us, **each.stats) for each in events
        )
        yield line(name, *from_begin, id=number, timestamp_ns=begin_ns)
