"""What a run came to, small enough to keep: the file of a baseline, and what two runs are compared by.

All parts are per step, so that captures of different length compare: time in the capture / steps in it (whole or not,
of all hosts together). Numbers have six digits, names are cut to `LONGEST_NAME` characters, and long tables to their
largest entries; each says how many there were. Nothing in it names a folder of the machine.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import numpy as np

from tfperf.sections.steps.breakdown import CATEGORIES, Breakdown
from tfperf.sections.overview.summary import InputClass, summarize
from tfperf.compare.model import AllocatorPeak, Entry, HostSnapshot, Part, Snapshot
from tfperf.compare.whole_steps import whole_steps
from tfperf.errors import TraceFormatError, TraceNotFoundError
from tfperf.reports.columns import DEVICE_CATEGORIES
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    from tfperf.sections.ops.op_table import OpTable
    from tfperf.sections.tfdata.pipeline import StageStats
    from tfperf.session import HostAnalysis, Trace

__all__ = ["PARTS", "HostSnapshot", "Snapshot", "kept_name", "read_snapshot", "snapshot_text", "take"]

LONGEST_NAME = 200
MOST_STEPS = 20_000
"""Of all hosts together: half of what a file may hold."""
MOST_HOSTS = 200
MOST_MS = 1e15
"""Thirty thousand years: longer times are of damaged files."""
_MOST_ROWS = {
    "device_ops": 200, "host_ops": 200, "kernels": 200, "stages": 100, "functions": 60, "copies": 20, "idle": 20,
}  # fmt: skip
PARTS = tuple(_MOST_ROWS)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INPUT_PARTS = ("input_wait", "host_to_device")


def take(trace: Trace, label: str, *, skip_first: int = 0) -> Snapshot:
    """Return what a run came to, without the first `skip_first` steps of each host and without steps cut off.

    Parts (ops, kernels, ...) are of the whole capture. `label` may be a path; only its last part is kept.
    """
    from tfperf import __version__

    whole = whole_steps(trace, skip_first)
    hosts = tuple(_host(host, MOST_STEPS // max(len(trace.hosts), 1)) for host in whole.hosts)
    kept = sorted(hosts, key=lambda host: -_average(host.step_ms))[:MOST_HOSTS] if len(hosts) > MOST_HOSTS else hosts
    found = whole.steps.steps
    return Snapshot(
        kept_name(Path(label).name or label), kept_name(trace.run.name), __version__, trace.attribution, skip_first,
        kept_name(found.headline_kind), found.source, found.confidence, _batches(whole.steps), _batch_size(trace),
        tuple(kept), len(hosts), _parts(trace), _allocators(trace),
    )  # fmt: skip


def kept_name(text: str) -> str:
    """Return a name as a snapshot keeps it: valid Unicode, and no longer than `LONGEST_NAME`.

    Of a long one both ends stay, and a few digits of its hash, so that names that differ in the middle still differ.
    """
    text = _LONE_SURROGATE.sub("\ufffd", text)
    if len(text) <= LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    end = LONGEST_NAME // 2
    return f"{text[: LONGEST_NAME - end - len(digest) - 2]}…{digest}…{text[-end:]}"


def _rounded(value: float | None) -> float | None:
    """Return a number with six digits; None for what no file should hold."""
    if value is None or not math.isfinite(value) or not 0 <= value <= MOST_MS:
        return None
    return float(f"{value:.6g}")


def _average(times: tuple[float, ...]) -> float:
    return sum(times) / len(times) if times else 0.0


# --- hosts ---


def _host(host: HostAnalysis, most_steps: int) -> HostSnapshot:
    found, own = host.breakdown, host.environment
    overview = summarize(found)
    duration = found.steps.duration_ps[found.headline]
    times = tuple(float(f"{ps / PS_PER_MS:.6g}") for ps in duration.tolist() if 0 < ps <= MOST_MS * PS_PER_MS)
    precise = found.compute_16_ps + found.compute_32_ps
    kind: InputClass = overview.input_class
    return HostSnapshot(
        kept_name(host.host), times[: max(most_steps, 1)], len(times), _categories(found) if times else {},
        _rounded(overview.input_percent), kind, own.device_type, kept_name(own.device_model), own.device_count,
        _rounded(100.0 * found.compute_16_ps / precise) if precise else None,
    )  # fmt: skip


def _categories(found: Breakdown) -> dict[str, float | None]:
    """Return the average of each category; unknown is what no device, or no fetch, could show."""
    rows, unknown = found.headline, set[str]()
    if not found.has_device:
        unknown |= {*DEVICE_CATEGORIES, "host_to_device"}
    if not found.input_visible:
        unknown |= {"input", *_INPUT_PARTS}
    average = {key: float(found.time_ps[key][rows].mean()) / PS_PER_MS for key in (*CATEGORIES, *_INPUT_PARTS)}
    return {key: None if key in unknown else _rounded(value) for key, value in average.items()}


def _batches(found: Breakdown) -> int | None:
    """Return the usual number of batches in a step (the smaller of two equally usual ones)."""
    counts = np.bincount(np.clip(found.steps.batches[found.headline], 0, 1 << 16)) if len(found.steps) else np.zeros(1)
    usual = int(counts.argmax())
    return usual or None


def _batch_size(trace: Trace) -> int | None:
    main = trace.tfdata().main
    sizes = (stage.batch_size for stage in main.stages) if main else iter(())
    return next((size for size in sizes if size and size < 1 << 53), None)


# --- parts ---


def _parts(trace: Trace) -> dict[str, Part]:
    steps = sum(len(host.breakdown.steps) for host in trace.hosts)
    if not steps:
        return {}
    ops = trace.ops()
    found: dict[str, Iterable[Entry]] = {
        "device_ops": _op_entries(ops.device, steps) if ops.device is not None else (),
        "host_ops": _op_entries(ops.host, steps),
        **_kernel_parts(trace, steps),
        "stages": _stage_entries(trace, steps),
        "functions": [
            Entry(kept_name(own.name), "", _ms(own.total_self_ps, steps), float(own.calls.get("traced", 0)))
            for own in trace.functions().functions
        ],
        "idle": _idle_entries(trace),
    }
    return {name: _largest(entries, _MOST_ROWS[name]) for name, entries in found.items()}


def _ms(ps: float, steps: int) -> float | None:
    return _rounded(ps / PS_PER_MS / steps)


def _largest(entries: Iterable[Entry], most: int) -> Part:
    """Return the entries that take longest; those with a work but no waiting of their own after them."""
    found = sorted(entries, key=lambda own: (-(own.ms or 0.0), -(own.element_ms or 0.0), own.name, own.detail))
    return Part(tuple(found[:most]), len(found))


def _op_entries(table: OpTable, steps: int) -> list[Entry]:
    """Add up by name and type: HLO ops of one framework op are one row here."""
    sums: dict[tuple[str, str], list[int]] = {}
    for key, own, count in zip(table.keys, table.self_ps.tolist(), table.occurrences.tolist(), strict=True):
        row = sums.setdefault((kept_name(key.name or key.hlo_op), kept_name(key.type)), [0, 0])
        row[0], row[1] = row[0] + own, row[1] + count
    return [Entry(*names, _ms(own, steps), _rounded(count / steps)) for names, (own, count) in sums.items()]


def _kernel_parts(trace: Trace, steps: int) -> dict[str, list[Entry]]:
    kernels = trace.kernels()
    names: dict[str, list[int]] = {}
    for row, own, count in zip(kernels.kernels, kernels.total_ps.tolist(), kernels.occurrences.tolist(), strict=True):
        _add(names, kept_name(row.name), own, count)
    kinds: dict[str, list[int]] = {}
    for copy in kernels.copies:
        _add(kinds, copy.kind, copy.total_ps, copy.count)
    return {
        part: [Entry(name, "", _ms(own, steps), _rounded(count / steps)) for name, (own, count) in sums.items()]
        for part, sums in (("kernels", names), ("copies", kinds))
    }


def _add(sums: dict[str, list[int]], name: str, ps: int, count: int) -> None:
    row = sums.setdefault(name, [0, 0])
    row[0], row[1] = row[0] + ps, row[1] + count


def _stage_entries(trace: Trace, steps: int) -> list[Entry]:
    """Add up the waiting over hosts and pipelines of one shape; the work is that in the one waited for longest."""
    found: dict[str, list[StageStats]] = {}
    for pipeline in trace.tfdata().pipelines:
        for stage in pipeline.stages:
            found.setdefault(kept_name(stage.path), []).append(stage)
    entries = []
    for path, stages in found.items():
        work = next((own.element_ps for own in stages if own.element_ps is not None), None)
        blocked, calls = sum(own.blocked_ps for own in stages), sum(own.calls for own in stages)
        per_element = None if work is None else _rounded(work / PS_PER_MS)
        name = kept_name(stages[0].name)
        entries.append(Entry(path, name, _ms(blocked, steps), _rounded(calls / steps), per_element))
    return entries


def _idle_entries(trace: Trace) -> list[Entry]:
    found = trace.idle()
    if found.without_steps:
        return []
    data: Mapping[str, list[object]] = found.columns()
    rows = zip(data["cause"], data["per_step_ms"], strict=True)
    return [Entry(str(cause), "", _rounded(float(str(time)))) for cause, time in rows]


def _allocators(trace: Trace) -> tuple[AllocatorPeak, ...]:
    most: dict[str, int] = {}
    for own in trace.memory().allocators:
        name = kept_name(own.name)
        most[name] = max(most.get(name, 0), min(own.peak_bytes, 1 << 53))
    return tuple(AllocatorPeak(name, peak) for name, peak in list(most.items())[:_MOST_ALLOCATORS])


_MOST_ALLOCATORS = 20


# --- the file ---

_KIND, _FORMAT = "tfperf baseline", 1
_LARGEST_BYTES = 1_000_000
_READ_BYTES = 4 * _LARGEST_BYTES
_LARGEST_INT = 1 << 53


def snapshot_text(snapshot: Snapshot) -> str:
    """Return a snapshot as JSON text of less than 1 MB; of odd names that take too much room, fewer entries stay."""
    while True:
        text = json.dumps({"kind": _KIND, "format": _FORMAT, **asdict(snapshot)}, indent=1, ensure_ascii=False) + "\n"
        most = max((len(part.rows) for part in snapshot.parts.values()), default=0)
        if len(text.encode()) < _LARGEST_BYTES or not most:
            return text
        cut = {name: replace(part, rows=part.rows[: most // 2]) for name, part in snapshot.parts.items()}
        snapshot = replace(snapshot, parts=cut)


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot that `snapshot_text` wrote.

    Raises TraceNotFoundError if the file cannot be opened, TraceFormatError if it is no baseline, or a damaged one.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_READ_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceNotFoundError(f"cannot read the baseline {path}: {reason}; {_MAKE}") from error
    try:
        return _snapshot(data)
    except _UnfitError as why:
        raise TraceFormatError(f"{path} is no baseline that tfperf can read: {why}; {_MAKE}") from why


_MAKE = "make one with tfperf analyze LOGDIR --save-baseline FILE"


class _UnfitError(Exception):
    """What is wrong with a file."""


def _snapshot(data: bytes) -> Snapshot:
    if len(data) > _READ_BYTES:
        raise _UnfitError("it is too large")
    try:
        found = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise _UnfitError("it is not JSON") from error
    kind = found.get("kind") if isinstance(found, dict) else None
    if kind != _KIND:
        raise _UnfitError(f"its kind is not {_KIND!r}")
    if found.get("format") != _FORMAT:
        raise _UnfitError(f"its format is not {_FORMAT}, the one of this version of tfperf")
    read: Snapshot = _read(Snapshot, found, "")
    for host in read.hosts:
        if host.step_count < len(host.step_ms) or not all(host.step_ms):
            raise _UnfitError("its step times are not all above 0, or more than it counts")
    if read.host_count < len(read.hosts):
        raise _UnfitError("it holds more hosts than it counts")
    return replace(read, parts={name: part for name, part in read.parts.items() if name in PARTS})


def _read(kind: Any, value: Any, where: str) -> Any:
    """Return a value of the declared type, or say where in the file there is none."""
    if get_origin(kind) is UnionType:
        return None if value is None else _read(get_args(kind)[0], value, where)
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_read(get_args(kind)[0], item, f"{where}[{at}]") for at, item in enumerate(value))
    if get_origin(kind) is dict and isinstance(value, dict):
        return {kept_name(key): _read(get_args(kind)[1], item, f"{where}.{_shown(key)}") for key, item in value.items()}
    if is_dataclass(kind) and isinstance(value, dict):
        hints = get_type_hints(kind)
        missing = [key for key in hints if key not in value]
        if missing:
            raise _UnfitError(f"{where or 'it'} has no {missing[0]}")
        make: Any = kind
        return make(**{key: _read(own, value[key], f"{where}.{key}".lstrip(".")) for key, own in hints.items()})
    if kind is str and isinstance(value, str):
        return kept_name(value)
    numbers: tuple[type, ...] = (int, float) if kind is float else (int,)
    most = MOST_MS if kind is float else _LARGEST_INT
    if kind in (int, float) and type(value) in numbers and 0 <= value <= most:
        return kind(value)
    raise _UnfitError(f"{where} is not {_WANTED.get(kind, 'a list or an object')}")


_WANTED = {str: "text", int: "a whole number from 0 on", float: "a number from 0 on"}


def _shown(key: str) -> str:
    """Return a key of a file, if it is fit for a message."""
    return key if key.isidentifier() and len(key) < LONGEST_NAME else "..."
