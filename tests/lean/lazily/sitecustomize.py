"""Python runs this when it starts: what makes the import of TensorFlow cheaper, and changes nothing that it does.

A tenth of its time would be collecting garbage. Much of the rest would be modules of the public API, and what only they
import: those run when the job first looks into them, and most never do.
"""

from __future__ import annotations

import gc
import sys
from _thread import RLock
from importlib.machinery import PathFinder
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing these takes time.
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

gc.set_threshold(500_000, 20, 100)

_lock = RLock()
_waiting: dict[str, Any] = {}
"""The loader of each module that nobody has looked into."""


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        with _lock:
            if loader := _waiting.pop(self.__name__, None):
                loader.exec_module(self)
        if name in self.__dict__:
            return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _LazyLoader:
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _LazyModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        _waiting[module.__name__] = self._loader


class _LazyFinder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        is_public = name.startswith(("tensorflow._api.v2.", "keras.")) and not name.startswith("keras.src")
        spec = PathFinder.find_spec(name, path, target) if is_public else None
        if spec is not None:
            spec.loader = _LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec


sys.meta_path.insert(0, _LazyFinder)
