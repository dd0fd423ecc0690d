"""The columns of the section about kernels: key, title, unit, meaning."""

from __future__ import annotations

from tfperf.report.model import Column

KERNELS = (
    Column("rank", "#", int, "count", "place by total time"),
    Column("percent", "Share", float, "%", "total / time of all kernels, summed over streams and devices"),
    Column("kernel", "Kernel", str, "", "short name: without namespaces, parameters and most template arguments"),
    Column("kernel_name", "Full name", str, "", "name as recorded", level="data"),
    Column("op_name", "Op", str, "", "op that launched it"),
    Column("op_type", "Op type", str, "", "type of the op", level="data"),
    Column("hlo_op", "HLO op", str, "", "the XLA op, if XLA compiled it", level="data"),
    Column("hlo_module", "Module", str, "", "the XLA program", level="data"),
    Column("grid_dim", "Grid", str, "", "blocks in x,y,z", level="data"),
    Column("block_dim", "Block", str, "", "threads of a block in x,y,z", level="data"),
    Column("registers_per_thread", "Registers", int, "count", "registers of a thread", level="data"),
    Column("static_shared_bytes", "Static shared", int, "bytes", "static shared memory of a block", level="data"),
    Column("dynamic_shared_bytes", "Dynamic shared", int, "bytes", "dynamic shared memory of a block", level="data"),
    Column("shared_bytes", "Shared", int, "bytes", "both together", level="data"),
    Column("occupancy_percent", "Occupancy", float, "%", "theoretical: resident threads / most of them", level="data"),
    Column("is_op_tensor_core_eligible", "Eligible", bool, "", "whether tensor cores could do the op", level="data"),
    Column(
        "is_kernel_using_tensor_core",
        "TC",
        bool,
        "",
        "whether the kernel runs on tensor cores; - where names do not tell",
    ),
    Column("occurrences", "Count", int, "count", "how often it ran"),
    Column("total_us", "Total", float, "us", "time of all runs", level="data"),
    Column("mean_us", "Mean", float, "us", "total / count"),
    Column("min_us", "Min", float, "us", "shortest run", level="data"),
    Column("max_us", "Max", float, "us", "longest run", level="data"),
)

KERNELS_BY_NAME = (
    Column("kernel", "Kernel", str, "", "short name"),
    Column("occurrences", "Count", int, "count", "how often kernels of this name ran"),
    Column("total_ms", "Total", float, "ms", "time of all runs"),
    Column("percent", "Share", float, "%", "total / time of all kernels"),
)

COPIES = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device", "Device", str, "", "device that recorded the copies"),
    Column("kind", "Kind", str, "", "H2D, D2H, D2D (inside a device), P2P (between devices), H2H, Memset, or Unknown"),
    Column("count", "Count", int, "count", "copies"),
    Column("total_bytes", "Bytes", int, "bytes", "size of all; not known if the size of any is not"),
    Column("total_ms", "Total", float, "ms", "time of all, summed over streams"),
    Column("gb_per_second", "GB/s", float, "", "10^9 bytes per second of copying, of copies whose size is known"),
    Column("mean_bytes", "Mean bytes", float, "bytes", "mean size of copies whose size is known", level="data"),
    Column("memory", "Memory", str, "", "memory of the host that took part, if the trace tells: pageable or pinned"),
)

LAUNCHES = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device", "Device", str, "", "device that ran the kernels"),
    Column("kernels", "Kernels", int, "count", "kernels in the capture", level="data"),
    Column("launches", "Launches", int, "count", "calls on the host that launched them", level="data"),
    Column("unmatched_kernels", "Unmatched", int, "count", "kernels whose call the trace does not tell", level="data"),
    Column("kernels_per_step", "Kernels per step", float, "count", "median over the averaged steps"),
    Column("launches_per_step", "Launches per step", float, "count", "median over the averaged steps", level="data"),
    Column("step_calls_ms", "Calls", float, "ms", "time of the launching calls of a step, summed over threads; median"),
    Column("call_median_us", "Call", float, "us", "median length of a launching call", level="data"),
    Column("call_p95_us", "Call p95", float, "us", "95 % of the calls are shorter", level="data"),
    Column("call_max_us", "Call max", float, "us", "the longest call", level="data"),
    Column("delay_median_us", "Delay", float, "us", "median time from the end of the call to the begin of its first kernel"),
    Column("delay_p95_us", "p95", float, "us", "95 % of the delays are shorter"),
    Column("delay_max_us", "Delay max", float, "us", "the longest delay", level="data"),
    Column("queued_median_us", "Queued", float, "us", "median of the part of the delay with earlier work on the stream",
           level="data"),
    Column("queued_p95_us", "Queued p95", float, "us", "95 % queue shorter", level="data"),
    Column("queued_max_us", "Queued max", float, "us", "the longest time in the queue", level="data"),
    Column("unqueued_percent", "No queue", float, "%", "calls whose kernel found its stream idle"),
    Column("early", "Early", int, "count", "calls that had not returned when their kernel began", level="data"),
    Column("before", "Before call", int, "count", "kernels that begin before their call: clocks disagree", level="data"),
    Column("tiny_kernel_percent", "Tiny", float, "%", "kernels shorter than 10 us / all kernels"),
    Column("tiny_time_percent", "Tiny of time", float, "%", "time of these kernels / time of all kernels"),
    Column("shorter_than_call_percent", "Under call", float, "%", "kernels shorter than the call that launched them alone",
           level="data"),
)  # fmt: skip

DEVICE_TIME = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device", "Device", str, "", "the device"),
    Column("compute_ms", "Compute", float, "ms", "wall-clock time in which at least one kernel runs"),
    Column(
        "copies_alone_ms", "Copies", float, "ms", "wall-clock time of copies and fills without a kernel beside them"
    ),
    Column("idle_ms", "Idle", float, "ms", "the rest of the capture"),
    Column("wall_ms", "Wall", float, "ms", "length of the capture: compute + copies + idle"),
    Column("kernel_sum_ms", "Kernels sum", float, "ms", "sum over kernels; more than compute where streams overlap"),
    Column("copies_ms", "All copies", float, "ms", "wall-clock time of copies and fills, also beside kernels"),
)
