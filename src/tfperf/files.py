"""Files that are written whole or not at all: written beside their place first, then moved there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def temporary_beside(target: Path) -> Iterator[Path]:
    """Lend a path in the folder of `target` where no file is yet; a file that is still there at the end is removed."""
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}-{time.monotonic_ns()}.tmp")
    try:
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def replace_file(target: Path, data: bytes) -> None:
    """Write a file in one move, over another of that name if there is one; raises OSError."""
    with temporary_beside(target) as temporary:
        with temporary.open("xb") as file:
            file.write(data)
        temporary.replace(target)
