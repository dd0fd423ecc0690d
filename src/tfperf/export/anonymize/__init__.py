"""Copies of profiles whose names are replaced: structure and numbers stay, so that people can send them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from tfperf.base.errors import OutputError
from tfperf.base.files import cannot_write, new_files
from tfperf.base.folders import locked_place, new_folder
from tfperf.base.storage.remote_path import Location
from tfperf.base.units import counted
from tfperf.formats.wire.rewrite import rewrite
from tfperf.formats.wire.trace_file import SUFFIX, TraceFile
from tfperf.trace.host.python_frames import PACKAGES, is_file_of_package
from tfperf.trace.logdir import HostFile, Run, choose_run, find_runs

_NAMED_BY_TIME = re.compile(r"[\d_-]*")
_UNNAMED_RUN = "run"


class Copied(Struct, frozen=True):
    """What was written: the files, one for each host, and how many words of names were replaced."""

    files: tuple[Path, ...]
    replaced: int

    def sentences(self) -> list[str]:
        """Return what people must know about the copy."""
        folder = self.files[0].parent
        return [
            f"wrote {counted(len(self.files), 'host')} to {folder}, {counted(self.replaced, 'word')} of names replaced",
            "look at it before you send it: numbers, times and sizes are the original's",
        ]


def anonymize(path: Location, output: Path, *, run: str | Sequence[str] | None = None, force: bool = False) -> Copied:
    """Write a copy of a run into the logdir `output`, with the names of all hosts replaced alike.

    Everything is written, or nothing. Raises TraceNotFoundError, TraceFormatError, and OutputError where a file exists
    (but for `force`; a file that is read is never replaced).
    """
    chosen = choose_run(find_runs(path), run)
    name = chosen.name if _NAMED_BY_TIME.fullmatch(chosen.name) else _UNNAMED_RUN
    folder = output / "plugins" / "profile" / name
    targets = {folder / f"{host}{SUFFIX}": (host, file) for host, file in _hosts(chosen)}
    _refuse(list(targets), chosen, force=force)
    names = Names()
    with contextlib.ExitStack() as stack:
        outputs: Iterable[BinaryIO]
        if folder.is_dir():
            stack.enter_context(locked_place(folder, folder))
            outputs = stack.enter_context(new_files(list(targets)))
        else:
            made = stack.enter_context(new_folder(folder))
            outputs = (stack.enter_context((made / target.name).open("xb")) for target in targets)
        for (target, (host, source)), out in zip(targets.items(), outputs, strict=True):
            with TraceFile(source.path) as file:
                try:
                    rewrite(file, out, names.replace, names.number, host)
                    out.flush()
                except OSError as error:
                    raise cannot_write(target, error) from error
    return Copied(tuple(targets), names.count)


def _hosts(run: Run) -> Iterator[tuple[str, HostFile]]:
    """Iterate over the files with what their hosts are called now; they keep their order."""
    digits = len(str(len(run.files)))
    for number, file in enumerate(run.files, 1):
        yield f"host{number:0{digits}}", file


def _refuse(targets: list[Path], run: Run, *, force: bool) -> None:
    """Raise OutputError where a file would be replaced that must not be."""
    sources = {file.path.resolve() for file in run.files}
    if any(target.resolve() in sources for target in targets):
        raise OutputError(f"{targets[0].parent} holds the profile itself; name another folder")
    folder = targets[0].parent
    others = sorted(set(folder.glob(f"*{SUFFIX}")) - (set(targets) if force else set()))
    if others and force:
        raise OutputError(f"{others[0]} is a host of another profile; name another folder")
    if others:
        raise OutputError(f"{others[0]} exists; name another folder, or pass --force to replace it")


_WORD = re.compile(r"[^\W\d_]+")
_ADDRESS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_HEX = re.compile(
    r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,})(?![0-9A-Za-z])"
)
_PATH_OR_ID = re.compile(
    r"""(?<![^\s"'=(,;:<\[])(?P<path>(?:~|[A-Za-z]:)?[/\\][^\s"'<>]*)"""
    r"|(?:(?<=[^/]/)|(?i:(?<=thread )|(?<=process )|(?<=pid[ _:=-])|(?<=uid[ _:=-])|(?<=user[ _:=-])))(?P<id>\d{4,})\Z"
)
"""Paths of files, and the number at the end of a name such as `main/3116817`; names of ops do not begin with `/`."""
_PIECE_OF_PATH = re.compile(r"(?<![:0-9A-Za-z-])[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")
_OWNER = re.compile(r"(?i:(?<=/home/)|(?<=[/\\]users[/\\])|(?<=/run/user/))[^/\\]+")
"""Whose folder it is: replaced even if the name is a word of the list."""
_MOST_DIGITS = 3
"""More of them in one part of a path are an id; line numbers stand behind a colon."""
_FIRST_NUMBER = 900_000_001
"""No process or thread of a system has such a number."""
_FRAME = re.compile(r"(\$)(.+?\.py|<frozen [\w.]+>)(:\d+ .*)", re.DOTALL)
_FRAME_IN_C = re.compile(r"(\$)(\w+)([. ].*)", re.DOTALL)
_PARTS = (
    r"^(?:cuda|cu|hip|nccl|rccl)(?:(?:Stream|Event|Ctx|Device|Module|Library|Link)(?:Synchronize|Query)?)?(?=[A-Z]|$)"
    r"|^(?:Eager(?:Execute|LocalExecute|KernelExecute|CopyToDevice(?:AndAdd)?)|KernelAndDevice|Executor|FunctionRun)"
    r"|^(?:InstantiatedCapturedFunction|IteratorGetNext|ThreadpoolListener|PjitFunction|PjRt|Prefetch|ParallelMap)"
    r"|^(?:ParallelInterleave|LegacyParallelInterleave|MapAndBatch|ParallelBatch|ParseExample|Shuffle|DataService)"
    r"|bfloat|half|tensorop|gemm|gemv|matmul|wgrad|dgrad|fprop|conv|winograd|cudnn|cublas|nccl|attention|flash|fmha|mma"
    r"|cutlass|simt|int|complex|(?i:layer|block|tower)(?=s?$)|(?i:loss|entropy|error|divergence|metrics|rnn)$"
    r"|(?:Produce|Consume)$|^Xla|Compile|Executable|BlockHostUntil|BlockUntilReady|CopyTo|TransferTo|BufferFromHost"
    r"|ToLiteral|(?i:memcpy)|InfeedEnqueue|Dataset|Iterator|Collective|Service|ResourceApply|Grad|Backprop|PyFunc"
    r"|(?i:nchwtonhwc|nhwctonchw)"
)
"""What tfperf looks for inside words: families of kernels, scopes that a model repeats, hand-overs of tf.data."""
_KNOWN_PARTS = re.compile(f"({_PARTS})")
_CACHED = 1 << 16


@cache
def known_words() -> frozenset[str]:
    """Return the words that stay, apart from the names of Python's files and modules (`python_packages`)."""
    lines = Path(__file__).with_name("known_words.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def parts_of(word: str) -> list[str]:
    """Return a word that does not stay in parts: those with odd numbers stay."""
    return _KNOWN_PARTS.split(word)


class Names:
    """The replacements of one profile: the same word gets the same one everywhere."""

    def __init__(self) -> None:
        self._known = known_words()
        self._words: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._numbers: dict[str, str] = {}
        self.replace = lru_cache(_CACHED)(self._replace)

    @property
    def count(self) -> int:
        """Return how many words were replaced."""
        return len(self._words)

    def _replace(self, text: str) -> str:
        """Return the text with all words replaced that are not in the list, and network addresses."""
        kept = ""
        if text.startswith("$"):
            kept, text = _frame(text)
        text = _ADDRESS.sub(self._address, text)
        text = _HEX.sub(lambda match: self._numbered(match[0]), text)
        text = _PATH_OR_ID.sub(self._path_or_id, text)
        return kept + _WORD.sub(lambda match: self._word(match[0]), text)

    def number(self, number: str) -> str:
        """Return the nine-digit number that replaces an id; the same id always gets the same one."""
        return self._numbers.setdefault(number, str(_FIRST_NUMBER + len(self._numbers)))

    def _path_or_id(self, match: re.Match[str]) -> str:
        if match["path"] is None:
            return self.number(match["id"])
        path = _OWNER.sub(lambda owner: self._numbered(owner[0]), match["path"])
        return _PIECE_OF_PATH.sub(lambda piece: self._piece(piece[0]), path)

    def _piece(self, piece: str) -> str:
        if sum(map(str.isdigit, piece)) <= _MOST_DIGITS:
            return piece
        return self.number(piece) if piece.isdigit() else self._numbered(piece)

    def _word(self, word: str) -> str:
        if word in self._known or (len(word) == 1 and word.isascii()):
            return word
        pieces = parts_of(word)
        return "".join(piece if odd % 2 else self._numbered(piece) for odd, piece in enumerate(pieces))

    def _numbered(self, piece: str) -> str:
        """Return what stands for a piece: a letter, a number and a letter, so that digits around it change nothing."""
        if not piece:
            return ""
        if piece not in self._words:
            first, last = ("W" if letter.isupper() else "w" for letter in (piece[0], piece[-1]))
            # Names with letters of other scripts are no names of ops, and stay none.
            self._words[piece] = f"{first}{len(self._words) + 1}{last if piece.isascii() else 'ø'}"
        return self._words[piece]

    def _address(self, match: re.Match[str]) -> str:
        number = self._addresses.setdefault(match[0], str(len(self._addresses) + 1))
        return f"0.0.{int(number) >> 8}.{int(number) & 255}"


def _frame(text: str) -> tuple[str, str]:
    """Return what stays of a Python frame, and the rest: files and modules that everybody has stay."""
    in_file = _FRAME.fullmatch(text)
    if in_file and is_file_of_package(in_file[2]):
        return in_file[1] + in_file[2], in_file[3]
    in_c = _FRAME_IN_C.fullmatch(text)
    if in_c and (in_c[2] in sys.stdlib_module_names or in_c[2] in PACKAGES):
        return in_c[1] + in_c[2], in_c[3]
    return "", text
