"""The framework that computes in this process, TensorFlow or JAX: which one it is, its step markers and its devices.

Nothing is imported that the program has not imported.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from types import FrameType
from typing import Any, Literal, cast

Framework = Literal["TensorFlow", "JAX"]
FRAMEWORKS: dict[Framework, str] = {"TensorFlow": "tensorflow", "JAX": "jax"}
"""The modules of the frameworks."""
_COMPILER = tuple(
    f"{os.sep}jax{os.sep}_src{os.sep}{file.replace('/', os.sep)}"
    for file in ("compiler.py", "interpreters/mlir.py", "interpreters/partial_eval.py")
)
"""Files of JAX whose functions run while it traces, lowers and compiles a program."""


def imported() -> list[Framework]:
    """Return the frameworks that the program has imported, or is importing."""
    return [framework for framework, module in FRAMEWORKS.items() if sys.modules.get(module) is not None]


def computing() -> Framework | None:
    """Return the imported framework that computes; None if the program imported neither.

    With both, it is JAX if JAX has started its devices: importing TensorFlow imports JAX, too, but starts no device.
    """
    found = imported()
    if len(found) < len(FRAMEWORKS):
        return found[0] if found else None
    return "JAX" if jax_has_started() else "TensorFlow"


def ready() -> Framework | None:
    """Return the framework that computes once it can be profiled without a change of what the program does.

    Its import is complete, and JAX has started its devices: starting them here could precede
    `jax.distributed.initialize()`, which then fails.
    """
    framework = computing()
    if framework == "JAX":
        return framework if jax_has_started() else None
    spec = getattr(sys.modules.get("tensorflow"), "__spec__", None)
    return None if spec is None or getattr(spec, "_initializing", False) else framework


def jax_has_started() -> bool:
    """Return whether JAX is imported and has started its devices."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    # A JAX without this function counts as started, as soon as its modules are there.
    return bool(started()) if started else bridge is not None and hasattr(sys.modules.get("jax"), "profiler")


def compiling() -> list[FrameType]:
    """Return a frame of each compilation of JAX that runs: the outermost frame of its thread, which identifies it."""
    frames = []
    for frame in sys._current_frames().values():
        found, current = None, cast(FrameType | None, frame)
        while current is not None:
            found = current if current.f_code.co_filename.endswith(_COMPILER) else found
            current = current.f_back
        frames += [found] if found else []
    return frames


def start_marker(name: str, number: int) -> Callable[[], object] | None:
    """Start the event of a step and return the function that ends it; None if nothing records."""
    # Both frameworks parse the text after a "#" as statistics.
    name = name.replace("#", "_")
    framework = computing()
    if framework == "JAX":
        profiler = sys.modules["jax"].profiler
        enabled = getattr(profiler.TraceAnnotation, "is_enabled", None)
        if enabled is not None and not enabled():
            return None
        annotation = profiler.StepTraceAnnotation(name, step_num=number)
        annotation.__enter__()
        return partial(annotation.__exit__, None, None, None)
    if framework is None:
        return None
    tracing = _tensorflow_tracing()
    # TensorFlow before 2.21 does not report whether a profile is running.
    enabled = getattr(tracing, "traceme_enabled", None)
    if enabled is not None and not enabled():
        return None
    stop: Callable[[], object] = tracing.TraceMe(name, step_num=number, _r=1).Stop
    return stop


@cache
def _tensorflow_tracing() -> Any:
    from tensorflow.python.profiler.internal import _pywrap_traceme

    return _pywrap_traceme


def wait_for_devices() -> None:
    """Wait for the devices, so that work of one step is neither cut off nor counted in the next; never raises."""
    framework: Any = ready()
    with contextlib.suppress(Exception):
        if framework == "JAX":
            for array in sys.modules["jax"].live_arrays():
                with contextlib.suppress(Exception):  # Another thread may delete it.
                    array.block_until_ready()
        elif framework:
            tensorflow = sys.modules["tensorflow"]
            if tensorflow.executing_eagerly():
                tensorflow.test.experimental.sync_devices()
