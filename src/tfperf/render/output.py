"""The only writer of reports: stdout, one file, or a folder of files.

A file is written beside its place and then moved there, so that nobody ever reads half a report.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from tfperf.errors import OutputError
from tfperf.files import replace_file
from tfperf.render.safe_text import safe

STDOUT = Path("-")


def write(text: str, destination: Path | None, *, force: bool = False) -> None:
    """Write a report to a file, or to stdout (None or `-`); a file is replaced only with `force`."""
    if destination is None or destination == STDOUT:
        _write_stdout(text)
        return
    refuse_existing([destination], force=force)
    _write_file(text, destination)


def write_folder(files: Mapping[str, str], folder: Path, *, force: bool = False) -> None:
    """Write files by name into a folder, made if need be; write none if one exists, but for `force`."""
    targets = {folder / name: text for name, text in files.items()}
    refuse_existing(list(targets), force=force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise OutputError(f"{safe(str(folder))} is a file; name a folder") from None
    except OSError as error:
        raise _failed(folder, error) from error
    for target, text in targets.items():
        _write_file(text, target)


def refuse_existing(targets: Sequence[Path], *, force: bool) -> None:
    """Raise OutputError where a target is a folder, or a file that may not be replaced."""
    try:
        folders = [target for target in targets if target.is_dir()]
        files = [target for target in targets if target.is_file()]
    except OSError as error:
        raise _failed(targets[0], error) from error
    if folders:
        raise OutputError(f"{_names(folders)} is a folder; name a file")
    if files and not force:
        if len(files) == 1:
            raise OutputError(f"{_names(files)} exists; pass --force to replace it")
        names = ", ".join(safe(file.name) for file in files)
        raise OutputError(f"{names} exist in {_names([files[0].parent])}; pass --force to replace them")


def _write_file(text: str, destination: Path) -> None:
    data = text.encode("utf-8", errors="backslashreplace")
    try:
        if destination.exists() and not destination.is_file():
            # A device or a named pipe (/dev/null, a shell's >(...)) is written to, not replaced.
            destination.write_bytes(data)
        else:
            replace_file(Path(os.path.realpath(destination)), data)
    except OSError as error:
        raise _failed(destination, error) from error


def _write_stdout(text: str) -> None:
    """Write to stdout, what its encoding lacks as escapes; no error if the reader leaves (`| head`)."""
    stream = sys.stdout
    if stream is None:
        raise OutputError("stdout is closed; name an output file")
    encoding = stream.encoding or "utf-8"
    data = text.encode(encoding, errors="backslashreplace")
    try:
        stream.flush()
        if hasattr(stream, "buffer"):
            stream.buffer.write(data)
        else:
            stream.write(data.decode(encoding))
        stream.flush()
    except BrokenPipeError:
        discard(stream)
    except OSError as error:
        discard(stream)
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error


def discard(stream: TextIO) -> None:
    """Send what is still buffered nowhere, or the interpreter tries again at its end and complains."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def _failed(path: Path, error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        reason = f"{_names([path.parent])} does not exist; create it first"
    if isinstance(error, PermissionError):
        reason = "permission denied; choose a place where you may write"
    return OutputError(f"cannot write {_names([path])}: {reason}")


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(safe(str(path)) for path in paths)
