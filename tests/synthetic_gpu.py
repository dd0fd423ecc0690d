"""A synthetic profile of a job on two GPUs, small enough to check by hand: all numbers that a report should show.

Times are microseconds, bytes are decimal. Six marked steps, `train 0` to `train 5`, each of 1000; step 3 takes 1100,
because a kernel of device 1 straggles there. What happens in a step, from its start:

    python       0-900    waits for the fetch, then the call of `train_step`; from 700 on it waits for the devices
               900-1000   a callback in Python
    tf.data      0-200    the fetch of the batch; in it Map works for 160 and BatchV2 for the other 40
    device 0   220-300    copy of 800,000 bytes from pinned memory to the device, called at 210-214: 10 GB/s
               300-600    gemm, launched at 214-218
               600-700    relu, launched at 218-222
               700-800    all-reduce, launched at 222-226
               810-850    copy of 40,000 bytes from the device to pageable memory, called at 700-705: 1 GB/s
    device 1   220-320    copy of 800,000 bytes from pageable memory to the device, called at 210-214: 8 GB/s
               320-620    gemm
               620-720    relu
               720-800    all-reduce, which ends on both devices at the same time
    host op    860-890    Cast, on a thread of its own

In step 3, gemm takes 400 on device 1 instead of 300, so what follows there comes 100 later. Device 0 waits for it in
its all-reduce, which takes 200. What the host does from 860 on comes 100 later too.

Per device, in an ordinary step, in step 3, and in all six:

                        device 0               device 1
                    step  step 3   all     step  step 3   all
    kernels          500     600  3100      480     580  2980
    copies           120     120   720      100     100   600
    idle             380     380  2280      420     420  2520
    step            1000    1100  6100     1000    1100  6100

What each device waits for, the same in every step:

                    device 0  device 1
    input                200       200   the fetch, 0-200
    launch                20        20   in the call, 200-210 and 890-900, where no thread works or synchronizes
    copy                  10        10   210-220, from the call of the copy until it starts
    synchronize           20        60   main thread waits for the devices, to 860, while no other thread works
    host compute          30        30   Cast, 860-890
    python               100       100   900-1000
    idle                 380       420

Categories of a step, over both devices: device compute 420 (in step 3, 520), while gemm or relu runs on any device;
collectives 80, the all-reduce after that; output 40; input 280, of which 200 are the fetch and 80 the copies before
compute starts; kernel launch 10, 210-220; host compute 50, Cast and 20 in which the main thread only synchronizes; all
others 120.

Memory: each device has an allocator of 10,000,000 bytes with 1,000,000 in use before the capture. In each step, 800,000
are allocated at 205 for the batch and 2,000,000 at 214 for the output of gemm, and freed at 880: the peak is 3,800,000
(38 %). On device 1, 500,000 more are in use in step 3 from 230 on, for a workspace: its peak is 4,300,000 (43 %).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from builders import Event, Line, Plane, event, iterator_call, line, plane, ref, space

STEPS = 6
STRAGGLING_STEP = 3
DELAY = 100
CAPACITY_BYTES = 10_000_000

_MATMUL, _RELU_OP = "model/dense/MatMul:MatMul", "model/dense/Relu:Relu"
_REDUCE_OP = "Adam/CollectiveReduceV2:CollectiveReduceV2"
_GEMM_NAME, _NCCL = "ampere_sgemm_128x64_nn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
_GEMM = "regs:128 static_shared:16384 dynamic_shared:0 grid:64,2,1 block:256,1,1 occ_pct:25"
_RELU = "regs:32 static_shared:0 dynamic_shared:0 grid:128,1,1 block:1024,1,1 occ_pct:100"
_ALL_REDUCE = "regs:96 static_shared:0 dynamic_shared:81920 grid:24,1,1 block:512,1,1 occ_pct:25"
_FROM_PINNED = "kind_src:pinned kind_dst:device size:800000 dest:0 async:1"
_FROM_PAGEABLE = "kind_src:pageable kind_dst:device size:800000 dest:1 async:0"
_TO_PAGEABLE = "kind_src:device kind_dst:pageable size:40000 dest:0 async:0"


def synthetic_gpu() -> bytes:
    """Return the profile as a serialized XSpace."""
    return space(_host(), *_devices(), hostname="synthetic")


def _starts() -> Iterator[tuple[int, int, int]]:
    """Iterate over the steps: number, start, and by how much its second half is late."""
    for n in range(STEPS):
        yield n, 1000 * n + (DELAY if n > STRAGGLING_STEP else 0), DELAY if n == STRAGGLING_STEP else 0


def _host() -> Plane:
    main: list[Event] = []
    tf_data: list[Event] = []
    metrics: list[Event] = []
    for n, start, late in _starts():
        main += [
            event("train", start, 1000 + late, step_num=n),
            event("train_step", start, 900 + late, tf_function_call=ref("notTraced-nonXla"), tracing_count=1),
            event("EagerKernelExecute", start, 900 + late),
            event("cuStreamSynchronize", start + 700, 160 + late),
            event("$callbacks.py:10 on_batch_end", start + 900 + late, 100),
        ]
        tf_data += [
            event("IteratorGetNextOp::DoCompute", start, 200, id=4),
            iterator_call("Root", start, 200, 1),
            iterator_call("Root::BatchV2", start, 200, 2, 1, batch_size=32),
            iterator_call("Root::BatchV2::Map", start, 160, 3, 2),
        ]
        metrics.append(event("metrics/Cast:Cast", start + 860 + late, 30))
    threads = [line("python3", *main), line("tf_data_iterator_get_next/1", *tf_data), line("tf_Compute/2", *metrics)]
    return plane("/host:CPU", *threads, _launching_thread(0), _launching_thread(1))


def _launching_thread(device: int) -> Line:
    """Return the thread that allocates memory on a device and launches all its work."""
    events: list[Event] = []
    for n, start, late in _starts():
        ids = _correlation_ids(device, n)
        events += [
            _allocated(start + 205, device, 800_000, 1_800_000, "IteratorGetNext"),
            event("MemcpyH2D", start + 210, 4, correlation_id=next(ids)),
            _allocated(start + 214, device, 2_000_000, 3_800_000, "model/dense/MatMul"),
            *(event("cuLaunchKernel", start + 214 + 4 * at, 4, correlation_id=next(ids)) for at in range(3)),
        ]
        end = start + 880 + late
        if (device, n) == (1, STRAGGLING_STEP):
            events.append(_allocated(start + 230, device, 500_000, 4_300_000, "model/dense/MatMul"))
            events.append(_freed(end, device, 500_000, 3_800_000))
        if device == 0:
            events.append(event("MemcpyD2H", start + 700, 5, correlation_id=next(ids)))
        events += [_freed(end, device, 2_000_000, 1_800_000), _freed(end, device, 800_000, 1_000_000)]
    return line(f"tf_gpu_private_{device}/{device + 3}", *events)


def _allocated(at: float, device: int, size: int, in_use: int, op: str) -> Event:
    return event("MemoryAllocation", at, 0, **_memory(device, size, in_use), tf_op=ref(op))


def _freed(at: float, device: int, size: int, in_use: int) -> Event:
    return event("MemoryDeallocation", at, 0, **_memory(device, size, in_use))


def _memory(device: int, size: int, in_use: int) -> dict[str, Any]:
    """Return the stats of a note of an allocator; `in_use` is what is in use after it."""
    return {
        "allocator_name": ref(f"GPU_{device}_bfc"),
        "bytes_reserved": 0,
        "bytes_allocated": in_use,
        "bytes_available": CAPACITY_BYTES - in_use,
        "peak_bytes_in_use": in_use,
        "requested_bytes": size,
        "allocation_bytes": size,
        "addr": size,
        "region_type": ref("output"),
        "data_type": 1,
        "shape": ref(f"[{size // 4}]"),
    }


def _correlation_ids(device: int, step: int) -> Iterator[int]:
    """Iterate over the ids of the calls of a device in a step; the device's work has the same, in the same order."""
    yield from range(1000 * device + 10 * step + 1, 1000 * device + 10 * step + 10)


def _devices() -> Iterator[Plane]:
    for device in (0, 1):
        compute: list[Event] = []
        copies: list[Event] = []
        results: list[Event] = []
        for n, start, late in _starts():
            ids = _correlation_ids(device, n)
            details = (_FROM_PINNED, _FROM_PAGEABLE)[device]
            gemm = start + (300, 320)[device]
            relu = gemm + 300 + (late if device == 1 else 0)
            reduce, end = relu + 100, start + 800 + late
            copies.append(_work("MemcpyH2D", (start + 220, gemm), next(ids), memcpy_details=ref(details)))
            compute += [
                _work(_GEMM_NAME, (gemm, relu), next(ids), tf_op=ref(_MATMUL), kernel_details=ref(_GEMM)),
                _work("relu_kernel", (relu, reduce), next(ids), tf_op=ref(_RELU_OP), kernel_details=ref(_RELU)),
                _work(_NCCL, (reduce, end), next(ids), tf_op=ref(_REDUCE_OP), kernel_details=ref(_ALL_REDUCE)),
            ]
            if device == 0:
                results.append(_work("MemcpyD2H", (end + 10, end + 50), next(ids), memcpy_details=ref(_TO_PAGEABLE)))
        streams = [line("Stream #13(Compute)", *compute), line("Stream #14(MemcpyH2D)", *copies)]
        if results:
            streams.append(line("Stream #15(MemcpyD2H)", *results))
        yield plane(f"/device:GPU:{device}", *streams, stats=_A100)


_A100 = {
    "clock_rate": 1_410_000,
    "core_count": 108,
    "memory_bandwidth": 1_555_000_000_000,
    "memory_size": 42_505_273_344,
    "compute_cap_major": 8,
    "compute_cap_minor": 0,
}


def _work(name: str, times: tuple[int, int], correlation_id: int, **stats: Any) -> Event:
    """Return a kernel or a copy with its start and end."""
    return event(name, times[0], times[1] - times[0], correlation_id=correlation_id, **stats)
