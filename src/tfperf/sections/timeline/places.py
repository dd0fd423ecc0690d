"""Where in a step each cause of the diagnosis costs time: in the categories that it is a part of."""

from __future__ import annotations

from collections.abc import Mapping

_LAUNCHING = ("kernel_launch",)
_OUTSIDE = ("all_others",)
_FIXED = ("kernel_launch", "host_compute", "all_others")
_DEVICE = ("device_compute",)

CATEGORIES_OF_CAUSE: Mapping[str, tuple[str, ...]] = {
    "input_wait": ("input_wait",),
    "input_copy": ("host_to_device",),
    "host_copies": ("host_to_device", "output"),
    "chip_copies": ("device_to_device",),
    "kernel_waits": _DEVICE,
    "input_contention": ("host_compute", "all_others"),
    "output_copy": ("output",),
    "compilation": ("compilation",),
    "warm_up": ("compilation",),
    "launch_bound": _LAUNCHING,
    "small_work_per_step": _FIXED,
    "host_ops": ("host_compute",),
    "waiting_for_results": ("host_compute", "all_others"),
    "python_between_steps": _OUTSIDE,
    "waiting_in_calls": _OUTSIDE,
    "eager_ops": _FIXED,
    "run_eagerly": _FIXED,
    "checkpointing": ("host_compute", "all_others"),
    "fetch_results": ("host_compute", "all_others"),
    "numpy_conversion": ("host_compute", "all_others", "host_to_device"),
    "iterator_per_step": ("compilation", "input_wait", "host_compute", "all_others"),
    "collectives": ("device_collectives",),
    "skewed_input": ("input_wait",),
    "device_compute_32bit": _DEVICE,
    "layout_conversion": _DEVICE,
    "memory_bound": _DEVICE,
    "unaligned_shapes": _DEVICE,
    "low_utilisation": _DEVICE,
}
"""By code; causes that are no part of a step have no place in it."""
