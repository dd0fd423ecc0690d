"""The nine categories of step time: their names, their order, and what each holds."""

from __future__ import annotations

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
"""The nine categories, in the order in which they are shown, and what counts in each."""


TPU_MEANINGS = {
    "output": "outfeed, waiting for copies to the host",
    "input": "infeed, or waiting for the host",
    "host_to_device": "waiting for copies from host memory",
    "device_collectives": "all-reduce and the like, barriers",
    "device_to_device": "waiting for copies on the chip, other chips",
    "device_compute": "other ops on the cores",
    "all_others": "none of these: cores run no op",
}
"""The same for the steps of a TPU, where they differ."""


CATEGORIES = tuple(CATEGORY_MEANINGS)


WITH_COPIES = (*CATEGORIES[:3], "host_to_device", *CATEGORIES[3:])
"""The categories of steps whose copies to the device are no input, so that they are a category of their own."""


CATEGORY_TITLES = {key: key.replace("_", " ").capitalize() for key in WITH_COPIES}


DEVICE_CATEGORIES = ("output", "kernel_launch", "device_collectives", "device_to_device", "device_compute")
"""Categories that are unknown where no device recorded anything."""


HOST_CATEGORIES = ("compilation", "kernel_launch", "host_compute")
"""Categories that only events of host threads show."""
