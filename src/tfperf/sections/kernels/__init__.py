"""Kernels: time of GPU kernels, copies, launches, and the time of each device."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, fields
from tfperf.base.units import PS_PER_MS, PS_PER_US, percent
from tfperf.report.model import Column, Data, Ranked
from tfperf.sections.xla import PROGRAM_ID, program_ids
from tfperf.trace.known_stats import DEVICE_OPS

if TYPE_CHECKING:
    from tfperf.sections.kernels.analysis import Part
    from tfperf.sections.kernels.sequences import KernelSequence

_HOST = Column("host", "Host", str, "", "name of the trace file")
_SHORT_NAME = "short name: without namespaces, parameters and most template arguments"
_THREAD_MODE = "gpu_private, gpu_shared or global: whose threads launch (TF_GPU_THREAD_MODE)"

_MEDIAN = "median duration; unknown if hosts with different medians share the row"
_STDEV = "standard deviation of the durations (of a sample: n - 1); unknown for one run"

_KERNEL_COLUMNS = (
    Column("rank", "#", int, "count", "place by total time"),
    Column("percent", "Share", float, "%", "total / time of all kernels, summed over streams and devices"),
    Column("kernel", "Kernel", str, "", _SHORT_NAME, whole_key="kernel_name"),
    Column("kernel_name", "Full name", str, "", "name as recorded", level="data"),
    Column("op_name", "Op", str, "", "op that launched it"),
    Column("op_type", "Op type", str, "", "type of the op", level="data"),
    Column("hlo_op", "HLO op", str, "", "the XLA op, if XLA compiled it", level="data"),
    Column("hlo_module", "Module", str, "", "the XLA program", level="data"),
    Column("grid_dim", "Grid", str, "", "blocks in x,y,z", level="full"),
    Column("block_dim", "Block", str, "", "threads per block in x,y,z", level="full"),
    Column("registers_per_thread", "Registers", int, "count", "registers per thread", level="full"),
    Column("static_shared_bytes", "Static shared", int, "bytes", "static shared memory per block", level="data"),
    Column("dynamic_shared_bytes", "Dynamic shared", int, "bytes", "dynamic shared memory per block", level="data"),
    Column("shared_bytes", "Shared", int, "bytes", "static and dynamic shared memory per block", level="data"),
    Column("occupancy_percent", "Occupancy", float, "%", "theoretical: resident threads / their maximum", "full"),
    Column("is_op_tensor_core_eligible", "Eligible", bool, "", "whether the op could use tensor cores", level="data"),
    Column("is_kernel_using_tensor_core", "TC", bool, "", "whether it runs on tensor cores, if its name shows it"),
    Column("occurrences", "Count", int, "count", "number of runs"),
    Column("total_us", "Total", float, "us", "duration of all runs", level="data"),
    Column("mean_us", "Mean", float, "us", "total / count"),
    Column("min_us", "Min", float, "us", "shortest run", level="data"),
    Column("max_us", "Max", float, "us", "longest run", level="data"),
    Column("median_us", "Median", float, "us", _MEDIAN, level="full"),
    Column("stdev_us", "Stdev", float, "us", _STDEV, level="full"),
)

_BY_NAME_COLUMNS = (
    Column("kernel", "Kernel", str, "", "short name"),
    Column("occurrences", "Count", int, "count", "number of runs of kernels with this name"),
    Column("total_ms", "Total", float, "ms", "duration of all runs"),
    Column("percent", "Share", float, "%", "total / time of all kernels"),
    Column("mean_us", "Mean", float, "us", "total / count", level="data"),
    Column("median_us", "Median", float, "us", _MEDIAN, level="full"),
    Column("stdev_us", "Stdev", float, "us", _STDEV, level="full"),
)

_FAMILY_COLUMNS = (
    Column("family", "Family", str, "", "kind of work, by name, op and XLA program"),
    Column("occurrences", "Count", int, "count", "number of runs of kernels of this family"),
    Column("total_ms", "Total", float, "ms", "duration of all runs"),
    Column("percent", "Share", float, "%", "total / time of all kernels"),
    Column("kernel", "Largest", str, "", "the kernel with the most time, by short name"),
)

_COPY_COLUMNS = (
    _HOST,
    Column("device", "Device", str, "", "device that recorded the copies"),
    Column("kind", "Kind", str, "", "H2D, D2H, D2D (within a device), P2P (between devices), H2H, Memset, or Unknown"),
    Column("count", "Count", int, "count", "copies"),
    Column("total_bytes", "Bytes", int, "bytes", "size of all copies; unknown if the size of any copy is unknown"),
    Column("total_ms", "Total", float, "ms", "duration of all copies, summed over streams"),
    Column("gb_per_second", "GB/s", float, "", "10^9 bytes per second of copying, of copies of known size"),
    Column("mean_bytes", "Mean bytes", float, "bytes", "mean size of copies of known size", level="data"),
    Column("memory", "Memory", str, "", "host memory of the copy, if recorded: pageable or pinned"),
)

_per_step = partial(Column, over_steps=True)

_LAUNCH_COLUMNS = (
    _HOST,
    Column("device", "Device", str, "", "device that ran the kernels"),
    Column("kernels", "Kernels", int, "count", "kernels in the capture", level="data"),
    Column("launches", "Launches", int, "count", "host calls that launched them", level="data"),
    Column("unmatched_kernels", "Unmatched", int, "count", "kernels without a known call", level="data"),
    _per_step("kernels_per_step", "Kernels per step", float, "count", "median over the averaged steps"),
    _per_step("launches_per_step", "Launches per step", float, "count", "median over the averaged steps", level="data"),
    _per_step("step_calls_ms", "Calls", float, "ms", "time of launching calls per step, summed over threads; median"),
    Column("thread_mode", "Threads", str, "", _THREAD_MODE, "data"),
    Column("kernel_median_us", "Kernel", float, "us", "median duration of a kernel", level="data"),
    Column("kernel_p95_us", "Kernel p95", float, "us", "95% of the kernels are shorter", level="data"),
    Column("kernel_max_us", "Kernel max", float, "us", "the longest kernel", level="data"),
    Column("call_median_us", "Call", float, "us", "median duration of a launching call", level="data"),
    Column("call_p95_us", "Call p95", float, "us", "95% of the calls are shorter", level="data"),
    Column("call_max_us", "Call max", float, "us", "the longest call", level="data"),
    Column("delay_median_us", "Delay", float, "us", "median time from the end of a call to its first kernel"),
    Column("delay_p95_us", "p95", float, "us", "95% of the delays are shorter"),
    Column("delay_max_us", "Delay max", float, "us", "the longest delay", level="data"),
    Column("queued_median_us", "Queued", float, "us", "median delay while the stream has earlier work", "data"),
    Column("queued_p95_us", "Queued p95", float, "us", "95% of these delays are shorter", level="data"),
    Column("queued_max_us", "Queued max", float, "us", "the longest time in the queue", level="data"),
    Column("unqueued_percent", "No queue", float, "%", "calls whose first kernel starts on an idle stream"),
    Column("early", "Early", int, "count", "calls that return after their first kernel starts", level="data"),
    Column("before", "Before call", int, "count", "calls that begin after their kernel: clocks differ", level="data"),
    Column("tiny_kernel_percent", "Tiny", float, "%", "kernels shorter than 10 us / all kernels"),
    Column("tiny_time_percent", "Tiny of time", float, "%", "time of these kernels / time of all kernels"),
    Column(
        "shorter_than_call_percent",
        "Under call",
        float,
        "%",
        "lone kernels that are shorter than their call",
        level="data",
    ),
)

_of_steps = partial(Column, unit="ms", level="data", over_steps=True)
_ELIGIBLE = "32-bit kernels of matrix products and convolutions, not on tensor cores"
_PRECISION_COLUMNS = (
    _HOST,
    Column("device", "Device", str, "", "device that ran the kernels"),
    Column("steps", "Steps", int, "count", "averaged steps"),
    _of_steps("step_ms", "Step", float, meaning="average step time"),
    _of_steps("compute_16_ms", "16-bit", float, meaning="time of 16-bit kernels in an average step"),
    _of_steps("compute_32_ms", "32-bit", float, meaning="time of 32-bit kernels, not overlapped by 16-bit kernels"),
    _of_steps("compute_unknown_ms", "Unknown", float, meaning="time of kernels of unknown precision, not overlapped"),
    _of_steps("eligible_ms", "Eligible", float, meaning=f"time in an average step of {_ELIGIBLE}"),
    _of_steps("eligible_percent", "Eligible", float, unit="%", meaning="share of the step time that is eligible"),
    _of_steps("most_eligible_percent", "At most", float, unit="%", meaning="the same, plus possibly eligible kernels"),
)

_DEVICE_TIME_COLUMNS = (
    _HOST,
    Column("device", "Device", str, "", "the device"),
    Column("compute_ms", "Compute", float, "ms", "wall time in which a kernel that is not a collective runs"),
    Column("collectives_alone_ms", "Collectives", float, "ms", "wall time of collectives, not overlapped by compute"),
    Column("copies_alone_ms", "Copies", float, "ms", "wall time of copies and memsets, not overlapped by kernels"),
    Column("idle_ms", "Idle", float, "ms", "the rest of the capture"),
    Column("wall_ms", "Wall", float, "ms", "duration of the capture: compute + collectives + copies + idle"),
    Column("kernel_sum_ms", "Kernels sum", float, "ms", "sum over kernels, more than wall time if kernels overlap"),
    Column("collectives_ms", "All collectives", float, "ms", "wall time of collectives, including overlap"),
    Column("copies_ms", "All copies", float, "ms", "wall time of copies and memsets, including overlap"),
)

_API_COLUMNS = (
    _HOST,
    Column("call", "Call", str, "", "API function; (kernel launch): calls that the profile names after their kernel"),
    Column(
        "kind",
        "Kind",
        str,
        "",
        "launch, graph launch, copy, fill, synchronize, allocate, free, load code, build graph, host function or other",
        level="data",
    ),
    Column("thread", "Thread", str, "", "name of the calling threads, without their numbers"),
    Column("threads", "Threads", int, "count", "number of these threads", level="data"),
    Column("count", "Count", int, "count", "calls in the capture"),
    Column("total_ms", "Total", float, "ms", "time of all calls, including calls inside"),
    Column("median_us", "Median", float, "us", "median duration of a call"),
    Column("max_us", "Max", float, "us", "longest call"),
    _per_step("per_step", "Per step", float, "count", "calls that begin in averaged steps / averaged steps"),
    _per_step("step_ms", "Step", float, "ms", "their time / averaged steps"),
    Column("outside", "Outside", int, "count", "calls that begin outside of all steps; unknown without steps"),
    Column("caller", "Inside", str, "", "innermost event around calls that wait, allocate or free", level="data"),
)


_SEQUENCE_COLUMNS = (
    Column("kernels", "Kernels", str, "", "short names, in order"),
    Column("length", "Length", int, "count", "number of kernels", level="data"),
    Column("op_names", "Ops", str, "", "framework ops of its first run", level="data"),
    Column("per_step", "Per step", float, "count", "runs per searched step and device"),
    Column("count", "Count", int, "count", "runs in the searched steps", level="data"),
    Column("kernels_ms", "In kernels", float, "ms", "time of its kernels per searched step and device"),
    Column("gaps_ms", "Between", float, "ms", "time between its kernels, likewise"),
    Column("percent", "Of step", float, "%", "both / time of the searched steps"),
)

_WAY_TEXTS = {"to_device": "to device", "to_host": "to host", "on_device": "on device", "exchange": "exchange"}
_ASYNC_COLUMNS = (
    Column("hlo_op", "Copy", str, "", "HLO op that awaits it"),
    Column("module", "Program", str, "", "name of the program", level="data"),
    PROGRAM_ID,
    Column("array_name", "Array", str, "", "copied parameter, or the HLO op that produces the copied array"),
    Column("direction", "Direction", str, "", "to device (from host memory), to host, on device, or exchange"),
    Column("shape", "Shape", str, "", "type and dimensions of the copied array", level="data"),
    Column("source", "Source", str, "", "line that uses the copied array, or produces it (to host)", level="data"),
    Column("copy_bytes", "Bytes", int, "bytes", "size of one copy"),
    Column("count", "Count", int, "count", "number of runs, summed over cores", level="data"),
    Column("in_steps", "In steps", int, "count", "runs in averaged steps", level="data", over_steps=True),
    Column("in_flight_ms", "In flight", float, "ms", "mean time from its start until the wait for it ends"),
    Column("waited_ms", "Waited", float, "ms", "mean time in which the core only waits for it"),
    Column("hidden_ms", "Hidden", float, "ms", "mean time in flight that overlaps other work", level="data"),
    Column("exposed_percent", "Exposed", float, "%", "waited / in flight"),
    Column("total_waited_ms", "Total", float, "ms", "time waited, summed over cores", level="data"),
    Column(
        "low_gb_per_second", "GB/s", float, "", "bytes / time in flight, in 10^9 per second: lower bound of the rate"
    ),
    Column("high_gb_per_second", "GB/s at most", float, "", "bytes / time waited: upper bound of the rate"),
)
_REGION_COLUMNS = (
    Column("hlo_op", "Kernel", str, "", "HLO op that runs the kernel"),
    PROGRAM_ID,
    Column("region", "Region", str, "", "name of the region in the kernel"),
    Column("count", "Count", int, "count", "number of entries, over all runs and cores", level="data"),
    Column("runs", "Runs", int, "count", "runs of the kernel, summed over cores", level="data"),
    Column("per_run", "Per run", float, "count", "entries per run"),
    Column("mean_us", "Mean", float, "us", "mean duration"),
    Column("per_run_us", "In a run", float, "us", "its time per run of the kernel, including nested regions"),
    Column("percent", "Share", float, "%", "its time / time of the kernel"),
)


def _kernels(method: str, results: Results) -> Data | None:
    kernels = results["kernels"]
    columns: Data | None = getattr(kernels, method)() if len(kernels) else None
    return columns


def _copies(results: Results) -> Data | None:
    kernels = results["kernels"]
    if not kernels.copies:
        return None
    rates = [copies.gb_per_second for copies in kernels.copies]
    return {
        **fields(_COPY_COLUMNS, kernels.copies),
        "total_ms": [copies.total_ps / PS_PER_MS for copies in kernels.copies],
        "gb_per_second": [None if rate is None else float(f"{rate:.3g}") for rate in rates],
    }


def _launches(results: Results) -> Data | None:
    kernels = results["kernels"]
    if not kernels.launches:
        return None
    devices = kernels.launches
    data = fields(_LAUNCH_COLUMNS, devices)
    data["step_calls_ms"] = [_scaled(device.call_ps_per_step, PS_PER_MS) for device in devices]
    for spread in ("kernel", "call", "delay", "queued"):
        for part in ("median", "p95", "max"):
            values = [getattr(getattr(device, spread), f"{part}_ps") for device in devices]
            data[f"{spread}_{part}_us"] = [_scaled(value, PS_PER_US) for value in values]
    return data


def _device_time(results: Results) -> Data | None:
    kernels = results["kernels"]
    if not kernels.devices:
        return None
    times = ("compute", "collectives_alone", "copies_alone", "idle", "wall", "kernel_sum", "collectives", "copies")
    return {
        **fields(_DEVICE_TIME_COLUMNS, kernels.devices),
        **{f"{key}_ms": [getattr(device, f"{key}_ps") / PS_PER_MS for device in kernels.devices] for key in times},
    }


def _api_calls(results: Results) -> Data | None:
    calls = results["kernels"].api_calls
    if not calls:
        return None
    return {
        **fields(_API_COLUMNS, calls),
        "total_ms": [each.total_ps / PS_PER_MS for each in calls],
        "median_us": [each.median_ps / PS_PER_US for each in calls],
        "max_us": [each.max_ps / PS_PER_US for each in calls],
        "per_step": [_scaled(each.in_steps, each.steps) for each in calls],
        "step_ms": [_scaled(each.in_steps_ps, each.steps * PS_PER_MS) for each in calls],
        "outside": [each.outside if each.steps else None for each in calls],
    }


def _precision(results: Results) -> Data | None:
    kernels = results["kernels"]
    if not kernels.precision:
        return None
    devices = kernels.precision
    parts: tuple[Part, ...] = ("compute_16", "compute_32", "compute_unknown", "eligible")
    totals_ps = {"step": [device.averaged.total_ps for device in devices]} | {
        part: [device.total_ps(part) for device in devices] for part in parts
    }
    per_step = {
        f"{key}_ms": [_scaled(total, device.steps * PS_PER_MS) for total, device in zip(totals, devices, strict=True)]
        for key, totals in totals_ps.items()
    }
    return {**fields(_PRECISION_COLUMNS, devices), **per_step}


def _sequences(results: Results) -> Data | None:
    rows: tuple[KernelSequence, ...] = results["kernels"].sequences
    if not rows:
        return None
    return {
        "kernels": [" > ".join(row.kernels) for row in rows],
        "length": [len(row.kernels) for row in rows],
        "op_names": [" > ".join(row.ops) if any(row.ops) else None for row in rows],
        "per_step": [row.count / row.steps for row in rows],
        "count": [row.count for row in rows],
        "kernels_ms": [row.kernel_ps / row.steps / PS_PER_MS for row in rows],
        "gaps_ms": [row.gap_ps / row.steps / PS_PER_MS for row in rows],
        "percent": [percent(row.kernel_ps + row.gap_ps, row.step_ps) for row in rows],
    }


def _regions(results: Results) -> Data | None:
    regions = results["kernels"].regions.regions
    if not regions:
        return None
    return {
        **fields(_REGION_COLUMNS, regions),
        "hlo_op": [each.kernel for each in regions],
        "program_id": program_ids([each.program_id for each in regions]),
        "per_run": [each.count / each.runs for each in regions],
        "mean_us": [each.total_ps / each.count / PS_PER_US for each in regions],
        "per_run_us": [each.total_ps / each.runs / PS_PER_US for each in regions],
        "percent": [percent(each.total_ps, each.kernel_ps) for each in regions],
    }


def _async_copies(results: Results) -> Data | None:
    copies = results["kernels"].async_copies.copies
    if not copies:
        return None
    in_flight = [each.flight_ps / each.paired / PS_PER_MS if each.paired else None for each in copies]
    hidden_ps = [each.flight_ps - each.paired_waited_ps for each in copies]
    return {
        **fields(_ASYNC_COLUMNS, copies),
        "hlo_op": [each.copy for each in copies],
        "program_id": program_ids([each.program_id for each in copies]),
        "array_name": [each.array for each in copies],
        "copy_bytes": [each.bytes for each in copies],
        "direction": [_WAY_TEXTS[each.way] for each in copies],
        "in_flight_ms": in_flight,
        "waited_ms": [each.waited_ps / each.count / PS_PER_MS for each in copies],
        "hidden_ms": [_scaled(ps, each.paired * PS_PER_MS) for ps, each in zip(hidden_ps, copies, strict=True)],
        "exposed_percent": [percent(each.paired_waited_ps, each.flight_ps) for each in copies],
        "total_waited_ms": [each.waited_ps / PS_PER_MS for each in copies],
        **{
            f"{end}_gb_per_second": [None if rate is None else float(f"{rate:.5g}") for rate in rates]
            for end, rates in (
                ("low", [each.least_gb_per_second for each in copies]),
                ("high", [each.most_gb_per_second for each in copies]),
            )
        },
    }


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None or not unit else value / unit


KERNELS = TableSpec(
    name="kernels",
    title="Kernels by op and launch shape",
    row="GPU kernels by op and launch shape",
    details=(
        "One row per kernel, op and launch shape, the largest total time first. [GPU kernels](kernels.md) "
        "explains the columns of this file and the next five."
    ),
    columns=_KERNEL_COLUMNS,
    data=partial(_kernels, "columns"),
    name_key="kernel_name",
    ranked=Ranked("percent"),
)
KERNELS_BY_NAME = TableSpec(
    name="kernels_by_name",
    title="Kernels by total time",
    row="GPU kernels by name",
    details="The same, summed by short name.",
    columns=_BY_NAME_COLUMNS,
    data=partial(_kernels, "by_name"),
    name_key="kernel",
    ranked=Ranked("percent"),
)
KERNEL_FAMILIES = TableSpec(
    name="kernel_families",
    title="Kernels by family",
    row="GPU kernels by kind of work",
    details=(
        "One row per family: attention, product, convolution, normalization, reduction, elementwise, copy, collective, "
        "sort and the like, other. [Families](kernels.md#families) has the rules."
    ),
    columns=_FAMILY_COLUMNS,
    data=lambda results: results["kernels"].by_family(results["xla"].ops) if len(results["kernels"]) else None,
    name_key="family",
    ranked=Ranked("percent"),
)
KERNEL_SEQUENCES = TableSpec(
    name="kernel_sequences",
    title="Sequences of short kernels",
    row="short kernels that often follow each other on a stream of a GPU",
    details=(
        "Two to five kernels of less than 10 us each that follow each other at least once per step, for 1% of the step "
        "or more ([sequences](kernels.md#sequences-of-short-kernels))."
    ),
    columns=_SEQUENCE_COLUMNS,
    data=_sequences,
    name_key="kernels",
    ranked=Ranked("percent"),
    about_steps=True,
    counts_all_steps=True,
)
COPIES = TableSpec(
    name="copies",
    title="Copies",
    row="copies of each device, by kind",
    details="One row per device and kind of copy.",
    columns=_COPY_COLUMNS,
    data=_copies,
    name_key="kind",
    ranked=Ranked("total_ms", each="devices", apart="kind"),
)
LAUNCHES = TableSpec(
    name="launches",
    title="Kernel launches",
    row="kernel launches of each device",
    details="One row per device, with the launches of its kernels.",
    columns=_LAUNCH_COLUMNS,
    data=_launches,
    name_key="device",
    ranked=Ranked("unqueued_percent", each="devices"),
)
API_CALLS = TableSpec(
    name="api_calls",
    title="CUDA and HIP calls",
    row="calls of the CUDA and HIP APIs on host threads, by function and thread name",
    details=(
        "One row per API function and thread name, the longest total first. The profiler records only some functions "
        "([API calls](kernels.md#api-calls))."
    ),
    columns=_API_COLUMNS,
    data=_api_calls,
    name_key="call",
    ranked=Ranked("total_ms"),
    empty_means_none=True,
)
COMPUTE_PRECISION = TableSpec(
    name="compute_precision",
    title="Precision of compute",
    row="device compute per step by precision, and the part that 16 bit could make faster",
    details="Time of 16-bit and 32-bit kernels of each device in the averaged steps.",
    columns=_PRECISION_COLUMNS,
    data=_precision,
    name_key="device",
    ranked=Ranked("compute_32_ms", each="devices"),
    about_steps=True,
)
DEVICE_TIME = TableSpec(
    name="device_time",
    title="Time of each device",
    row="time of each device in the capture",
    details="One row per device: compute, collectives and copies without it, and idle add up to the wall time.",
    columns=_DEVICE_TIME_COLUMNS,
    data=_device_time,
    name_key="device",
    ranked=Ranked("idle_ms", each="devices"),
)
ASYNC_COPIES = TableSpec(
    name="async_copies",
    title="Asynchronous copies of TPU cores",
    row="asynchronous copies and exchanges of TPU cores, by HLO op",
    details=(
        "One row per HLO op that awaits an asynchronous copy or exchange (`copy-done`), the longest wait first. "
        "Times are means over its runs on all cores. [Copies of TPU cores](kernels.md#copies-of-tpu-cores) "
        "explains the columns."
    ),
    columns=_ASYNC_COLUMNS,
    data=_async_copies,
    name_key="hlo_op",
    ranked=Ranked("total_waited_ms"),
    empty_means_none=True,
)
KERNEL_REGIONS = TableSpec(
    name="kernel_regions",
    title="Regions of TPU kernels",
    row="marked regions in kernels of TPU cores",
    details=(
        "One row per kernel and marked region (Pallas: `ep_wait_in`), the kernel with the most time first. Regions "
        "can be nested, so shares may add up to more than 100%."
    ),
    columns=_REGION_COLUMNS,
    data=_regions,
    name_key="region",
    ranked=Ranked("per_run_us"),
    empty_means_none=True,
)
TABLES = (
    KERNELS,
    KERNELS_BY_NAME,
    KERNEL_FAMILIES,
    KERNEL_SEQUENCES,
    COPIES,
    LAUNCHES,
    API_CALLS,
    COMPUTE_PRECISION,
    DEVICE_TIME,
    ASYNC_COPIES,
    KERNEL_REGIONS,
)


SECTION = SectionSpec(
    name="kernels",
    title="GPU kernels",
    rests_on=("steps", "xla"),
    analyze="tfperf.sections.kernels.analysis:analyze",
    combine="tfperf.sections.kernels.analysis:combine",
    combines_in_tree=True,
    narrow="tfperf.sections.kernels.analysis:narrow",
    shorten="tfperf.sections.kernels.analysis:shorten",
    build="tfperf.sections.kernels.section:build",
    stats=DEVICE_OPS | {"equation", "kernel_details", "memcpy_details", "memset_details"},
    tables=TABLES,
    without_device="No kernels: the profile has no device events.",
)
