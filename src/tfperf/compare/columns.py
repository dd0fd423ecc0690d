"""The columns of a comparison, declared once."""

from __future__ import annotations

from tfperf.report.model import Column

RUNS = (
    Column("run", "Run", str, "", "how it was named; the first is what the others are compared with"),
    Column("host", "Host", str, "", "the slowest host, which stands for the run", level="data"),
    Column("steps", "Steps", int, "count", "whole steps of that host, averaged ones only"),
    Column("step_ms", "Step", float, "ms", "mean, median or 95th percentile of its step times"),
    Column("ratio", "Ratio", str, "", "step time / that of the first run"),
    Column("ratio_low", "from", str, "", "lower end of the interval of the ratio"),
    Column("ratio_high", "to", str, "", "upper end of the interval of the ratio"),
    Column("input_percent", "Input", float, "%", "share of step time spent on input, of the host that waits most"),
    Column("input_class", "Input-bound", str, "", "high, moderate, possible, none or unknown"),
    Column(
        "comparable", "Comparable", str, "", "whether nothing makes the comparison with the first unfair", level="data"
    ),
)

_TIMES = (
    Column("before_ms", "Before", float, "ms", "time per step in the first run"),
    Column("after_ms", "After", float, "ms", "time per step in the last run"),
    Column("change_ms", "Change", float, "ms", "after - before"),
)
_STATE = Column("state", "State", str, "", "new, gone, or empty: in both runs, or not known")
_COUNTS = (
    Column("before_count", "Count before", int, "count", "how often per step in the first run", level="data"),
    Column("after_count", "Count after", int, "count", "how often per step in the last run", level="data"),
)
_RENAMED = Column("after_name", "Name after", str, "", "name in the last run, where it differs", level="data")

CATEGORIES = (
    Column("category", "Category", str, "", "what the time goes to"),
    *_TIMES,
    Column("change_percent", "Of change", float, "%", "change / change of the mean step time"),
    Column("before_percent", "Share before", float, "%", "share of the mean step time in the first run"),
    Column("after_percent", "after", float, "%", "share of the mean step time in the last run"),
)

STEPS = (
    Column("statistic", "Over steps", str, "", "mean, median, 95th percentile, standard deviation, minimum, maximum"),
    *_TIMES,
    Column("ratio", "Ratio", str, "", "after / before"),
)

OPS = (
    Column("op_name", "Op", str, "", "name of the op"),
    Column("op_type", "Type", str, "", "type of the op", level="data"),
    *_TIMES,
    _STATE,
    *_COUNTS,
    _RENAMED,
)

KERNELS = (Column("kernel_name", "Kernel", str, "", "name of the kernel"), *_TIMES, _STATE, *_COUNTS, _RENAMED)
COPIES = (Column("kind", "Kind", str, "", "H2D, D2H, D2D, P2P, H2H, Memset or Unknown"), *_TIMES, _STATE, *_COUNTS)
IDLE = (Column("cause", "Device waits for", str, "", "what the host did meanwhile"), *_TIMES, _STATE)

STAGES = (
    Column("stage", "Stage", str, "", "kind of stage"),
    Column("path", "Path", str, "", "names of the stage and of all that ask it", level="data"),
    Column(
        "before_ms", "Waited before", float, "ms", "time per step in which steps wait for this stage, in the first run"
    ),
    Column("after_ms", "after", float, "ms", "time per step in which steps wait for this stage, in the last run"),
    Column("change_ms", "Change", float, "ms", "after - before"),
    Column(
        "before_element_ms", "Work before", float, "ms", "own work for one element in the first run, on all threads"
    ),
    Column("after_element_ms", "after", float, "ms", "own work for one element in the last run, on all threads"),
    _STATE,
    *_COUNTS,
    _RENAMED,
)

FUNCTIONS = (
    Column("function", "Function", str, "", "name of the tf.function"),
    *_TIMES,
    Column("before_tracings", "Traced before", int, "count", "calls that traced Python again, in the first capture"),
    Column("after_tracings", "after", int, "count", "calls that traced Python again, in the last capture"),
    _STATE,
)

MEMORY = (
    Column("allocator", "Allocator", str, "", "name of the allocator"),
    Column("before_bytes", "Peak before", int, "bytes", "most bytes in use in the first capture"),
    Column("after_bytes", "Peak after", int, "bytes", "most bytes in use in the last capture"),
    Column("change_bytes", "Change", int, "bytes", "after - before"),
)

DIFFERENCES = (
    Column("run", "Run", str, "", "the run that differs from the first"),
    Column("what", "What", str, "", "what differs"),
    Column("before", "First run", str, "", "in the first run"),
    Column("after", "This run", str, "", "in the run that differs"),
    Column("unfair", "Unfair", str, "", "whether the ratio of step times is not about the program alone"),
    Column("text", "What follows", str, "", "what follows from it", level="data"),
)
