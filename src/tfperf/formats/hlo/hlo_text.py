"""Programs of XLA from text, as XLA prints them: what is not so is an error with the number of its line."""

from __future__ import annotations

import re
from typing import Any

from tfperf.formats.hlo.frames import Frames
from tfperf.formats.hlo.hlo_values import CALLS, DOT, FIELDS, STRING, Shapes, number, numbers, pairs, plain
from tfperf.formats.hlo.link import FoundComputation, FoundInstruction, link
from tfperf.formats.hlo.model import DotDims, Frame, Module, OpMetadata, ProgramError

_COMMENT = re.compile(rf"{STRING}?|/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/)?|//[^\n]*")
_SPACE = re.compile(r"\s*")
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
    """Read the text of a program; raises ProgramError, with the number of the line."""
    return _Reader(_COMMENT.sub(_without, text)).module()


def _without(found: re.Match[str]) -> str:
    """Return nothing for a comment, but for its lines."""
    return found[0] if found[0].startswith('"') else "\n" * found[0].count("\n") or " "


class _Reader:
    """Reads one module, from its first character to its last."""

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
            raise self._error("one computation with ENTRY before its name, for a run to start with")
        entry_aliases = _ALIAS.findall(attributes.get("input_output_alias", ""))
        aliases = {tuple(map(int, re.findall(r"\d{1,9}", place))): int(number) for place, number in entry_aliases}
        return link(name, found, entries[0] if entries else found[0].key, aliases=aliases)

    def _tables(self) -> None:
        """Read the tables of source lines, if there are any."""
        tables: dict[str, dict[int, str]] = {}
        self._skip()
        while head := _TABLE.match(self._text, self._at):
            self._at, rows = head.end(), tables.setdefault(head[1], {})
            while row := _TABLE_ROW.match(self._text, self._at):
                self._at = row.end()
                rows[int(row[1])] = row[2]
            self._skip()
        if tables:
            self._frames = _frames({key: _in_order(rows) for key, rows in tables.items()})

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
            except ValueError as error:
                self._at = self._text.rfind(f"{key}=", 0, self._at)
                raise self._error(f"a value of {key} as XLA writes it ({error})") from error
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
        """Read names, with or without their shapes, up to the closing parenthesis."""
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
        """Read what stands behind: `, key=value` as often as it is there."""
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
        """Go over what is in brackets, which begin here."""
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
        raise self._error("brackets that are closed")

    def _shape(self) -> Any:
        try:
            shape, self._at = self._shapes.at(self._text, self._at)
        except ValueError as error:
            self._skip()
            raise self._error(f"a shape such as f32[8,128]{{1,0}} ({error})") from error
        return shape

    def _skip(self) -> int:
        """Go over space; return where that ends."""
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
        return ProgramError(f"line {line} of the text of the program: expected {expected}, found {there!r}")


def _in_order(rows: dict[int, str]) -> list[str]:
    """Return rows that are numbered from 1 as a list, up to the first that is not there."""
    return [rows[at] for at in range(1, len(rows) + 1) if at in rows]


def _frames(tables: dict[str, list[str]]) -> Frames:
    """Return the stacks of the tables.

    XLA prints the number of the calling frame plus one, so that 1 is none; should a version print 0 for none, the
    numbers are what they are.
    """
    places = [pairs(row) for row in tables.get("FileLocations", ())]
    frames = [pairs(row) for row in tables.get("StackFrames", ())]
    callers = [_whole(row.get("parent_frame_id", "")) for row in frames]
    shift = 0 if 0 in callers else 1
    return Frames(
        [plain(row) for row in tables.get("FileNames", ())],
        [plain(row) for row in tables.get("FunctionNames", ())],
        [
            (_whole(row.get("file_name_id", "")), _whole(row.get("function_name_id", "")), _whole(row.get("line", "")))
            for row in places
        ],
        [
            (_whole(row.get("file_location_id", "")), caller - shift)
            for row, caller in zip(frames, callers, strict=True)
        ],
    )


def _whole(text: str) -> int:
    """Return a number; 0 for what is none."""
    try:
        return number(text)
    except ValueError:
        return 0
