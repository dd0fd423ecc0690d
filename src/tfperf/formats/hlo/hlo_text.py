"""Read XLA programs from files: text here, protobuf in `hlo_proto.py`. Errors in text include the line number."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.model import (
    BITS,
    MOST_DIMS,
    MOST_LEVELS,
    UNKNOWN,
    ConvolutionDims,
    DotDims,
    FoundComputation,
    FoundInstruction,
    Frame,
    Frames,
    Module,
    OpMetadata,
    ProductPrecision,
    ProgramError,
    ReplicaGroups,
    Shape,
    WindowDim,
    link,
)
from tfperf.formats.wire.schema import LARGEST_MESSAGE

_TEXT = re.compile(rb"\s*(?://|/\*|HloModule\b)")


def is_text(data: bytes) -> bool:
    """Return whether bytes start like the text of a program."""
    return _TEXT.match(data) is not None


def read_program(path: Path) -> Module:
    """Read a program from a file: `HloProto`, `HloModuleProto`, `HloSnapshot` or XLA's text; raise ProgramError."""
    try:
        if path.stat().st_size > LARGEST_MESSAGE:
            raise ProgramError(f"{path} has over 2 GiB, the maximum size of an XLA program")
        data = path.read_bytes()
    except OSError as error:
        raise ProgramError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return read_text(data.decode("utf-8", "replace")) if is_text(data) else read_proto(data)
    except ProgramError as error:
        raise ProgramError(f"{path}: {error}") from error


STRING = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
"""A quoted string. The pattern must not backtrack, because texts may be megabytes long."""
_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([^\]\n]*)\](?:\{([^{}\n]*)\})?")
_LAYOUT = re.compile(r"([\d,\s]*)(?::((?:[A-Z](?:\([^()]*\))+)*))?")
_LAYOUT_PART = re.compile(r"([A-Z])((?:\([^()]*\))+)")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?\d+")
_LONGEST_NUMBER = 20
_SLICE = re.compile(r"\[\s*(\d{1,19})\s*:\s*(\d{1,19})\s*(?::\s*(\d{1,19})\s*)?\]")
_PAIR = re.compile(rf"(?<![\w-])([\w-]+)=({STRING}|\{{[^{{}}]*\}}|[^\s{{}},]+)")
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_LABELS = re.compile(r"([\dbf?]+)_([\dio?]+)->([\dbf?]+)")
_ANY_SIZE = -(1 << 63)
"""XLA's value for `*` in a tile, which joins two dimensions."""


class Shapes:
    """Parses shapes; equal array texts return the same object."""

    def __init__(self) -> None:
        self._array = cache(_array)

    def at(self, text: str, start: int) -> tuple[Shape, int]:
        """Return the shape that begins at `start`, and its end."""
        open_parts: list[list[Shape]] = []
        while True:
            start = _SPACE.match(text, start).end()  # type: ignore[union-attr]
            if text.startswith("(", start):
                if len(open_parts) > MOST_LEVELS:
                    raise ValueError("a shape is nested too deeply")
                open_parts.append([])
                start += 1
                continue
            if open_parts and text.startswith(")", start):
                shape, start = Shape("tuple", parts=tuple(open_parts.pop())), start + 1
            else:
                found = _ARRAY.match(text, start)
                if not found:
                    raise ValueError("invalid syntax")
                shape, start = self._array(*found.groups()), found.end()
            if not open_parts:
                return shape, start
            open_parts[-1].append(shape)
            start = _SPACE.match(text, start).end()  # type: ignore[union-attr]
            start += text.startswith(",", start)


def _array(kind: str, dims: str, layout: str | None) -> Shape:
    if kind not in BITS:
        raise ValueError(f"the element type {kind[:40]!r} is unknown")
    sizes, dynamic = [], []
    for dim in filter(None, (part.strip() for part in dims.split(","))):
        dynamic.append(dim.startswith("<="))
        size = dim.removeprefix("<=")
        sizes.append(UNKNOWN if size == "?" else _size(size))
    if len(sizes) > MOST_DIMS:
        raise ValueError(f"a shape has {len(sizes)} dimensions")
    bounds = tuple(dynamic) if any(dynamic) and UNKNOWN not in sizes else ()
    parsed = _LAYOUT.fullmatch(layout or "")
    if not parsed:
        raise ValueError("expected a layout such as {1,0:T(8,128)}")
    parts = dict(_LAYOUT_PART.findall(parsed[2] or ""))
    tiles = tuple(
        tuple(_ANY_SIZE if size.strip() == "*" else _size(size.strip()) for size in tile.split(","))
        for tile in re.findall(r"\(([^()]*)\)", parts.get("T", ""))
    )
    bits, space = (_size(parts[key].strip("()")) if key in parts else 0 for key in "ES")
    if bits > 128:
        raise ValueError(f"an element of a shape takes {bits} bits")
    return Shape(kind, tuple(sizes), numbers(parsed[1]), tiles, space, bits, (), bounds)


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text[:40]!r} is not a size")
    return int(text)


def numbers(text: str) -> tuple[int, ...]:
    """Return all whole numbers in a text such as `{0,1}`."""
    found = _NUMBER.findall(text)
    if found and len(max(found, key=len)) > _LONGEST_NUMBER:
        raise ValueError("a number is too long")
    return tuple(map(int, found))


def number(text: str) -> int:
    """Return the only number of a text."""
    (found,) = numbers(text)
    return found


def plain(text: str) -> str:
    """Return a text without its quotes, if it has any."""
    if not text.startswith('"'):
        return text
    inside = text[1:-1]
    return _ESCAPE.sub(
        lambda found: chr(int(found[1], 8)) if len(found[1]) == 3 else _ESCAPED.get(found[1], found[1]), inside
    )


def pairs(text: str) -> dict[str, str]:
    """Return the pairs in `{size=3x3 pad=1_1x1_1}`, without quotes."""
    return {key: plain(value) for key, value in _PAIR.findall(text)}


def paddings(text: str) -> tuple[tuple[int, int, int], ...]:
    """Return low, high and interior padding of each dimension: `0_0x0_24_1`."""
    found = []
    for dim in text.split("x"):
        low, high, *inner = map(int, dim.split("_"))
        found.append((low, high, inner[0] if inner else 0))
    return tuple(found)


def window(text: str) -> tuple[WindowDim, ...]:
    """Parse `{size=3x3 stride=2x2 pad=1_1x1_1 lhs_dilate=2x2 rhs_dilate=2x2 rhs_reversal=1x1}`."""
    found = pairs(text)
    sizes = [_size(size) for size in found.get("size", "").split("x") if size]

    def column(key: str, usual: str) -> list[str]:
        values = found[key].split("x") if key in found else [usual] * len(sizes)
        if len(values) != len(sizes):
            raise ValueError(f"{key} of a window has a different number of dimensions than its size")
        return values

    padding = [tuple(map(int, each.split("_"))) for each in column("pad", "0_0")]
    if any(len(each) != 2 for each in padding):
        raise ValueError("expected the padding of a window such as 1_1x1_1")
    strides, dilations, bases = (column(key, "1") for key in ("stride", "rhs_dilate", "lhs_dilate"))
    return tuple(
        WindowDim(size, _size(stride), low, high, _size(dilation), _size(base), backwards == "1")
        for size, stride, (low, high), dilation, base, backwards in zip(
            sizes, strides, padding, dilations, bases, column("rhs_reversal", "0"), strict=True
        )
    )


def convolution(text: str) -> ConvolutionDims:
    """Parse dimension numbers: `b01f_01io->b01f`."""
    found = _LABELS.fullmatch(text)
    if not found:
        raise ValueError("expected labels of dimensions such as b01f_01io->b01f")
    dims: list[Any] = []
    for labels, one, other in zip(found.groups(), "bib", "fof", strict=True):
        dims += labels.index(one), labels.index(other)
        spatial = sorted((label, at) for at, label in enumerate(labels) if label.isdigit())
        if [label for label, _ in spatial] != [str(at) for at in range(len(spatial))]:
            raise ValueError("spatial dimensions must be labeled 0, 1, 2, ..., each once")
        dims.append(tuple(at for _, at in spatial))
    return ConvolutionDims(*dims)


_IOTA_GROUPS = re.compile(r"\[(\d{1,9}),(\d{1,9})\]<=")
_GROUP = re.compile(r"\{([\d,\s]+)\}")


def replica_groups(text: str) -> ReplicaGroups:
    """Return the number and the size of groups in `{{0,1},{2,3}}` or `[2,2]<=[4]`."""
    iota = _IOTA_GROUPS.match(text)
    if iota is not None:
        return ReplicaGroups(int(iota[1]), int(iota[2]))
    sizes = [group.count(",") + 1 for group in _GROUP.findall(text)]
    return ReplicaGroups(len(sizes), sizes[0] if len(set(sizes)) == 1 else 0)


Convert = Callable[[str], Any]
FIELDS: dict[str, tuple[str, Convert]] = {
    "dimensions": ("dimensions", numbers),
    "iota_dimension": ("dimensions", numbers),
    "window": ("window", window),
    "dim_labels": ("convolution", convolution),
    "feature_group_count": ("feature_groups", number),
    "batch_group_count": ("batch_groups", number),
    "slice": (
        "slices",
        lambda text: tuple((int(start), int(limit), int(stride or 1)) for start, limit, stride in _SLICE.findall(text)),
    ),
    "padding": ("padding", paddings),
    "dynamic_slice_sizes": ("slice_sizes", numbers),
    "slice_sizes": ("slice_sizes", numbers),
    "fft_length": ("fft_length", numbers),
    "index": ("tuple_index", number),
    "direction": ("direction", plain),
    "distribution": ("distribution", lambda text: text.removeprefix("rng_")),
    "kind": ("fusion_kind", plain),
    "custom_call_target": ("target", plain),
    "backend_config": ("backend_config", plain),
    "replica_groups": ("groups", replica_groups),
}
"""Attribute in the text -> field of an `Instruction`, and its parser."""
CALLS = (
    "to_apply", "calls", "body", "condition", "select", "scatter", "true_computation", "false_computation",
    "branch_computations", "called_computations", "called_computation",
)  # fmt: skip
"""Attributes that name computations, in XLA's storage order."""
DOT = ("lhs_contracting_dims", "rhs_contracting_dims", "lhs_batch_dims", "rhs_batch_dims", "rhs_group_dims")
PRECISION = ("operand_precision", "algorithm")


_COMMENT = re.compile(rf"{STRING}?|/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/)?|//[^\n]*")
_HEAD = re.compile(r"\s*HloModule\s+([^\s,]+)")
_TABLE = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\b[ \t]*\n")
_TABLE_ROW = re.compile(rf"[ \t]*(\d{{1,9}})[ \t]+({STRING}|\{{[^{{}}\n]*\}})[ \t]*(?:\n|\Z)")
_COMPUTATION = re.compile(r"(ENTRY\s+)?%?([\w.\-]+)\s*")
_ARROW = re.compile(r"\s*->")
_INSTRUCTION = re.compile(r"(ROOT\s+)?%?([\w.\-]+)\s*=")
_OPCODE = re.compile(r"\s*([a-z][a-z0-9-]*)\(")
_OPERAND = re.compile(r"\s*%?([\w.\-]+)\s*(?=[,)])")
_PARAMETER = re.compile(r"\s*(\d{1,9})\s*\)")
_ATTRIBUTE = re.compile(r"\s*,\s*([A-Za-z_][\w\-]*)=")
_BARE = re.compile(r"(?:[^\s,{}()\[\]\"]+|\[[^\]\n]*\]|\([^)\n]*\)| ?\{'[^{}\n]*\})+")
_STRING = re.compile(STRING)
_BRACKET = re.compile(rf"{STRING}|[{{}}()\"]")
_NAME = re.compile(r"%?([\w.\-]+)")
_ALIAS = re.compile(r"\{([\d, ]{0,99})\}\s*:\s*\(\s*(\d{1,9})\s*,")


def read_text(text: str) -> Module:
    """Parse the text of a program; raise ProgramError with the line number."""
    # Keep the line breaks of comments, so that line numbers stay correct.
    without_comments = _COMMENT.sub(
        lambda found: found[0] if found[0].startswith('"') else "\n" * found[0].count("\n") or " ", text
    )
    return _Reader(without_comments).module()


class _Reader:
    """Parser of one module."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._shapes = Shapes()
        self._frames = Frames()
        self._metadata: dict[str, OpMetadata] = {}

    def module(self) -> Module:
        name = self._expect(_HEAD, "HloModule and a name")[1]
        attributes = self._attributes()
        self._tables()
        found, entries = [], []
        while self._skip() < len(self._text):
            is_entry, computation = self._computation()
            found.append(computation)
            entries += [computation.key] * is_entry
        if len(entries) > 1 or (not entries and len(found) != 1):
            raise self._error("one computation with ENTRY before its name")
        entry_aliases = _ALIAS.findall(attributes.get("input_output_alias", ""))
        aliases = {tuple(map(int, re.findall(r"\d{1,9}", place))): int(number) for place, number in entry_aliases}
        return link(name, found, entries[0] if entries else found[0].key, aliases=aliases)

    def _tables(self) -> None:
        """Read the optional tables of source lines."""
        tables: dict[str, dict[int, str]] = {}
        self._skip()
        while head := _TABLE.match(self._text, self._at):
            self._at, rows = head.end(), tables.setdefault(head[1], {})
            while row := _TABLE_ROW.match(self._text, self._at):
                self._at = row.end()
                rows[int(row[1])] = row[2]
            self._skip()
        if tables:
            # Rows are numbered from 1; the first missing number ends a table.
            ordered = {key: [rows[at] for at in range(1, len(rows) + 1) if at in rows] for key, rows in tables.items()}
            self._frames = _frames(ordered)

    def _computation(self) -> tuple[bool, FoundComputation]:
        head = self._expect(_COMPUTATION, "a computation: its name, and its instructions in braces")
        if self._text.startswith("(", self._at):
            self._balanced()
            self._expect(_ARROW, "-> and the shape of the result")
            self._shape()
        self._take("{")
        instructions, root = [], ""
        while not self._text.startswith("}", self._skip()):
            is_root, instruction = self._instruction()
            instructions.append(instruction)
            root = str(instruction.key) if is_root else root
        self._take("}")
        self._attributes()
        if not instructions:
            raise self._error("an instruction in the computation")
        return bool(head[1]), FoundComputation(head[2], head[2], instructions, root or instructions[-1].key)

    def _instruction(self) -> tuple[bool, FoundInstruction]:
        head = self._expect(_INSTRUCTION, "an instruction such as `%a = f32[8]{0} add(%b, %c)`")
        shape = self._shape()
        opcode = self._expect(_OPCODE, "an opcode and its operands in parentheses")[1]
        fields: dict[str, Any] = {"name": head[2], "opcode": opcode, "shape": shape}
        operands: list[str] = []
        if opcode == "parameter":
            fields["parameter"] = int(self._expect(_PARAMETER, "the number of the parameter")[1])
        elif opcode == "constant":
            self._at -= 1
            self._balanced()
        else:
            operands = self._operands()
        attributes = self._attributes()
        calls = [name for key in CALLS if key in attributes for name in _NAME.findall(attributes[key])]
        fields |= self._fields(attributes)
        return bool(head[1]), FoundInstruction(head[2], fields, operands, calls)

    def _fields(self, attributes: dict[str, str]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in attributes.items():
            try:
                if key in FIELDS:
                    name, convert = FIELDS[key]
                    fields[name] = convert(value)
                elif key in DOT and "dot" not in fields:
                    fields["dot"] = DotDims(*(numbers(attributes.get(each, "")) for each in DOT))
                elif key in PRECISION and "precision" not in fields:
                    operands, algorithm = (_NAME.findall(attributes.get(each, "")) for each in PRECISION)
                    fields["precision"] = ProductPrecision(tuple(operands), "".join(algorithm[:1]))
            except ValueError as error:
                self._at = self._text.rfind(f"{key}=", 0, self._at)
                raise self._error(f"a valid value of {key} ({error})") from error
        if "metadata" in attributes:
            fields["metadata"] = self._metadata_of(attributes["metadata"])
        return fields

    def _metadata_of(self, text: str) -> OpMetadata:
        if text not in self._metadata:
            found = pairs(text)
            frame, line = (_whole(found.get(key, "")) for key in ("stack_frame_id", "source_line"))
            stack = self._frames.stack(frame)
            if not stack and found.get("source_file"):
                stack = (Frame(found["source_file"], line),)
            texts = found.get("op_type", ""), found.get("op_name", ""), stack, found.get("deduplicated_name", "")
            self._metadata[text] = OpMetadata(*texts)
        return self._metadata[text]

    def _operands(self) -> list[str]:
        """Read operand names, with or without shapes, up to the closing parenthesis."""
        names: list[str] = []
        while not self._text.startswith(")", self._skip()):
            if names:
                self._take(",")
            found = _OPERAND.match(self._text, self._at)
            if not found:
                self._shape()
                found = self._expect(_OPERAND, "the name of an operand")
            self._at = found.end()
            names.append(found[1])
        self._at += 1
        return names

    def _attributes(self) -> dict[str, str]:
        """Read all following `, key=value`."""
        found: dict[str, str] = {}
        while key := _ATTRIBUTE.match(self._text, self._at):
            start = self._at = key.end()
            if self._text.startswith("{", start):
                self._balanced()
            else:
                self._expect(_STRING if self._text.startswith('"', start) else _BARE, f"a value for {key[1]}")
            found[key[1]] = self._text[start : self._at]
        return found

    def _balanced(self) -> None:
        """Skip a bracketed expression that begins here."""
        start, open_brackets = self._at, []
        for found in _BRACKET.finditer(self._text, start):
            bracket = found[0]
            if bracket in "{(":
                open_brackets.append(bracket)
            elif bracket in ")}":
                if open_brackets.pop() + bracket not in ("()", "{}"):
                    break
                if not open_brackets:
                    self._at = found.end()
                    return
            elif bracket == '"':
                break
        raise self._error("balanced brackets")

    def _shape(self) -> Any:
        try:
            shape, self._at = self._shapes.at(self._text, self._at)
        except ValueError as error:
            self._skip()
            raise self._error(f"a shape such as f32[8,128]{{1,0}} ({error})") from error
        return shape

    def _skip(self) -> int:
        self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
        return self._at

    def _take(self, character: str) -> None:
        if not self._text.startswith(character, self._skip()):
            raise self._error(repr(character))
        self._at += 1

    def _expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if not found:
            self._skip()
            raise self._error(what)
        self._at = found.end()
        return found

    def _error(self, expected: str) -> ProgramError:
        line = self._text.count("\n", 0, self._at) + 1
        there = " ".join(self._text[self._at : self._at + 60].split()) or "the end of the text"
        return ProgramError(f"line {line} of the program text: expected {expected}, found {there!r}")


def _frames(tables: dict[str, list[str]]) -> Frames:
    """Return the stacks of the tables. XLA prints the caller's number plus one; with a 0, numbers are unchanged."""

    def rows(table: str, *keys: str) -> list[Any]:
        return [tuple(_whole(row.get(key, "")) for key in keys) for row in map(pairs, tables.get(table, ()))]

    frames = rows("StackFrames", "file_location_id", "parent_frame_id")
    shift = 0 if any(caller == 0 for _, caller in frames) else 1
    return Frames(
        [plain(row) for row in tables.get("FileNames", ())],
        [plain(row) for row in tables.get("FunctionNames", ())],
        rows("FileLocations", "file_name_id", "function_name_id", "line"),
        [(place, caller - shift) for place, caller in frames],
    )


def _whole(text: str) -> int:
    try:
        return number(text)
    except ValueError:
        return 0
