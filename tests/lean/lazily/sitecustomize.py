"""Python runs this when it starts: what makes the import of TensorFlow cheaper, and changes nothing that it does.

A tenth of its time would be collecting garbage, and as much what is collected in the end, or to compile a few
annotations many thousand times. Much of the rest would be modules of the public API and of generated ops, what only
they import, and what Keras asks whether it is there: those run when the job first looks into them, and most never do.
"""

from __future__ import annotations

import atexit
import gc
import sys
import typing
from _thread import RLock
from functools import cache
from importlib.machinery import PathFinder
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # Importing these takes time.
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any

gc.set_threshold(500_000, 20, 100)
atexit.register(gc.freeze)
typing.compile = cache(compile)  # type: ignore[attr-defined]

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


_FOLDERS = ("keras.", "tensorflow._api.v2.", "tensorflow.python.ops.gen_", "tensorflow.compiler.tf2xla.ops.gen_")
_PACKAGES = ("h5py", "psutil", "requests", "scipy.sparse", "scipy.sparse.linalg")


class _LazyFinder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        is_lazy = name in _PACKAGES or (name.startswith(_FOLDERS) and not name.startswith("keras.src"))
        spec = PathFinder.find_spec(name, path, target) if is_lazy else None
        if spec is not None:
            spec.loader = _LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec


sys.meta_path.insert(0, _LazyFinder)
