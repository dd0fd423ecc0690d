"""Programs of XLA from files, whichever of the formats they are in."""

from __future__ import annotations

import re
from pathlib import Path

from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.hlo_text import read_text
from tfperf.formats.hlo.model import Module, ProgramError
from tfperf.formats.wire.schema import LARGEST_MESSAGE

_TEXT = re.compile(rb"\s*(?://|/\*|HloModule\b)")


def is_text(data: bytes) -> bool:
    """Tell whether bytes begin as the text of a program does."""
    return _TEXT.match(data) is not None


def read_program(path: Path) -> Module:
    """Read a program from a file: `HloProto`, `HloModuleProto`, `HloSnapshot`, or the text that XLA prints.

    Raises ProgramError if it cannot be read, or is none of these.
    """
    try:
        if path.stat().st_size > LARGEST_MESSAGE:
            raise ProgramError(f"{path} has over 2 GiB, more than a program of XLA can have")
        data = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return read_text(data.decode("utf-8", "replace")) if is_text(data) else read_proto(data)
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from error
