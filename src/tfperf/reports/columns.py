"""Every column that reports show, declared once: key, title, unit, meaning."""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

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
    Column("start_ms", "Begin", "ms", "begin on the clock of the trace", compact=False),
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

EAGER_OPS = (
    Column("op_type", "Op", "", "type of the op"),
    Column("calls", "Calls", "count", "times that Python ran it, outside any tf.function"),
    Column("total_ms", "Total", "ms", "time of all calls on the host"),
    Column("mean_ms", "Mean", "ms", "average time of a call"),
)

ENVIRONMENT = (
    Column("host", "Host", "", "name of the trace file"),
    Column("device_type", "Device", "", "CPU, GPU or TPU"),
    Column("device_model", "Model", "", "device model"),
    Column("device_count", "Devices", "count", "devices that recorded events"),
    Column("idle_devices", "Idle", "count", "devices listed without an event"),
    Column("device_cores", "Cores", "count", "multiprocessors of one device"),
    Column("device_memory_bytes", "Memory", "bytes", "memory of one device", compact=False),
    Column("event_count", "Events", "count", "events in the file"),
    Column("size_bytes", "Size", "bytes", "size of the file", compact=False),
    Column("duration_ms", "Capture", "ms", "from the first to the last event"),
    Column("path", "File", "", "the trace file", compact=False),
)

PAUSES = (
    Column("after_step", "After step", "", "the step before the pause"),
    Column("start_ms", "Begin", "ms", "begin on the clock of the trace"),
    Column("duration_ms", "Length", "ms", "time outside steps"),
)

INPUT_PART_TITLES = {
    "on_demand_read": "On-demand file read",
    "advanced_read": "Advanced file read",
    "preprocessing": "Preprocessing",
    "enqueue": "Enqueue to device",
    "other": "Other",
}
_INPUT_SHARES = (
    Column("input_percent", "Input", "%", "share of step time spent on input"),
    Column("input_wait_percent", "Waiting", "%", "share of step time spent waiting for tf.data"),
    Column("host_to_device_percent", "To device", "%", "share of step time spent handing batches to the device"),
    Column("input_class", "Input-bound", "", "high, moderate, possible, none or unknown"),
)

INPUT_HOSTS = (
    Column("host", "Host", "", "name of the trace file"),
    *_INPUT_SHARES,
    Column("part", "Largest part", "", "class of input ops that is at work for most of the wall time"),
    Column("wall_percent", "At work", "%", "wall time of that class / length of the capture"),
)

INPUT_STATISTICS = (
    Column("statistic", "Over steps", "", "average, standard deviation, minimum, maximum, median or 95th percentile"),
    Column("step_time_ms", "Step", "ms", "step time"),
    Column("input_ms", "Input", "ms", "waiting for input and handing batches to the device"),
    Column("input_wait_ms", "Waiting", "ms", "part of input: waiting for tf.data"),
    Column("host_to_device_ms", "To device", "ms", "part of input: handing batches to the device"),
    Column("input_percent", "Input", "%", "input / step time of each step"),
)

INPUT_STEPS = (
    Column("step", "Step", "", "step number, as in the table of steps"),
    Column("flag", "Flag", "", "why the step is left out of averages"),
    *INPUT_STATISTICS[1:],
)

INPUT_CLASSES = (
    Column("part", "Class", "", "what the host does"),
    Column("ops", "Ops", "count", "different ops of the class", compact=False),
    Column("self_ms", "Self", "ms", "time without the ops inside, summed over threads"),
    Column("self_percent", "Self", "%", "self time / self time of all input ops"),
    Column("scaled_ms", "Scaled", "ms", "self time, scaled to the host's time where enqueuing was recorded"),
    Column("wall_ms", "Wall", "ms", "time in which at least one thread is at work in the class"),
    Column("wall_percent", "Of capture", "%", "wall time / length of the capture"),
)

INPUT_OPS = (
    Column("op_name", "Op", "", "name of the input op"),
    Column("part", "Class", "", "what the host does in it"),
    Column("count", "Count", "count", "how often it ran", compact=False),
    Column("total_ms", "Total", "ms", "time with the ops inside, summed over threads", compact=False),
    Column("total_percent", "Total", "%", "total time / self time of all input ops", compact=False),
    Column("self_ms", "Self", "ms", "time without the ops inside, summed over threads"),
    Column("self_percent", "Self", "%", "self time / self time of all input ops"),
    Column("wall_ms", "Wall", "ms", "time in which at least one thread runs the op itself"),
    Column("threads", "Threads", "count", "threads that ran it"),
)

TFDATA_STAGES = (
    Column("host", "Host", "", "name of the trace file", compact=False),
    Column("pipeline", "Pipeline", "", "kind and number of the pipeline on its host", compact=False),
    Column(
        "stage",
        "Stage",
        "",
        "stage, each below the one that asks it; ! is waited for most, * limits most",
        depth_key="depth",
    ),
    Column("name", "Name", "", "stage without marks", compact=False),
    Column("depth", "Depth", "count", "level in the tree, from 0", compact=False),
    Column("path", "Path", "", "names of the stage and of all that ask it", compact=False),
    Column("dataset", "Dataset", "", "TensorFlow's name, of the outermost stage and of prefetches", compact=False),
    Column("calls", "Calls", "count", "times that it was asked for an element"),
    Column("mean_ms", "Mean", "ms", "average time of a call"),
    Column("p95_ms", "p95", "ms", "95 % of the calls take less"),
    Column("total_ms", "Total", "ms", "time of all calls, with those inside", compact=False),
    Column("work_ms", "Work", "ms", "own work on all threads, in the whole capture", compact=False),
    Column("element_ms", "Self", "ms", "own work for one element of the pipeline, on all threads"),
    Column("busy_percent", "Busy", "%", "share of wall time in which it or its function works"),
    Column("waited_percent", "Waited", "%", "share of the waiting for the pipeline in which this stage is waited for"),
    Column("is_blocking", "Blocks", "", "whether it is waited for most", compact=False),
    Column("is_limiting", "Limits", "", "whether it limits how fast elements can come", compact=False),
    Column("parallelism", "Par.", "count", "calls of its function, or inputs, at the same time"),
    Column("autotuned", "Autotuned", "", "whether TensorFlow chooses the parallelism", compact=False),
    Column("deterministic", "Deterministic", "", "whether it keeps the order", compact=False),
    Column("buffer", "Buffer", "", "elements in its buffer when asked, on average / most"),
    Column("buffered", "Buffered", "count", "elements in its buffer when asked, on average", compact=False),
    Column("buffer_limit", "Buffer limit", "count", "most elements that its buffer holds", compact=False),
    Column("batch_size", "Batch size", "count", "elements that it makes one of", compact=False),
    Column("cycle_length", "Cycle length", "count", "inputs that it reads in turn", compact=False),
)

TFDATA_FUNCTIONS = (
    Column("host", "Host", "", "name of the trace file", compact=False),
    Column("pipeline", "Pipeline", "", "kind and number of the pipeline on its host", compact=False),
    Column("stage", "Stage", "", "stage that runs the function"),
    Column("path", "Path", "", "names of the stage and of all that ask it", compact=False),
    Column("runs", "Runs", "count", "runs of the function"),
    Column("run_ms", "Mean", "ms", "work of one run"),
    Column("python", "Python", "", "py_function, numpy_function or from_generator: holds the interpreter lock"),
    Column("ops", "Ops with the most time", "", "op types inside, with their share of the function"),
)

TFDATA_PIPELINES = (
    Column("host", "Host", "", "name of the trace file", compact=False),
    Column("pipeline", "Pipeline", "", "Host: makes elements; Device: hands them to a device"),
    Column("stages", "Stages", "count", "stages"),
    Column("calls", "Calls", "count", "elements that it was asked for"),
    Column("mean_ms", "Mean", "ms", "average time of a call of the outermost stage"),
    Column("p95_ms", "p95", "ms", "95 % of these calls take less"),
    Column("max_ms", "Max", "ms", "the longest call", compact=False),
    Column("slow_calls", "Slow", "count", "calls longer than 50 us"),
    Column("waited_ms", "Waited", "ms", "wall time in which anyone waited for it"),
    Column("blocking", "Waited for", "", "stage that is waited for most"),
    Column("limiting", "Limits", "", "stage that limits how fast elements can come"),
)

WHAT_IF = (
    Column("change", "Change", "", "kind of change", compact=False),
    Column("stage", "Stage", "", "stage that changes", compact=False),
    Column("what", "Change", "", "what to change"),
    Column("low_ms", "Step from", "ms", "step time at best"),
    Column("high_ms", "to", "ms", "step time at worst"),
    Column("low_input_percent", "Input from", "%", "share of the step that waits for input, at best", compact=False),
    Column("high_input_percent", "Input to", "%", "share of the step that waits for input, at worst"),
    Column("assumption", "If", "", "what the estimate rests on"),
)
