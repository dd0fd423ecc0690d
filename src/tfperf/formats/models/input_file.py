"""A file that tfprof reads: whole, with errors that say what it should be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from msgspec import Struct

from tfperf.base.errors import TfperfError
from tfperf.base.process import available_bytes
from tfperf.base.units import format_bytes, without_middle
from tfperf.formats.wire.trace_file import described, open_regular

_LARGE = 1 << 20
_HEAD = 1 << 16
_DECODED = 4
"""Memory that a file takes while it is decoded, as a multiple of its bytes."""


class TfprofInputError(TfperfError):
    """What was given to tfprof cannot be used: a file of another kind, a damaged one, a step that is not there."""


class InputFile:
    """The bytes of a file, and what it should be: `kind` names the message.

    Without a file, they are given as `data`, and `path` is what errors call them.
    """

    def __init__(self, path: Path, kind: str, data: bytes | None = None) -> None:
        self.path, self.kind = path, kind
        self.data = _read(path) if data is None else data
        self._given = data

    def source(self) -> Source:
        """Return how to open it again, without the bytes if they are in a file."""
        return Source(self.path, self.kind, self._given)

    def damaged(self, position: int, what: str) -> TfprofInputError:
        """Return the error for bytes that are not what they should be."""
        kind = self._kind()
        if kind and self.kind not in kind:
            return TfprofInputError(f"{self.path} is {kind}, not {self._a_kind}")
        return TfprofInputError(f"{self.path} is damaged, or not {self._a_kind}: {what}")

    def is_none_of_others(self, *accepted: str) -> None:
        """Raise the error for a file of another kind, whose fields might pass for those of this one.

        `accepted` are words in the names of what else can be read in its place.
        """
        kind = self._kind()
        if kind and not any(word in kind for word in (self.kind, *accepted)):
            raise TfprofInputError(f"{self.path} is {kind}, not {self._a_kind}")

    @property
    def _a_kind(self) -> str:
        return f"{'an' if self.kind[:1] in 'AEIOU' else 'a'} {self.kind}"

    def _kind(self) -> str:
        """Return what the file is, if its first bytes tell surely."""
        found = described(self.data[:_HEAD]) if self.data else ""
        return found.partition(";")[0].removesuffix(", not an XSpace")

    def named_once(self, names: list[str]) -> None:
        """Raise the error for nodes that have the same name: nothing could tell them apart."""
        if len({*names}) < len(names):
            twice, _ = Counter(names).most_common(1)[0]
            raise self.refused(
                f"has two nodes of the name {without_middle(twice, 60)!r}: it is damaged, or two graphs in one file"
            )

    def refused(self, why: str) -> TfprofInputError:
        """Return the error for a file that parses and still cannot be used."""
        return TfprofInputError(f"{self.path} {why}")


class Source(Struct, frozen=True):
    """Where an `InputFile` comes from; what is read of it only now and then is read from there when somebody asks."""

    path: Path
    kind: str
    data: bytes | None = None

    def open(self) -> InputFile:
        """Return it, read again; raises TfprofInputError if it is no longer there."""
        return InputFile(self.path, self.kind, self.data)


def _read(path: Path) -> bytes:
    """Return all that is in a file; raises TfprofInputError."""
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            if size > _LARGE and (free := available_bytes()) < _DECODED * size:
                needs = f"{format_bytes(_DECODED * size)} of memory, {format_bytes(free)} is free"
                raise TfprofInputError(f"{path} is too large for this machine: it needs {needs}")
            file.seek(0)
            return file.read()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise TfprofInputError(f"cannot open {path}: {reason}; check the path and its permissions") from error
