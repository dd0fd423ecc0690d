"""Every column that reports show, declared once: key, title, unit, meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tfperf.reports.model import Column

Unit = Literal["", "ms", "us", "%", "count"]

CATEGORY_TITLES = {
    "compilation": "Compilation",
    "output": "Output",
    "input": "Input",
    "kernel_launch": "Kernel launch",
    "host_compute": "Host compute",
    "device_collectives": "Device collectives",
    "device_to_device": "Device to device",
    "device_compute": "Device compute",
    "all_others": "All others",
}
CATEGORY_MEANINGS = {
    "compilation": "tracing or compiling functions",
    "output": "copies from device to host",
    "input": "waiting for tf.data, copying in",
    "kernel_launch": "preparing and launching kernels",
    "host_compute": "ops or runtime on host threads",
    "device_collectives": "all-reduce and the like",
    "device_to_device": "copies between or inside devices",
    "device_compute": "kernels on the device",
    "all_others": "none of these: Python, I/O, idle",
}
DEVICE_CATEGORIES = ("output", "kernel_launch", "device_collectives", "device_to_device", "device_compute")
_IN_STEP_TABLE = ("input", "host_compute", "device_compute", "all_others")

STEPS = (
    Column("step", "Step", "", "step number: the program's own where it counted, else from 0"),
    Column("step_name", "Name", "", "what the step is called", compact=False),
    Column("kind", "Kind", "", "train, eval, or step where nothing tells"),
    Column("flag", "Flag", "", "why the step is left out of averages"),
    Column("averaged", "Averaged", "", "whether the step counts in averages", compact=False),
    Column("batches", "Batches", "count", "tf.data elements in the step", compact=False),
    Column("begin_ms", "Begin", "ms", "begin on the clock of the trace", compact=False),
    Column("step_time_ms", "Step time", "ms", "from the begin of the step to the begin of the next"),
    *(Column(f"{key}_ms", title, "ms", CATEGORY_MEANINGS[key], compact=key in _IN_STEP_TABLE)
      for key, title in CATEGORY_TITLES.items()),
    Column("input_wait_ms", "Input wait", "ms", "part of input: waiting for tf.data", compact=False),
    Column("host_to_device_ms", "Host to device", "ms", "part of input: batches copied to the device", compact=False),
)  # fmt: skip


def steps(*, has_device: bool) -> tuple[Column, ...]:
    """Return the columns of the step table; without a device, people see none of the device's."""
    hidden = () if has_device else tuple(f"{key}_ms" for key in DEVICE_CATEGORIES)
    return tuple(replace(column, compact=column.compact and column.key not in hidden) for column in STEPS)


CATEGORIES = (
    Column("category", "Category", "", "what the time goes to"),
    Column("average_ms", "Average", "ms", "average over the averaged steps"),
    Column("standard_deviation_ms", "Std dev", "ms", "sample standard deviation over steps"),
    Column("percent", "Share", "%", "sum over steps / sum of step times"),
    Column("meaning", "Meaning", "", "what counts in the category"),
)

KINDS = (
    Column("kind", "Kind", "", "kind of step"),
    Column("steps", "Steps", "count", "steps of this kind"),
    Column("averaged_steps", "Averaged", "count", "steps that count in averages"),
    Column("average_ms", "Average", "ms", "average step time"),
    Column("standard_deviation_ms", "Std dev", "ms", "sample standard deviation"),
    Column("minimum_ms", "Min", "ms", "shortest step"),
    Column("maximum_ms", "Max", "ms", "longest step"),
    Column("input_percent", "Input", "%", "share of step time spent on input"),
    Column("input_class", "Input-bound", "", "high, moderate, possible, none or unknown"),
)

HOSTS = (Column("host", "Host", "", "name of the trace file"), *KINDS[1:])

OPS = (
    Column("rank", "#", "count", "place by self time"),
    Column("self_percent", "Self", "%", "self time / self time of all ops of this side"),
    Column("cumulative_self_percent", "Cum.", "%", "running sum of self %"),
    Column("op_type", "Type", "", "op type; Dataset for a tf.data stage"),
    Column("op_name", "Name", "", "name of the op, with its scope"),
    Column("occurrences", "Count", "count", "how often it ran", compact=False),
    Column("total_ms", "Total", "ms", "time with the ops inside", compact=False),
    Column("self_ms", "Self", "ms", "time without the ops inside", compact=False),
)

FUNCTIONS = (
    Column("function", "Function", "", "name of the tf.function"),
    Column("calls", "Calls", "count", "calls in the capture"),
    Column("traced_calls", "Traced", "count", "calls that traced Python again"),
    Column("not_traced_calls", "Not traced", "count", "calls of a function traced before"),
    Column("eager_calls", "Eager", "count", "calls run eagerly", compact=False),
    Column("concrete_calls", "Concrete", "count", "calls of a concrete function", compact=False),
    Column("tracing_count", "Tracings", "count", "tracings since the program began", compact=False),
    Column("compiler", "Compiler", "", "XLA, or empty", compact=False),
    Column("self_ms", "Self", "ms", "time without tf.functions called inside"),
    Column("expensive_call_percent", "Expensive", "%", "self time of calls that trace or run eagerly"),
)

ENVIRONMENT = (
    Column("host", "Host", "", "name of the trace file"),
    Column("device_type", "Device", "", "CPU, GPU or TPU"),
    Column("device_model", "Model", "", "device model"),
    Column("device_count", "Devices", "count", "devices that recorded events"),
    Column("idle_devices", "Idle", "count", "devices listed without an event"),
    Column("device_cores", "Cores", "count", "multiprocessors of one device"),
    Column("device_memory_bytes", "Memory", "count", "memory of one device, in bytes", compact=False),
    Column("event_count", "Events", "count", "events in the file"),
    Column("size_bytes", "Size", "count", "size of the file, in bytes", compact=False),
    Column("duration_ms", "Capture", "ms", "from the first to the last event"),
    Column("path", "File", "", "the trace file", compact=False),
)

PAUSES = (
    Column("after_step", "After step", "", "the step before the pause"),
    Column("begin_ms", "Begin", "ms", "begin on the clock of the trace"),
    Column("duration_ms", "Length", "ms", "time outside steps"),
)
