"""Every column that reports show, declared once: key, title, unit, meaning."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tfperf.report.model import Column

Unit = Literal["", "ms", "us", "%", "count", "bytes"]

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
    Column("step", "Step", int, "", "step number: the program's own where it counted, else from 0"),
    Column("step_name", "Name", str, "", "what the step is called", level="data"),
    Column("kind", "Kind", str, "", "train, eval, or step where nothing tells"),
    Column("flag", "Flag", str, "", "why the step is left out of averages"),
    Column("averaged", "Averaged", bool, "", "whether the step counts in averages", level="data"),
    Column("batches", "Batches", int, "count", "tf.data elements in the step", level="data"),
    Column("start_ms", "Begin", float, "ms", "begin on the clock of the trace", level="data"),
    Column("step_time_ms", "Step time", float, "ms", "from the begin of the step to the begin of the next"),
    *(Column(f"{key}_ms", title, float, "ms", CATEGORY_MEANINGS[key], compact=key in _IN_STEP_TABLE)
      for key, title in CATEGORY_TITLES.items()),
    Column("input_wait_ms", "Input wait", float, "ms", "part of input: waiting for tf.data", level="data"),
    Column("host_to_device_ms", "Host to device", float, "ms", "part of input: batches copied to the device", level="data"),
)  # fmt: skip


def steps(*, has_device: bool) -> tuple[Column, ...]:
    """Return the columns of the step table; without a device, people see none of the device's."""
    hidden = () if has_device else tuple(f"{key}_ms" for key in DEVICE_CATEGORIES)
    return tuple(replace(column, compact=column.compact and column.key not in hidden) for column in STEPS)


CATEGORIES = (
    Column("category", "Category", str, "", "what the time goes to"),
    Column("average_ms", "Average", float, "ms", "average over the averaged steps"),
    Column("standard_deviation_ms", "Std dev", float, "ms", "sample standard deviation over steps"),
    Column("percent", "Share", float, "%", "sum over steps / sum of step times"),
    Column("meaning", "Meaning", str, "", "what counts in the category"),
)

KINDS = (
    Column("kind", "Kind", str, "", "kind of step"),
    Column("steps", "Steps", int, "count", "steps of this kind"),
    Column("averaged_steps", "Averaged", int, "count", "steps that count in averages"),
    Column("average_ms", "Average", float, "ms", "average step time"),
    Column("standard_deviation_ms", "Std dev", float, "ms", "sample standard deviation"),
    Column("minimum_ms", "Min", float, "ms", "shortest step"),
    Column("maximum_ms", "Max", float, "ms", "longest step"),
    Column("input_percent", "Input", float, "%", "share of step time spent on input"),
    Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
)

HOSTS = (Column("host", "Host", str, "", "name of the trace file"), *KINDS[1:])

FUNCTIONS = (
    Column("function", "Function", str, "", "name of the tf.function"),
    Column("calls", "Calls", int, "count", "calls in the capture"),
    Column("traced_calls", "Traced", int, "count", "calls that traced Python again"),
    Column("not_traced_calls", "Not traced", int, "count", "calls of a function traced before"),
    Column("eager_calls", "Eager", int, "count", "calls run eagerly", level="data"),
    Column("concrete_calls", "Concrete", int, "count", "calls of a concrete function", level="data"),
    Column("tracing_count", "Tracings", int, "count", "tracings since the program began", level="data"),
    Column("compiler", "Compiler", str, "", "XLA, or empty", level="data"),
    Column("self_ms", "Self", float, "ms", "time without tf.functions called inside"),
    Column("expensive_call_percent", "Expensive", float, "%", "self time of calls that trace or run eagerly"),
)

EAGER_OPS = (
    Column("op_type", "Op", str, "", "type of the op"),
    Column("calls", "Calls", int, "count", "times that Python ran it, outside any tf.function"),
    Column("total_ms", "Total", float, "ms", "time of all calls on the host"),
    Column("mean_ms", "Mean", float, "ms", "average time of a call"),
)

ENVIRONMENT = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device_type", "Device", str, "", "CPU, GPU or TPU"),
    Column("device_model", "Model", str, "", "device model"),
    Column("device_count", "Devices", int, "count", "devices that recorded events"),
    Column("idle_devices", "Idle", int, "count", "devices listed without an event"),
    Column("device_cores", "Cores", int, "count", "multiprocessors of one device"),
    Column("device_memory_bytes", "Memory", int, "bytes", "memory of one device", level="data"),
    Column("event_count", "Events", int, "count", "events in the file"),
    Column("size_bytes", "Size", int, "bytes", "size of the file", level="data"),
    Column("duration_ms", "Capture", float, "ms", "from the first to the last event"),
    Column("path", "File", str, "", "the trace file", level="data"),
)

PAUSES = (
    Column("after_step", "After step", str, "", "the step before the pause"),
    Column("start_ms", "Begin", float, "ms", "begin on the clock of the trace"),
    Column("duration_ms", "Length", float, "ms", "time outside steps"),
)

INPUT_PART_TITLES = {
    "on_demand_read": "On-demand file read",
    "advanced_read": "Advanced file read",
    "preprocessing": "Preprocessing",
    "enqueue": "Enqueue to device",
    "other": "Other",
}
_INPUT_SHARES = (
    Column("input_percent", "Input", float, "%", "share of step time spent on input"),
    Column("input_wait_percent", "Waiting", float, "%", "share of step time spent waiting for tf.data"),
    Column("host_to_device_percent", "To device", float, "%", "share of step time spent handing batches to the device"),
    Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
)

INPUT_HOSTS = (
    Column("host", "Host", str, "", "name of the trace file"),
    *_INPUT_SHARES,
    Column("part", "Largest part", str, "", "class of input ops that is at work for most of the wall time"),
    Column("wall_percent", "At work", float, "%", "wall time of that class / length of the capture"),
)

INPUT_STATISTICS = (
    Column(
        "statistic", "Over steps", str, "", "average, standard deviation, minimum, maximum, median or 95th percentile"
    ),
    Column("step_time_ms", "Step", float, "ms", "step time"),
    Column("input_ms", "Input", float, "ms", "waiting for input and handing batches to the device"),
    Column("input_wait_ms", "Waiting", float, "ms", "part of input: waiting for tf.data"),
    Column("host_to_device_ms", "To device", float, "ms", "part of input: handing batches to the device"),
    Column("input_percent", "Input", float, "%", "input / step time of each step"),
)

INPUT_STEPS = (
    Column("step", "Step", int, "", "step number, as in the table of steps"),
    Column("flag", "Flag", str, "", "why the step is left out of averages"),
    *INPUT_STATISTICS[1:],
)

INPUT_CLASSES = (
    Column("part", "Class", str, "", "what the host does"),
    Column("ops", "Ops", int, "count", "different ops of the class", level="data"),
    Column("self_ms", "Self", float, "ms", "time without the ops inside, summed over threads"),
    Column("self_percent", "Self", float, "%", "self time / self time of all input ops"),
    Column("scaled_ms", "Scaled", float, "ms", "self time, scaled to the host's time where enqueuing was recorded"),
    Column("wall_ms", "Wall", float, "ms", "time in which at least one thread is at work in the class"),
    Column("wall_percent", "Of capture", float, "%", "wall time / length of the capture"),
)

INPUT_OPS = (
    Column("op_name", "Op", str, "", "name of the input op"),
    Column("part", "Class", str, "", "what the host does in it"),
    Column("count", "Count", int, "count", "how often it ran", level="data"),
    Column("total_ms", "Total", float, "ms", "time with the ops inside, summed over threads", level="data"),
    Column("total_percent", "Total", float, "%", "total time / self time of all input ops", level="data"),
    Column("self_ms", "Self", float, "ms", "time without the ops inside, summed over threads"),
    Column("self_percent", "Self", float, "%", "self time / self time of all input ops"),
    Column("wall_ms", "Wall", float, "ms", "time in which at least one thread runs the op itself"),
    Column("threads", "Threads", int, "count", "threads that ran it"),
)

TFDATA_STAGES = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("pipeline", "Pipeline", str, "", "kind and number of the pipeline on its host", level="data"),
    Column(
        "stage",
        "Stage",
        str,
        "",
        "stage, each below the one that asks it; ! is waited for most, * limits most",
        depth_key="depth",
    ),
    Column("name", "Name", str, "", "stage without marks", level="data"),
    Column("depth", "Depth", int, "count", "level in the tree, from 0", level="data"),
    Column("path", "Path", str, "", "names of the stage and of all that ask it", level="data"),
    Column("dataset", "Dataset", str, "", "TensorFlow's name, of the outermost stage and of prefetches", level="data"),
    Column("calls", "Calls", int, "count", "times that it was asked for an element"),
    Column("mean_ms", "Mean", float, "ms", "average time of a call"),
    Column("p95_ms", "p95", float, "ms", "95 % of the calls take less"),
    Column("total_ms", "Total", float, "ms", "time of all calls, with those inside", level="data"),
    Column("work_ms", "Work", float, "ms", "own work on all threads, in the whole capture", level="data"),
    Column("element_ms", "Self", float, "ms", "own work for one element of the pipeline, on all threads"),
    Column("busy_percent", "Busy", float, "%", "share of wall time in which it or its function works"),
    Column(
        "waited_percent",
        "Waited",
        float,
        "%",
        "share of the waiting for the pipeline in which this stage is waited for",
    ),
    Column("is_blocking", "Blocks", bool, "", "whether it is waited for most", level="data"),
    Column("is_limiting", "Limits", bool, "", "whether it limits how fast elements can come", level="data"),
    Column("parallelism", "Par.", int, "count", "calls of its function, or inputs, at the same time"),
    Column("autotuned", "Autotuned", bool, "", "whether TensorFlow chooses the parallelism", level="data"),
    Column("deterministic", "Deterministic", bool, "", "whether it keeps the order", level="data"),
    Column("buffer", "Buffer", str, "", "elements in its buffer when asked, on average / most"),
    Column("buffered", "Buffered", float, "count", "elements in its buffer when asked, on average", level="data"),
    Column("buffer_limit", "Buffer limit", int, "count", "most elements that its buffer holds", level="data"),
    Column("batch_size", "Batch size", int, "count", "elements that it makes one of", level="data"),
    Column("cycle_length", "Cycle length", int, "count", "inputs that it reads in turn", level="data"),
)

TFDATA_FUNCTIONS = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("pipeline", "Pipeline", str, "", "kind and number of the pipeline on its host", level="data"),
    Column("stage", "Stage", str, "", "stage that runs the function"),
    Column("path", "Path", str, "", "names of the stage and of all that ask it", level="data"),
    Column("runs", "Runs", int, "count", "runs of the function"),
    Column("run_ms", "Mean", float, "ms", "work of one run"),
    Column("python", "Python", str, "", "py_function, numpy_function or from_generator: holds the interpreter lock"),
    Column("ops", "Ops with the most time", str, "", "op types inside, with their share of the function"),
)

TFDATA_PIPELINES = (
    Column("host", "Host", str, "", "name of the trace file", level="data"),
    Column("pipeline", "Pipeline", str, "", "Host: makes elements; Device: hands them to a device"),
    Column("stages", "Stages", int, "count", "stages"),
    Column("calls", "Calls", int, "count", "elements that it was asked for"),
    Column("mean_ms", "Mean", float, "ms", "average time of a call of the outermost stage"),
    Column("p95_ms", "p95", float, "ms", "95 % of these calls take less"),
    Column("max_ms", "Max", float, "ms", "the longest call", level="data"),
    Column("slow_calls", "Slow", int, "count", "calls longer than 50 us"),
    Column("waited_ms", "Waited", float, "ms", "wall time in which anyone waited for it"),
    Column("blocking", "Waited for", str, "", "stage that is waited for most"),
    Column("limiting", "Limits", str, "", "stage that limits how fast elements can come"),
)

WHAT_IF = (
    Column("change", "Change", str, "", "kind of change", level="data"),
    Column("stage", "Stage", str, "", "stage that changes", level="data"),
    Column("what", "Change", str, "", "what to change"),
    Column("low_ms", "Step from", float, "ms", "step time at best"),
    Column("high_ms", "to", float, "ms", "step time at worst"),
    Column(
        "low_input_percent", "Input from", float, "%", "share of the step that waits for input, at best", level="data"
    ),
    Column("high_input_percent", "Input to", float, "%", "share of the step that waits for input, at worst"),
    Column("assumption", "If", str, "", "what the estimate rests on"),
)
