"""Give a callback to every call of `fit`, `evaluate` and `predict` of a program that does not know of it.

Keras is not imported here: its modules are patched when the program itself imports them.
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

from tfperf.capture.keras_callback import ON_BATCH, ProfileCallback

Patch = Callable[[ModuleType], None]

_WITH_CALLBACK_LISTS = ("keras.src.callbacks", "tf_keras.src.callbacks")
_WITH_MODELS = ("keras.src.models.model", "keras.src.engine.training", "tf_keras.src.engine.training")


def hook_keras(callback: ProfileCallback) -> None:
    """Make Keras 2 and 3 call `callback`; call this before they are imported."""
    lists = dict.fromkeys(_WITH_CALLBACK_LISTS, partial(_patch_lists, callback))
    models = dict.fromkeys(_WITH_MODELS, partial(_patch_models, callback))
    sys.meta_path.insert(0, _PatchingFinder({**lists, **models}))


class _PatchingFinder(MetaPathFinder):
    """Finds no modules itself, but has some patched right after they are executed."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self._patches.get(fullname)
        if patch is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _patch_after(spec.loader, patch)
        return spec


def _patch_after(loader: Any, patch: Patch) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        with contextlib.suppress(Exception):  # A Keras of another structure is not profiled, but not broken either.
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
    # A single callback is allowed, too; Keras itself refuses anything else.
    return [callbacks, callback] if hasattr(callbacks, "on_train_batch_end") else callbacks


def _patch_models(callback: ProfileCallback, module: ModuleType) -> None:
    """Count the calls for which Keras has no hooks."""
    for mode, name in ON_BATCH.items():
        setattr(module.Model, name, callback.as_step(mode, getattr(module.Model, name)))
