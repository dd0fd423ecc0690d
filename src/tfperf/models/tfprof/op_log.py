"""OpLogProto: call stacks, types and float operations of the nodes of a graph."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s, distinct_index, ranges
from tfperf.formats.models.input_file import InputFile
from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.decoder import Decoder, items, numbers, offsets, texts

_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|^<frozen |[/\\]lib[/\\]python3\.\d+[/\\]")
"""Paths of installed code, as opposed to code of the user."""
_DEEPEST_STACK = 10_000  # ten times Python's default recursion limit


class Stacks(Struct, frozen=True, kw_only=True):
    """Call stacks, outermost frame first: the frames of node i are `frame[ends[i]:ends[i + 1]]`.

    A frame indexes `files`, `lines` and `functions`.
    """

    ends: Int64s
    frame: Int64s
    files: list[str]
    lines: list[int]
    functions: list[str]

    def take(self, rows: Int64s) -> Stacks:
        """Return these stacks in this order; -1 gives an empty stack."""
        at = np.maximum(rows, 0)
        length = np.where(rows >= 0, np.diff(self.ends)[at], 0)
        return Stacks(
            ends=np.concatenate(([0], np.cumsum(length))),
            frame=self.frame[ranges(self.ends[at], length)],
            files=self.files,
            lines=self.lines,
            functions=self.functions,
        )

    def of_users(self) -> Stacks:
        """Return the stacks without frames of installed packages; a stack without other frames keeps its last one."""
        is_installed = np.array([_INSTALLED.search(path) is not None for path in self.files], np.bool_)
        if not len(is_installed) or not is_installed.any():
            return self
        keep = ~is_installed[self.frame]
        owner = np.repeat(np.arange(len(self.ends) - 1), np.diff(self.ends))
        has_own = np.bincount(owner[keep], minlength=len(self.ends) - 1) > 0
        last = self.ends[1:][~has_own & (np.diff(self.ends) > 0)] - 1
        keep[last] = True
        each = np.bincount(owner[keep], minlength=len(self.ends) - 1)
        return Stacks(
            ends=np.concatenate(([0], np.cumsum(each))),
            frame=self.frame[keep],
            files=self.files,
            lines=self.lines,
            functions=self.functions,
        )


class OpLog(Struct, frozen=True, kw_only=True):
    """One entry per node of the log."""

    names: list[str]
    float_ops: Int64s
    types: list[tuple[str, ...]]
    stacks: Stacks


def read_op_log(file: InputFile) -> OpLog:
    """Read an op log; raises TfprofInputError."""
    if not file.data:
        raise file.refused("is empty, but should be an op log; write it with write_op_log")
    file.is_none_of_others()
    log = Decoder(file, 0, TENSORFLOW).one("OpLogProto", file.data)
    entries = items(log.column("log_entries"))
    names = texts(entries.field("name"))
    if names and not all(names):
        raise file.damaged(0, "entries without a name")
    types = entries.field("types")
    flat, ends = texts(items(types)), (offsets(types) - offsets(types)[0]).tolist()
    return OpLog(
        names=names,
        float_ops=numbers(entries.field("float_ops")),
        types=[tuple(flat[start:stop]) for start, stop in itertools.pairwise(ends)],
        stacks=stacks_of(file, entries.field("code_def").field("traces"), string_table(log.column("id_to_string"))),
    )


def string_table(lists: Any) -> dict[int, str]:
    """Return the strings by the ids that frames refer to."""
    pairs = items(lists)
    return dict(zip(numbers(pairs.field("key")).tolist(), texts(pairs.field("value")), strict=True))


def stacks_of(file: InputFile, lists: Any, strings: dict[int, str]) -> Stacks:
    """Return the call stacks of messages, each a list of `CodeDefTrace`."""
    ends = offsets(lists).astype(np.int64)
    if (deepest := int(np.diff(ends).max(initial=0))) > _DEEPEST_STACK:
        raise file.damaged(0, f"a call stack of {deepest:,} frames")
    traces = items(lists)
    columns = [numbers(traces.field(name)).astype(np.int64) for name in ("file_id", "lineno", "function_id")]
    packed = np.zeros(len(traces), np.int64)
    for column in columns:
        index = distinct_index(column)[1]
        packed = distinct_index(packed * (int(index.max(initial=0)) + 1) + index)[1]
    first = np.zeros(int(packed.max(initial=-1)) + 1, np.int64)
    first[packed[::-1]] = np.arange(len(packed))[::-1]
    files, lines, functions = (column[first].tolist() for column in columns)
    return Stacks(
        ends=ends - ends[0],
        frame=packed,
        lines=lines,
        files=[strings.get(key, "") for key in files],
        functions=[strings.get(key, "") for key in functions],
    )
