"""The file of a baseline: the summary of a run as JSON, read back and checked."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, structs

from tfperf.base.errors import TraceFormatError, TraceNotFoundError
from tfperf.base.files import elsewhere
from tfperf.base.storage.remote_path import Location
from tfperf.formats.wire.trace_file import open_anywhere
from tfperf.judge.compare.run_summary import RANKING_NAMES, Ranking, Rankings, RunSummary

_KIND, _FORMAT = "tfperf baseline", 1
_LARGEST_BYTES = 1_000_000
_READ_BYTES = 4 * _LARGEST_BYTES
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HINT = "make one with tfperf analyze LOGDIR --save-baseline FILE"


class _Header(Struct):
    """What is read first: whether the file is a baseline, and in which format."""

    kind: Any = None
    format: Any = None


def baseline_text(run: RunSummary) -> str:
    """Return a summary as JSON text of less than 1 MB; where odd names take too much room, fewer entries stay."""
    while True:
        document = {"kind": _KIND, "format": _FORMAT, **structs.asdict(run)}
        data = msgspec.json.format(msgspec.json.encode(document), indent=1)
        rankings = {name: run.ranking(name) for name in RANKING_NAMES}
        longest = max(len(ranking.rows) for ranking in rankings.values())
        if len(data) < _LARGEST_BYTES or not longest:
            return data.decode() + "\n"
        shorter = {
            name: Ranking(ranking.rows[: longest // 2], ranking.total_rows) for name, ranking in rankings.items()
        }
        run = structs.replace(run, rankings=Rankings(**shorter))


def read_baseline(path: Location) -> RunSummary:
    """Read a summary that `baseline_text` wrote.

    Raises TraceNotFoundError if the file cannot be opened, TraceFormatError if it is not a baseline, or a damaged one.
    """
    try:
        with open_anywhere(path) as file:
            data = file.read(_READ_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceNotFoundError(elsewhere(path) or f"cannot read the baseline {path}: {reason}; {_HINT}") from error
    try:
        data = data.removeprefix(_BYTE_ORDER_MARK)
        if len(data) > _READ_BYTES:
            raise msgspec.DecodeError(f"it is larger than {_READ_BYTES // 1_000_000} MB")
        header = msgspec.json.decode(data, type=_Header)
        if header.kind != _KIND:
            raise msgspec.DecodeError(f"its kind is not {_KIND!r}")
        if header.format != _FORMAT:
            raise msgspec.DecodeError(f"its format is not {_FORMAT}, the one that this version of tfperf reads")
        return msgspec.json.decode(data, type=RunSummary)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else "the JSON is malformed"
        raise TraceFormatError(f"{path} is not a baseline that tfperf can read: {reason}; {_HINT}") from error
