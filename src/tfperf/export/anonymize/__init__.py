"""Anonymous copies of profiles: names are replaced, structure and numbers are kept.

A copy is written plane by plane and piece by piece. Only declared fields are kept, because any other field could
contain a name. Byte values are kept only if they are core numbers, or compiled programs, whose texts are replaced too.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.analysis.load import unfinished_hosts
from tfperf.analysis.parallel.engine import Engine
from tfperf.analysis.parallel.outcomes import Analyze, Told, jobs_for
from tfperf.analysis.registry import missing_text
from tfperf.base.errors import OutputError, TraceFormatError
from tfperf.base.files import cannot_write, locked_place, new_files, new_folder
from tfperf.base.storage.remote_path import Location
from tfperf.base.units import counted
from tfperf.formats.hlo.messages import PROGRAMS
from tfperf.formats.wire.encode import one_varint
from tfperf.formats.wire.planes import BATCH_BYTES, check_planes, line_groups, line_pieces
from tfperf.formats.wire.schema import fields_of, message_class
from tfperf.formats.wire.trace_file import SUFFIX, PlaneSpan, Span, TraceFile, walk, walk_plane
from tfperf.trace.host.python_frames import PACKAGES, is_file_of_package
from tfperf.trace.logdir import Run, choose_hosts, choose_run, find_runs

if TYPE_CHECKING:
    from tfperf.analysis.parallel.over_hosts import Workers

_NAMED_BY_TIME = re.compile(r"[\d_-]*")
_UNNAMED_RUN = "run"


class Copied(Struct, frozen=True):
    """The files of a copy, one per host, the number of replaced words, and a sentence on missing hosts, if any."""

    files: tuple[Path, ...]
    replaced: int
    missing_text: str = ""

    def sentences(self) -> list[str]:
        """Return the user's notes on the copy."""
        folder = self.files[0].parent
        return [
            f"wrote {counted(len(self.files), 'host')} to {folder}; replaced {counted(self.replaced, 'word')} in names",
            "check it before you share it: numbers, times and sizes are unchanged",
        ]


_FEWEST_JOBS = 3
"""With fewer processes, reading each file twice takes longer than one process that reads it once."""


def anonymize(  # noqa: PLR0913  (every parameter is an option that users name)
    path: Location,
    output: Path,
    *,
    run: str | Sequence[str] | None = None,
    hosts: Sequence[str] = (),
    host_patterns: Sequence[str] = (),
    jobs: int | None = None,
    strict: bool = False,
    force: bool = False,
) -> Copied:
    """Write a copy of a run into the logdir `output`, with consistent replacements across hosts.

    `run`, `hosts`, `host_patterns` and `jobs` are those of `tfperf.load`; the copy is the same for any number of jobs.
    Hosts with an incomplete file are omitted, or an error if `strict`. All files are written, or none. Raises
    TraceNotFoundError, TraceFormatError, and OutputError if a file exists (unless `force`; input files are never
    overwritten).
    """
    chosen = choose_hosts(choose_run(find_runs(path), run), tuple(hosts), tuple(host_patterns))
    missing = missing_text(len(chosen.files), unfinished_hosts(chosen))
    if missing and strict:
        raise TraceFormatError(missing)
    name = chosen.name if _NAMED_BY_TIME.fullmatch(chosen.name) else _UNNAMED_RUN
    folder = output / "plugins" / "profile" / name
    digits = len(str(len(chosen.files)))
    new_hosts = [f"host{number:0{digits}}" for number in range(1, len(chosen.files) + 1)]
    targets = [folder / f"{host}{SUFFIX}" for host in new_hosts]
    _refuse(targets, chosen, force=force)
    names = Names()
    if jobs is None and jobs_for(chosen.files) < _FEWEST_JOBS:
        jobs = 1
    with contextlib.ExitStack() as stack:
        if folder.is_dir():
            stack.enter_context(locked_place(folder, folder))
            places = [Path(file.name) for file in stack.enter_context(new_files(targets))]
        else:
            made = stack.enter_context(new_folder(folder))
            places = [made / target.name for target in targets]
        columns = zip(new_hosts, chosen.files, places, targets, strict=True)
        copies = [HostCopy(host, file.path, file.size_bytes, place, target) for host, file, place, target in columns]
        with Engine(jobs).workers(chosen.files) as workers:
            if workers is None:
                for copy in copies:
                    write_copy(names, copy)
            else:
                # Words have numbers in the order of hosts, so all are known before the first file is written.
                for text, is_number in chain.from_iterable(_on(workers, texts_of, copies)):
                    names.number(text) if is_number else names.replace(text)
                _on(workers, partial(write_copy, names), copies)
    return Copied(tuple(targets), names.count, missing)


class HostCopy(Struct, frozen=True):
    """The copy of a host: its new name, its file, where the copy is written, and where it will be."""

    host: str
    path: Location
    size_bytes: int | None
    place: Path
    target: Path


def texts_of(copy: HostCopy) -> list[tuple[str, bool]]:
    """Return the texts of a host that need replacements of their own, and numbers (True), in order of appearance."""
    names, found = Names(), dict[tuple[str, bool], None]()

    @lru_cache(_CACHED)
    def rename(text: str) -> str:
        before = len(names)
        replaced = names.replace(text)
        # In a path, a replacement may be part of another one.
        if len(names) > before or "/" in text or "\\" in text:
            found[text, False] = None
        return replaced

    def renumber(number: str) -> str:
        found[number, True] = None
        return names.number(number)

    with TraceFile(copy.path) as file, Path(os.devnull).open("wb") as out:
        rewrite(file, out, rename, renumber, copy.host)
    return [*found]


def write_copy(names: Names, copy: HostCopy) -> None:
    """Write the copy of a host; new words are added to `names`."""
    with TraceFile(copy.path) as file:
        try:
            with copy.place.open("wb") as out:
                rewrite(file, out, names.replace, names.number, copy.host)
        except OSError as error:
            raise cannot_write(copy.target, error) from error


def _on(workers: Workers, work: Analyze, copies: Sequence[HostCopy]) -> list[Any]:
    from tfperf.analysis.parallel.over_hosts import over_hosts

    outcomes = over_hosts(work, copies, workers, Told())
    if (error := next((each.error for each in outcomes if each.error is not None), None)) is not None:
        raise error
    return [each.value for each in outcomes]


def _refuse(targets: list[Path], run: Run, *, force: bool) -> None:
    sources = {file.path.resolve() for file in run.files}
    if any(target.resolve() in sources for target in targets):
        raise OutputError(f"{targets[0].parent} is the folder of the profile itself; choose another folder")
    folder = targets[0].parent
    others = sorted(set(folder.glob(f"*{SUFFIX}")) - (set(targets) if force else set()))
    if others and force:
        raise OutputError(f"{others[0]} is a host of another profile; choose another folder")
    if others:
        raise OutputError(f"{others[0]} exists; choose another folder, or pass --force to replace it")


Rename = Callable[[str], str]
Renumber = Callable[[str], str]
_IN_MEMORY = 1 << 24
_SHORT = 5  # names of hosts up to this length may be in other texts by chance
_LEAST_ID = 1000  # lines with smaller ids are not threads of the system
_NUMBERS = (b"process_id", b"thread_id", b"user_id", b"pid", b"tid", b"uid")
_PLANE, _ERROR, _WARNING, _HOSTNAME, _LINE = b"\x0a", b"\x12", b"\x1a", b"\x22", b"\x1a"


def rewrite(file: TraceFile, out: BinaryIO, rename: Rename, renumber: Renumber, host: str) -> None:
    """Write the trace with texts replaced by `rename`; host names become `host`, in other texts too.

    `renumber` returns the digits that replace a process or thread number, which occurs in texts too. Raises
    TraceFormatError if the file is not a complete XSpace.
    """
    space = walk(file)
    # Host names without digits are covered by word replacement.
    hosts = [re.escape(name) for name in space.hostnames if len(name) > _SHORT and re.search(r"\d", name)]
    if hosts:
        rename = _hiding(re.compile("|".join(hosts)), host, rename)
    names = []
    for span in space.planes:
        with _nested(out, _PLANE) as body:
            names.append(_plane(file, span, body, rename, renumber))
    check_planes(file, space, names)
    for tag, texts in ((_ERROR, space.errors), (_WARNING, space.warnings)):
        for text in texts:
            _write(out, tag, rename(text).encode())
    for number, _ in enumerate(space.hostnames):
        _write(out, _HOSTNAME, (host if not number else f"{host}-{number + 1}").encode())
    file.check_unchanged()


@contextmanager
def _nested(out: BinaryIO, tag: bytes) -> Iterator[BinaryIO]:
    """Yield a file for a nested message, whose length precedes it but is known only at the end."""
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as body:
        yield body  # type: ignore[misc]
        out.write(tag + one_varint(body.tell()))
        body.seek(0)
        shutil.copyfileobj(body, out)


def _write(out: BinaryIO, tag: bytes, data: bytes) -> None:
    out.write(tag + one_varint(len(data)) + data)


def _hiding(hosts: re.Pattern[str], host: str, rename: Rename) -> Rename:
    return lambda text: rename(hosts.sub(host, text))


def _plane(file: TraceFile, span: PlaneSpan, out: BinaryIO, rename: Rename, renumber: Renumber) -> str:
    """Write a plane with its fields in numeric order, as readers expect; return its original name."""
    span = walk_plane(file, span.start, span.stop, every_field=True)
    plane = _parsed(file, "XPlane", file.read_all(span.header), span.start)
    name: str = plane.name.decode("utf-8", "replace")
    out.write(message_class("XPlane")(id=plane.id, name=_renamed(plane.name, rename)).SerializeToString())
    for group in line_groups(span.lines, BATCH_BYTES):
        if isinstance(group, Span):
            with _nested(out, _LINE) as body:
                for position, payload in line_pieces(file, group, BATCH_BYTES):
                    line = _parsed(file, "XLine", payload, position)
                    _rename_lines([line], rename, renumber, may_have_texts=_has_texts("NumericLine", payload))
                    body.write(line.SerializeToString())
        else:
            payload = file.read(*group)
            lines = _parsed(file, "XPlane", payload, group[0])
            _rename_lines(lines.lines, rename, renumber, may_have_texts=_has_texts("NumericLines", payload))
            out.write(lines.SerializeToString())
    out.write(_header(plane, rename, renumber))
    return name


def _parsed(file: TraceFile, message: str, payload: bytes, position: int) -> Any:
    parsed = message_class(message)()
    try:
        parsed.ParseFromString(payload)
    except DecodeError as error:
        raise file.damaged(position, f"not a valid {message}") from error
    parsed.DiscardUnknownFields()
    return parsed


def _has_texts(message: str, payload: bytes) -> bool:
    """Return whether serialized lines may have events with non-numeric stats, without decoding each event.

    The message declares only numeric fields; if dropping the others makes it shorter, there may be texts.
    """
    lines = message_class(message)()
    lines.ParseFromString(payload)
    size = lines.ByteSize()
    lines.DiscardUnknownFields()
    return bool(lines.ByteSize() < size)


def _header(plane: Any, rename: Rename, renumber: Renumber) -> bytes:
    """Return the names and metadata of a plane, renamed, without its lines, its id and its own name."""
    rewrites = {
        entry.key: _OF_BYTES[entry.value.name] for entry in plane.stat_metadata if entry.value.name in _OF_BYTES
    }
    numbers = {entry.key for entry in plane.stat_metadata if entry.value.name in _NUMBERS}
    plane.ClearField("id")
    plane.ClearField("name")
    for event in (entry.value for entry in plane.event_metadata):
        event.name, event.display_name = _renamed(event.name, rename), _renamed(event.display_name, rename)
        event.ClearField("metadata")
        _rename_stats(event.stats, rename, rewrites)
    for stat in (entry.value for entry in plane.stat_metadata):
        stat.name = _renamed(stat.name, rename)
        stat.ClearField("description")
    _rename_stats(plane.stats, rename, rewrites)
    for stat in plane.stats:
        for arm in ("int64_value", "uint64_value"):
            if stat.metadata_id in numbers and (number := getattr(stat, arm)) > 0:
                setattr(stat, arm, int(renumber(str(number))))
    data: bytes = plane.SerializeToString()
    return data


def _rename_lines(lines: Sequence[Any], rename: Rename, renumber: Renumber, *, may_have_texts: bool) -> None:
    for line in lines:
        if line.id >= _LEAST_ID and re.search(rb"[/ ]%d\Z" % line.id, line.name or line.display_name):
            line.id = int(renumber(str(line.id)))
        line.name, line.display_name = _renamed(line.name, rename), _renamed(line.display_name, rename)
        if may_have_texts:  # otherwise events need no changes
            for event in line.events:
                _rename_stats(event.stats, rename, {})


def _rename_stats(
    stats: Sequence[Any], rename: Rename, rewrites: Mapping[int, Callable[[bytes, Rename], bytes]]
) -> None:
    """Replace texts; bytes are kept only if `rewrites` has a function for the metadata id of their stat."""
    for stat in stats:
        if stat.str_value:
            stat.str_value = _renamed(stat.str_value, rename)
        elif stat.bytes_value:
            rewrite = rewrites.get(stat.metadata_id)
            stat.bytes_value = b"" if rewrite is None else rewrite(stat.bytes_value, rename)


def _program(serialized: bytes, rename: Rename) -> bytes:
    """Return a compiled program with its texts replaced; empty if it is not a program."""
    program = PROGRAMS.message_class("HloProto")()
    try:
        program.ParseFromString(serialized)
    except DecodeError:
        return b""
    program.DiscardUnknownFields()
    _rename_message(program, "HloProto", rename)
    data: bytes = program.SerializeToString()
    return data


def _numeric(message: str) -> Callable[[bytes, Rename], bytes]:
    """Return a function that keeps the declared fields of a message, all of which are numbers."""

    def rewritten(serialized: bytes, _rename: Rename) -> bytes:
        made = message_class(message)()
        try:
            made.ParseFromString(serialized)
        except DecodeError:
            return b""
        made.DiscardUnknownFields()
        data: bytes = made.SerializeToString()
        return data

    return rewritten


_OF_BYTES: Mapping[bytes, Callable[[bytes, Rename], bytes]] = {
    b"Hlo Proto": _program,
    b"HLO Proto": _program,
    b"core_details": _numeric("CoreDetails"),
    b"memory_access_breakdown": _numeric("MemoryAccesses"),
}


def _rename_message(message: Any, kind: str, rename: Rename) -> None:
    """Replace all texts of a message, recursively."""
    for name, _, declared, _ in fields_of(PROGRAMS.messages[kind]):
        field = declared.removeprefix("[]")
        is_list = field != declared
        if field == "bytes":
            values = getattr(message, name)
            if is_list:
                values[:] = [_renamed(value, rename) for value in values]
            elif values:
                setattr(message, name, _renamed(values, rename))
        elif field[0].isupper() and (is_list or message.HasField(name)):
            value = getattr(message, name)
            for each in value if is_list else (value,):
                _rename_message(each, field, rename)


def _renamed(text: bytes, rename: Rename) -> bytes:
    """Return the replaced text; invalid UTF-8 becomes U+FFFD, as when tfperf reads it."""
    return rename(text.decode("utf-8", "replace")).encode("utf-8", "replace")


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
"""File paths, and the number at the end of a name such as `main/3116817`; op names do not begin with `/`."""
_PIECE_OF_PATH = re.compile(r"(?<![:0-9A-Za-z-])[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")
_OWNER = re.compile(r"(?i:(?<=/home/)|(?<=[/\\]users[/\\])|(?<=/run/user/))[^/\\]+")
"""The user name in a path: replaced even if it is a known word."""
_MOST_DIGITS = 3  # a part of a path with more digits is an id; line numbers follow a colon
_FIRST_NUMBER = 900_000_001  # larger than any process or thread number
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
"""Parts of words that tfperf matches: kernel families, scopes that a model repeats, transfers of tf.data."""
_KNOWN_PARTS = re.compile(f"({_PARTS})")
_CACHED = 1 << 16


@cache
def known_words() -> frozenset[str]:
    """Return the words that are kept, without the names of Python's files and modules (`python_packages`)."""
    lines = Path(__file__).with_name("known_words.txt").read_text(encoding="utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def parts_of(word: str) -> list[str]:
    """Split a word that is not kept into parts; parts at odd indices are kept."""
    return _KNOWN_PARTS.split(word)


class Names:
    """The replacements of one profile; equal words get the same replacement everywhere."""

    def __init__(self, *known: dict[str, str]) -> None:
        self._known = known_words()
        self._words, self._addresses, self._numbers = known or ({}, {}, {})
        self.replace = lru_cache(_CACHED)(self._replace)

    def __reduce__(self) -> tuple[type[Names], tuple[dict[str, str], ...]]:
        return Names, (self._words, self._addresses, self._numbers)

    def __len__(self) -> int:
        """Return the number of all replacements."""
        return len(self._words) + len(self._addresses) + len(self._numbers)

    @property
    def count(self) -> int:
        """Return the number of replaced words."""
        return len(self._words)

    def _replace(self, text: str) -> str:
        """Return the text with unknown words and network addresses replaced."""
        kept = ""
        if text.startswith("$"):
            kept, text = _frame(text)
        text = _ADDRESS.sub(self._address, text)
        text = _HEX.sub(lambda match: self._numbered(match[0]), text)
        text = _PATH_OR_ID.sub(self._path_or_id, text)
        return kept + _WORD.sub(lambda match: self._word(match[0]), text)

    def number(self, number: str) -> str:
        """Return the nine-digit replacement of an id; equal ids get the same one."""
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
        """Return the replacement of a piece: letter, number, letter, so that adjacent digits do not affect parsing."""
        if not piece:
            return ""
        if piece not in self._words:
            first, last = ("W" if letter.isupper() else "w" for letter in (piece[0], piece[-1]))
            # Names with non-ASCII letters are not op names, and must not become ones.
            self._words[piece] = f"{first}{len(self._words) + 1}{last if piece.isascii() else 'ø'}"
        return self._words[piece]

    def _address(self, match: re.Match[str]) -> str:
        number = self._addresses.setdefault(match[0], str(len(self._addresses) + 1))
        return f"0.0.{int(number) >> 8}.{int(number) & 255}"


def _frame(text: str) -> tuple[str, str]:
    """Return the kept part of a Python frame, and the rest; files and modules of Python and packages are kept."""
    in_file = _FRAME.fullmatch(text)
    if in_file and is_file_of_package(in_file[2]):
        return in_file[1] + in_file[2], in_file[3]
    in_c = _FRAME_IN_C.fullmatch(text)
    if in_c and (in_c[2] in sys.stdlib_module_names or in_c[2] in PACKAGES):
        return in_c[1] + in_c[2], in_c[3]
    return "", text
