"""The columns of a comparison, declared once."""

from __future__ import annotations

from tfperf.report.model import Column

RUNS = (
    Column("run", "Run", "", "how it was named; the first is what the others are compared with"),
    Column("host", "Host", "", "the slowest host, which stands for the run", compact=False),
    Column("steps", "Steps", "count", "whole steps of that host, averaged ones only"),
    Column("step_ms", "Step", "ms", "mean, median or 95th percentile of its step times"),
    Column("ratio", "Ratio", "", "step time / that of the first run"),
    Column("ratio_low", "from", "", "lower end of the interval of the ratio"),
    Column("ratio_high", "to", "", "upper end of the interval of the ratio"),
    Column("input_percent", "Input", "%", "share of step time spent on input, of the host that waits most"),
    Column("input_class", "Input-bound", "", "high, moderate, possible, none or unknown"),
    Column("comparable", "Comparable", "", "whether nothing makes the comparison with the first unfair", compact=False),
)

_TIMES = (
    Column("before_ms", "Before", "ms", "time per step in the first run"),
    Column("after_ms", "After", "ms", "time per step in the last run"),
    Column("change_ms", "Change", "ms", "after - before"),
)
_STATE = Column("state", "State", "", "new, gone, or empty: in both runs, or not known")
_COUNTS = (
    Column("before_count", "Count before", "count", "how often per step in the first run", compact=False),
    Column("after_count", "Count after", "count", "how often per step in the last run", compact=False),
)
_RENAMED = Column("after_name", "Name after", "", "name in the last run, where it differs", compact=False)

CATEGORIES = (
    Column("category", "Category", "", "what the time goes to"),
    *_TIMES,
    Column("change_percent", "Of change", "%", "change / change of the mean step time"),
    Column("before_percent", "Share before", "%", "share of the mean step time in the first run"),
    Column("after_percent", "after", "%", "share of the mean step time in the last run"),
)

STEPS = (
    Column("statistic", "Over steps", "", "mean, median, 95th percentile, standard deviation, minimum, maximum"),
    *_TIMES,
    Column("ratio", "Ratio", "", "after / before"),
)

OPS = (
    Column("op_name", "Op", "", "name of the op"),
    Column("op_type", "Type", "", "type of the op", compact=False),
    *_TIMES,
    _STATE,
    *_COUNTS,
    _RENAMED,
)

KERNELS = (Column("kernel_name", "Kernel", "", "name of the kernel"), *_TIMES, _STATE, *_COUNTS, _RENAMED)
COPIES = (Column("kind", "Kind", "", "H2D, D2H, D2D, P2P, H2H, Memset or Unknown"), *_TIMES, _STATE, *_COUNTS)
IDLE = (Column("cause", "Device waits for", "", "what the host did meanwhile"), *_TIMES, _STATE)

STAGES = (
    Column("stage", "Stage", "", "kind of stage"),
    Column("path", "Path", "", "names of the stage and of all that ask it", compact=False),
    Column("before_ms", "Waited before", "ms", "time per step in which steps wait for this stage, in the first run"),
    Column("after_ms", "after", "ms", "time per step in which steps wait for this stage, in the last run"),
    Column("change_ms", "Change", "ms", "after - before"),
    Column("before_element_ms", "Work before", "ms", "own work for one element in the first run, on all threads"),
    Column("after_element_ms", "after", "ms", "own work for one element in the last run, on all threads"),
    _STATE,
    *_COUNTS,
    _RENAMED,
)

FUNCTIONS = (
    Column("function", "Function", "", "name of the tf.function"),
    *_TIMES,
    Column("before_tracings", "Traced before", "count", "calls that traced Python again, in the first capture"),
    Column("after_tracings", "after", "count", "calls that traced Python again, in the last capture"),
    _STATE,
)

MEMORY = (
    Column("allocator", "Allocator", "", "name of the allocator"),
    Column("before_bytes", "Peak before", "bytes", "most bytes in use in the first capture"),
    Column("after_bytes", "Peak after", "bytes", "most bytes in use in the last capture"),
    Column("change_bytes", "Change", "bytes", "after - before"),
)

DIFFERENCES = (
    Column("run", "Run", "", "the run that differs from the first"),
    Column("what", "What", "", "what differs"),
    Column("before", "First run", "", "in the first run"),
    Column("after", "This run", "", "in the run that differs"),
    Column("unfair", "Unfair", "", "whether the ratio of step times is not about the program alone"),
    Column("text", "What follows", "", "what follows from it", compact=False),
)
