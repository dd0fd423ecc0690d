"""The columns of the section about kernels: key, title, unit, meaning."""

from __future__ import annotations

from tfperf.report.model import Column

KERNELS = (
    Column("rank", "#", "count", "place by total time"),
    Column("percent", "Share", "%", "total / time of all kernels, summed over streams and devices"),
    Column("kernel", "Kernel", "", "short name: without namespaces, parameters and most template arguments"),
    Column("kernel_name", "Full name", "", "name as recorded", compact=False),
    Column("op_name", "Op", "", "op that launched it"),
    Column("op_type", "Op type", "", "type of the op", compact=False),
    Column("hlo_op", "HLO op", "", "the XLA op, if XLA compiled it", compact=False),
    Column("hlo_module", "Module", "", "the XLA program", compact=False),
    Column("grid_dim", "Grid", "", "blocks in x,y,z", compact=False),
    Column("block_dim", "Block", "", "threads of a block in x,y,z", compact=False),
    Column("registers_per_thread", "Registers", "count", "registers of a thread", compact=False),
    Column("static_shared_bytes", "Static shared", "bytes", "static shared memory of a block", compact=False),
    Column("dynamic_shared_bytes", "Dynamic shared", "bytes", "dynamic shared memory of a block", compact=False),
    Column("shared_bytes", "Shared", "bytes", "both together", compact=False),
    Column("occupancy_percent", "Occupancy", "%", "theoretical: resident threads / most of them", compact=False),
    Column("is_op_tensor_core_eligible", "Eligible", "", "whether tensor cores could do the op", compact=False),
    Column(
        "is_kernel_using_tensor_core", "TC", "", "whether the kernel runs on tensor cores; - where names do not tell"
    ),
    Column("occurrences", "Count", "count", "how often it ran"),
    Column("total_us", "Total", "us", "time of all runs", compact=False),
    Column("mean_us", "Mean", "us", "total / count"),
    Column("min_us", "Min", "us", "shortest run", compact=False),
    Column("max_us", "Max", "us", "longest run", compact=False),
)

KERNELS_BY_NAME = (
    Column("kernel", "Kernel", "", "short name"),
    Column("occurrences", "Count", "count", "how often kernels of this name ran"),
    Column("total_ms", "Total", "ms", "time of all runs"),
    Column("percent", "Share", "%", "total / time of all kernels"),
)

COPIES = (
    Column("host", "Host", "", "name of the trace file"),
    Column("device", "Device", "", "device that recorded the copies"),
    Column("kind", "Kind", "", "H2D, D2H, D2D (inside a device), P2P (between devices), H2H, Memset, or Unknown"),
    Column("count", "Count", "count", "copies"),
    Column("total_bytes", "Bytes", "bytes", "size of all; not known if the size of any is not"),
    Column("total_ms", "Total", "ms", "time of all, summed over streams"),
    Column("gb_per_second", "GB/s", "", "10^9 bytes per second of copying, of copies whose size is known"),
    Column("mean_bytes", "Mean bytes", "bytes", "mean size of copies whose size is known", compact=False),
    Column("memory", "Memory", "", "memory of the host that took part, if the trace tells: pageable or pinned"),
)

LAUNCHES = (
    Column("host", "Host", "", "name of the trace file"),
    Column("device", "Device", "", "device that ran the kernels"),
    Column("kernels", "Kernels", "count", "kernels in the capture", compact=False),
    Column("launches", "Launches", "count", "calls on the host that launched them", compact=False),
    Column("unmatched_kernels", "Unmatched", "count", "kernels whose call the trace does not tell", compact=False),
    Column("kernels_per_step", "Kernels per step", "count", "median over the averaged steps"),
    Column("launches_per_step", "Launches per step", "count", "median over the averaged steps", compact=False),
    Column("step_calls_ms", "Calls", "ms", "time of the launching calls of a step, summed over threads; median"),
    Column("call_median_us", "Call", "us", "median length of a launching call", compact=False),
    Column("call_p95_us", "Call p95", "us", "95 % of the calls are shorter", compact=False),
    Column("call_max_us", "Call max", "us", "the longest call", compact=False),
    Column("delay_median_us", "Delay", "us", "median time from the end of the call to the begin of its first kernel"),
    Column("delay_p95_us", "p95", "us", "95 % of the delays are shorter"),
    Column("delay_max_us", "Delay max", "us", "the longest delay", compact=False),
    Column("queued_median_us", "Queued", "us", "median of the part of the delay with earlier work on the stream",
           compact=False),
    Column("queued_p95_us", "Queued p95", "us", "95 % queue shorter", compact=False),
    Column("queued_max_us", "Queued max", "us", "the longest time in the queue", compact=False),
    Column("unqueued_percent", "No queue", "%", "calls whose kernel found its stream idle"),
    Column("early", "Early", "count", "calls that had not returned when their kernel began", compact=False),
    Column("before", "Before call", "count", "kernels that begin before their call: clocks disagree", compact=False),
    Column("tiny_kernel_percent", "Tiny", "%", "kernels shorter than 10 us / all kernels"),
    Column("tiny_time_percent", "Tiny of time", "%", "time of these kernels / time of all kernels"),
    Column("shorter_than_call_percent", "Under call", "%", "kernels shorter than the call that launched them alone",
           compact=False),
)  # fmt: skip

DEVICE_TIME = (
    Column("host", "Host", "", "name of the trace file"),
    Column("device", "Device", "", "the device"),
    Column("compute_ms", "Compute", "ms", "wall-clock time in which at least one kernel runs"),
    Column("copies_alone_ms", "Copies", "ms", "wall-clock time of copies and fills without a kernel beside them"),
    Column("idle_ms", "Idle", "ms", "the rest of the capture"),
    Column("wall_ms", "Wall", "ms", "length of the capture: compute + copies + idle"),
    Column("kernel_sum_ms", "Kernels sum", "ms", "sum over kernels; more than compute where streams overlap"),
    Column("copies_ms", "All copies", "ms", "wall-clock time of copies and fills, also beside kernels"),
)
