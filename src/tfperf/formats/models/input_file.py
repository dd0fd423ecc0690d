"""An input file of tfprof, read as a whole, with errors that name its expected type."""

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
_DECODED = 4  # memory for decoding a file, as a multiple of its size


class TfprofInputError(TfperfError):
    """Unusable input of tfprof: a file of another type, a damaged file, or a missing step."""


class InputFile:
    """The bytes of a file of type `kind`; without a file, they are `data`, and `path` names them in errors."""

    def __init__(self, path: Path, kind: str, data: bytes | None = None) -> None:
        self.path, self.kind = path, kind
        self.data = _read(path) if data is None else data
        self._given = data

    def source(self) -> Source:
        """Return the source to open it again, without the bytes if they are in a file."""
        return Source(self.path, self.kind, self._given)

    def damaged(self, position: int, what: str) -> TfprofInputError:
        """Return the error for damaged bytes at a position."""
        kind = self._kind()
        if kind and self.kind not in kind:
            return TfprofInputError(f"{self.path} is {kind}, not {self._a_kind}")
        return TfprofInputError(f"{self.path} is damaged, or not {self._a_kind}: {what}")

    def is_none_of_others(self, *accepted: str) -> None:
        """Raise the error for a file of another type, whose fields could be mistaken for this type's.

        `accepted` are words in the names of other types that are accepted too.
        """
        kind = self._kind()
        if kind and not any(word in kind for word in (self.kind, *accepted)):
            raise TfprofInputError(f"{self.path} is {kind}, not {self._a_kind}")

    @property
    def _a_kind(self) -> str:
        return f"{'an' if self.kind[:1] in 'AEIOU' else 'a'} {self.kind}"

    def _kind(self) -> str:
        """Return the type of the file, if its first bytes identify it."""
        found = described(self.data[:_HEAD]) if self.data else ""
        return found.partition(";")[0].removesuffix(", not an XSpace")

    def named_once(self, names: list[str]) -> None:
        """Raise the error for nodes with the same name, which would be indistinguishable."""
        if len({*names}) < len(names):
            twice, _ = Counter(names).most_common(1)[0]
            raise self.refused(
                f"has two nodes named {without_middle(twice, 60)!r}: it is damaged, or contains two graphs"
            )

    def refused(self, why: str) -> TfprofInputError:
        """Return the error for a file that can be parsed but not used."""
        return TfprofInputError(f"{self.path} {why}")


class Source(Struct, frozen=True):
    """Source of an `InputFile`, to read rarely needed data on demand."""

    path: Path
    kind: str
    data: bytes | None = None

    def open(self) -> InputFile:
        """Read the file again; raises TfprofInputError if it no longer exists."""
        return InputFile(self.path, self.kind, self.data)


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            if size > _LARGE and (free := available_bytes()) < _DECODED * size:
                needs = f"{format_bytes(_DECODED * size)} of memory, but only {format_bytes(free)} is free"
                raise TfprofInputError(f"{path} is too large for this machine: it requires {needs}")
            file.seek(0)
            return file.read()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise TfprofInputError(f"cannot open {path}: {reason}; check the path and its permissions") from error
