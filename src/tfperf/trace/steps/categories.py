"""The nine categories of step time and the step detection rules: names, order, and meaning."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

CATEGORY_MEANINGS = {
    "compilation": "tracing or compiling functions",
    "output": "copies from device to host",
    "input": "waiting for input, H2D copies",
    "kernel_launch": "preparing and launching kernels",
    "host_compute": "ops or runtime on host threads",
    "device_collectives": "all-reduce and similar",
    "device_to_device": "copies between or within devices",
    "device_compute": "kernels on the device",
    "all_others": "uncategorized: Python, I/O, idle",
}
"""The nine categories in display order, with their content."""


TPU_MEANINGS = {
    "output": "outfeed, waiting for copies to the host",
    "input": "infeed, or waiting for the host",
    "host_to_device": "waiting for copies from host memory",
    "device_collectives": "all-reduce and similar, barriers",
    "device_to_device": "waiting for copies within or between chips",
    "device_compute": "other ops on the cores",
    "all_others": "uncategorized: cores run no op",
}
"""Content that differs for the steps of a TPU."""


CATEGORIES = tuple(CATEGORY_MEANINGS)


WITH_COPIES = (*CATEGORIES[:3], "host_to_device", *CATEGORIES[3:])
"""The categories of steps whose copies to the device are not input, so that they are a separate category."""


CATEGORY_TITLES = {key: key.replace("_", " ").capitalize() for key in WITH_COPIES}


DEVICE_CATEGORIES = ("output", "kernel_launch", "device_collectives", "device_to_device", "device_compute")
"""Categories that are unknown without device events."""


HOST_CATEGORIES = ("compilation", "kernel_launch", "host_compute")
"""Categories that are unknown without host events."""


# --- rules ---


class StepSource(Struct, frozen=True):
    """The event that a detection rule uses as a step, and its confidence; Markdown."""

    step: str
    confidence: str


STEP_SOURCES: Mapping[str, StepSource] = {
    "markers": StepSource(
        "an event with `step_num`, or with the name given by `--step-marker` (on a TPU, also the name of a program)",
        "high",
    ),
    "device steps": StepSource("an event on the step line of a TPU", "high"),
    "stored groups": StepSource("a group that the profiler stored in the file (TensorFlow 2.2 to 2.4)", "high"),
    "program runs": StepSource(
        (
            "on a TPU without a step line: a run of the main program, or one iteration of the repeating programs, "
            "from run to run on each chip; from call to call if the program waits for each result. Training and "
            "evaluation programs are distinguished as below"
        ),
        "high; medium without gradients or without repetition; low without both",
    ),
    "jitted calls": StepSource(
        (
            "one iteration of the repeating calls of jitted JAX functions, with one that computes gradients; "
            "forward-only calls are evaluation. Without gradients, it is an iteration, not a training step, or "
            "inference if the functions are named so"
        ),
        "high; medium without gradients or without repetition; low without both",
    ),
    "tf.function calls": StepSource(
        (
            "a call of the function with the most time, with its tf.data fetch inside; or one iteration of the "
            "repeating sequence of fetches and training calls. Forward-only calls that are not part of every "
            "iteration are evaluation, one step per call"
        ),
        "high; medium without fetches or regular repetition; low if only the order of calls identifies training",
    ),
    "tf.data fetches inside a call": StepSource(
        "from fetch to fetch, inside a call that loops over the data", "medium"
    ),
    "executor runs": StepSource(
        "an executor run that tf.data did not start", "low; medium if another process calls it (EagerService)"
    ),
    "tf.data fetches": StepSource("from fetch to fetch, without calls", "medium, or low for fewer than four"),
    "eager ops": StepSource("one iteration of the repeating sequence of eager ops, without calls or fetches", "low"),
    "device modules": StepSource("a run of the XLA module with the most time on a GPU", "low"),
    "groups": StepSource("attribution `tensorflow`: a group of TensorFlow's profiler", "high"),
    "none": StepSource("no rule finds steps; the report states why, and has no verdict", "none"),
}
"""Every rule by name, in the order in which they are tried, except that a TPU step line comes before markers."""
