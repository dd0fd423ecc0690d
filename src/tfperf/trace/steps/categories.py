"""The nine categories of step time and the step detection rules: names, order, and meaning."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

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
"""The nine categories in display order, with their content."""


TPU_MEANINGS = {
    "output": "outfeed, waiting for copies to the host",
    "input": "infeed, or waiting for the host",
    "host_to_device": "waiting for copies from host memory",
    "device_collectives": "all-reduce and the like, barriers",
    "device_to_device": "waiting for copies on the chip, other chips",
    "device_compute": "other ops on the cores",
    "all_others": "none of these: cores run no op",
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
        "an event with `step_num`, or of the name given with `--step-marker`, which may be that of a program on a TPU",
        "high",
    ),
    "device steps": StepSource("an event on the step line of a TPU", "high"),
    "stored groups": StepSource("a group that the profiler stored in the file (TensorFlow 2.2 to 2.4)", "high"),
    "program runs": StepSource(
        (
            "on a TPU without a step line: a run of the main program, or one turn of the programs that repeat, from "
            "run to run on each chip; from call to call where the program waits for each result. Programs that train, "
            "and evaluate, are told apart as below"
        ),
        "high; medium without gradients or if nothing repeats; low if neither",
    ),
    "jitted calls": StepSource(
        (
            "one turn of the repeating calls of jitted functions of JAX, of which one computes gradients; calls that "
            "only compute forward are evaluation. Without gradients, a turn is an iteration, not a training step"
        ),
        "high; medium without gradients or if nothing repeats; low if neither",
    ),
    "tf.function calls": StepSource(
        (
            "a call of the function that takes most time, with its fetch from tf.data inside; or one turn of the "
            "repeating sequence of fetches and calls that train. Calls that only compute forward and are not part of "
            "every turn are evaluation, each of them a step"
        ),
        "high; medium if nothing is fetched or nothing repeats regularly; low if only the order shows which train",
    ),
    "tf.data fetches inside a call": StepSource(
        "from fetch to fetch, inside a call that loops over the data", "medium"
    ),
    "executor runs": StepSource(
        "a run of the executor that tf.data did not start", "low; medium if another process calls it (EagerService)"
    ),
    "tf.data fetches": StepSource("from fetch to fetch, without any call", "medium, or low for fewer than four"),
    "eager ops": StepSource(
        "one turn of the repeating sequence of ops that Python runs one by one, without any call or fetch", "low"
    ),
    "device modules": StepSource("a run of the XLA module that takes most time of a GPU", "low"),
    "groups": StepSource("attribution `tensorflow`: a group as TensorFlow's profiler makes it", "high"),
    "none": StepSource("no rule finds a step; the report says why, and gives no verdict", "none"),
}
"""Every rule by name, in the order in which they are tried, except that a TPU step line comes before markers."""
