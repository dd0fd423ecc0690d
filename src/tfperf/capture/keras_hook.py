"""Give a callback to every call of `fit`, `evaluate` and `predict` of a program that knows nothing of it.

Keras is not imported here: what is of interest is changed when the program itself imports it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tfperf.capture.keras import ON_BATCH, ProfileCallback

Patch = Callable[[ModuleType], None]


def hook_keras(callback: ProfileCallback) -> None:
    """Make Keras 2 and 3 call `callback` whenever they are imported; to be called before."""
    lists, models = partial(_patch_lists, callback), partial(_patch_models, callback)
    sys.meta_path.insert(0, _Finder({
        "keras.src.callbacks": lists,
        "tf_keras.src.callbacks": lists,
        "keras.src.models.model": models,
        "keras.src.engine.training": models,
        "tf_keras.src.engine.training": models,
    }))  # fmt: skip


class _Finder(MetaPathFinder):
    """Finds nothing itself, but has some modules patched right after they are executed."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self._patches.get(fullname)
        if patch is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        for finder in others:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                _patch_after(spec, patch)
                return spec
        return None


def _patch_after(spec: ModuleSpec, patch: Patch) -> None:
    loader: Any = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        execute(module)
        with contextlib.suppress(Exception):  # A Keras that is built otherwise: not profiled, but not broken either.
            patch(module)

    with contextlib.suppress(AttributeError):
        loader.exec_module = exec_module


def _patch_lists(callback: ProfileCallback, module: ModuleType) -> None:
    """Add the callback to each list of callbacks that Keras makes: one for each call, shared with its validation."""
    kind: Any = module.CallbackList
    original = kind.__init__

    @wraps(original)
    def __init__(self: Any, callbacks: Any = None, *arguments: Any, **options: Any) -> None:  # noqa: N807
        original(self, _with(callback, callbacks), *arguments, **options)

    kind.__init__ = __init__


def _with(callback: ProfileCallback, callbacks: Any) -> Any:
    if not callbacks:
        return [callback]
    if isinstance(callbacks, (list, tuple)):
        return callbacks if callback in callbacks else [*callbacks, callback]
    # Anything else but a single callback is for Keras to judge.
    return [callbacks, callback] if hasattr(callbacks, "on_train_batch_end") else callbacks


def _patch_models(callback: ProfileCallback, module: ModuleType) -> None:
    """Count the calls for which Keras has no hooks."""
    for mode, name in ON_BATCH.items():
        setattr(module.Model, name, _as_step(callback, mode, getattr(module.Model, name)))


def _as_step(callback: ProfileCallback, mode: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        with callback.watched_step(mode):
            return method(*arguments, **options)

    return call
