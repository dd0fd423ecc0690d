"""Tracks that XProf derives from the kernels of a GPU: programs, name scopes, framework ops, HLO ops and source lines.

The profiler records the op of each kernel. Consecutive kernels of one op on a stream become one event, from the start
of the first to the end of the last; work without an op does not separate them. Copies and fills count if they belong
to an HLO op. An event also ends where a run of the program ends (`GpuExecutable::ExecuteThunks` on the host) or, if
runs are not recorded, a step, and an HLO op where its next run begins, if the profiler numbers them.

Kernels of a stream may overlap: with programmatic launches, one begins just before the previous one ends. The previous
one is then shown until the next one begins. A kernel that runs entirely inside another one is on a track of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tfperf.base.arrays import Bools, Int64s, distinct, distinct_rows, lookup, union
from tfperf.export.timeline.host_timeline import PS_PER_NS, EventArguments, Track, TrackGroup
from tfperf.export.timeline.selection import Selection, name_matcher, overlaps
from tfperf.formats.hlo.hlo_proto import read_sources
from tfperf.formats.wire.event_columns import MODULE_LINE, OP_LINES, StatKind, unsigned
from tfperf.trace.device.device_work import NO_TYPE, DeviceWork, device_label, device_work, trace_texts
from tfperf.trace.event_names import mask
from tfperf.trace.host.launches import launch_links
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.nesting import innermost_around
from tfperf.trace.steps.steps import Steps

CATEGORY = "derived"
LANES = (MODULE_LINE, "Framework Name Scope", "Framework Ops", "XLA Ops", "Source code")
"""XProf's names of the tracks, in display order."""
_MODULES, _SCOPES, _OPS, _HLO_OPS, _SOURCES = range(len(LANES))
_STORED = {*LANES, *OP_LINES, "TensorFlow Name Scope"}
_RUN = re.compile(r"(?:\[\d+\] )?GpuExecutable::Execute")
_MOST_CHARACTERS, _MOST_LEVELS = 4096, 64
_MOST_THREADS = 64
"""Threads that run programs and may have made the calls of another line."""
_MOST_AT_ONCE = 128
"""Kernels that a GPU runs at once."""


class _Key(NamedTuple):
    """What is known about a kernel: a path of names for each lane (empty: none), and texts for arguments."""

    paths: tuple[tuple[str, ...], ...]
    op_type: str = ""
    op: str = ""
    source: str = ""


class _Kernels(NamedTuple):
    """Kernels of a device with an op, by stream, track, then start. Tracks of a stream are numbered from 0."""

    row: Int64s
    start: Int64s
    end: Int64s
    stream: Int64s
    track: Int64s
    key: Int64s
    part: Int64s
    """A run of a program, or a step; -1: neither is known."""
    run_of_op: Int64s
    """-1: unknown."""


class _Events(NamedTuple):
    """Derived events: `name` is an index into texts, `key` the key of the first kernel, `kernel_ps` the time of all."""

    stream: Int64s
    lane: Int64s
    track: Int64s
    start: Int64s
    level: Int64s
    end: Int64s
    name: Int64s
    key: Int64s
    is_innermost: Bools
    kernels: Int64s
    kernel_ps: Int64s


def derived_groups(
    trace: HostTrace, steps: Steps, selected: Steps, selection: Selection, origin_ps: int
) -> dict[int, TrackGroup]:
    """Return the derived tracks of each GPU by its plane (an index); none if the profile contains such tracks.

    `steps` are all steps of the host, `selected` those whose events are shown.
    """
    stored = {line.plane for line in trace.lines if line.stop > line.start and line.name.partition(" - ")[0] in _STORED}
    planes = [plane for plane in trace.devices if plane not in stored]
    work = device_work(trace) if planes else None
    if work is None or not len(work.rows):
        return {}
    named = (work.op >= 0) | (trace.number_at("hlo_module", work.rows, -1) >= 0)
    named &= ~work.moves | (trace.number_at("hlo_op", work.rows, -1) >= 0)
    usable = np.flatnonzero(named & np.isin(work.plane, planes))
    if not len(usable):
        return {}
    keys, key = _keys(trace, work, usable)
    has_name = np.array([any(each.paths) for each in keys], np.bool_)[key]
    usable, key = usable[has_name], key[has_name]
    part = _parts(trace, work.rows[usable], steps)
    groups = {}
    for plane in planes:
        at = np.flatnonzero(work.plane[usable] == plane)
        if len(at):
            kernels = _kernels(trace, work.rows[usable[at]], key[at], part[at])
            groups[plane] = _group(trace, plane, kernels, keys, selected, selection, origin_ps)
    return {plane: group for plane, group in groups.items() if len(group.start)}


def _keys(trace: HostTrace, work: DeviceWork, usable: Int64s) -> tuple[list[_Key], Int64s]:
    """Return the distinct keys of kernels, and the key of each."""
    rows = work.rows[usable]
    program, ids = trace.program_at(rows)
    columns = [work.op[usable], program, *(trace.number_at(stat, rows, -1) for stat in ("hlo_op", "hlo_module"))]
    first, key = distinct_rows(columns)
    hlo_ops, modules = (trace_texts(trace, stat) for stat in ("hlo_op", "hlo_module"))
    protos, sources = trace.hlo_protos or {}, dict[int, dict[str, str]]()
    keys = []
    for op_at, program_at, hlo_at, module_at in np.stack([each[first] for each in columns], axis=1).tolist():
        op = work.ops[op_at] if op_at >= 0 else None
        module, source = modules[module_at] or (op.hlo_module if op else ""), ""
        if program_at >= 0:
            id_ = ids[program_at]
            if id_ not in sources:
                sources[id_] = read_sources(protos[id_]) if id_ in protos else {}
            module = f"{module}({unsigned(id_)})" if module else ""
            source = sources[id_].get(op.hlo_op, "") if op else ""
        # Without a framework op, XLA's name stands for it.
        name = op.name[:_MOST_CHARACTERS] if op and op.name != op.hlo_op else ""
        *scopes, last = name.split("/")
        hlo_path = hlo_ops[hlo_at].split("::") if hlo_ops[hlo_at] else ()
        paths = ((module,), scopes[:_MOST_LEVELS], (name,), hlo_path[:_MOST_LEVELS], (source,))
        op_type = last if op is None or op.hlo_op or op.type == NO_TYPE else op.type
        keys.append(_Key(tuple(() if path == ("",) else tuple(path) for path in paths), op_type, name, source))
    return keys, key


def _parts(trace: HostTrace, rows: Int64s, steps: Steps) -> Int64s:
    """Return for each kernel (ascending rows) a number of the run of its program, else of its step; -1: neither.

    The calls of the GPU's library are on the thread that runs the program, or on a line of their own.
    """
    call = launch_links(trace, rows).of(rows)
    times = np.where(call >= 0, trace.start_ps[call], trace.start_ps[rows])
    step = steps.at(times) if len(steps) else np.full(len(rows), -1, np.int64)
    part = np.where(step >= 0, len(trace.name) + step, -1)
    executions = trace.host_events(mask(trace.names, _RUN.match))
    lines = {
        line: executions[trace.line_of[executions] == line] for line in distinct(trace.line_of[executions]).tolist()
    }
    known = np.flatnonzero(call >= 0)
    line_of_call = trace.line_of[call[known]]
    for line in distinct(line_of_call).tolist() if lines else ():
        at = known[line_of_call == line]
        own_first = sorted(lines, key=lambda other: other != line)[:_MOST_THREADS]
        runs = max(
            (innermost_around(trace, lines[other], trace.start_ps[call[at]]) for other in own_first),
            key=lambda around: int((around >= 0).sum()),
        )
        part[at] = np.where(runs >= 0, runs, part[at])
    return part


def _kernels(trace: HostTrace, rows: Int64s, key: Int64s, part: Int64s) -> _Kernels:
    """Return the kernels of one device (ascending rows) on tracks on which they do not overlap."""
    lines, stream, count = np.unique(trace.line_of[rows], return_inverse=True, return_counts=True)
    rank = np.argsort(np.argsort(-count, kind="stable"))
    stream = rank[stream.reshape(-1)]
    # The profiler numbers the runs of annotated ops; all kernels of a CUDA graph have the number of its launch.
    run_of_op, is_known = trace.known_at("scope_range_id", rows)
    in_graph = lookup(trace.graph_ops.rows, rows)
    run_of_op = np.where(in_graph >= 0, np.append(trace.graph_ops.run, -1)[in_graph], np.where(is_known, run_of_op, -1))
    order = np.lexsort((-trace.end_ps[rows], trace.start_ps[rows], stream))
    start, end = trace.start_ps[rows[order]], trace.end_ps[rows[order]]
    track = np.full(len(rows), -1, np.int64)
    for first, last in zip(
        *np.searchsorted(stream[order], [np.arange(len(lines)), np.arange(1, len(lines) + 1)]), strict=True
    ):
        rest = np.arange(first, last)
        for number in range(_MOST_AT_ONCE):
            if not len(rest):
                break
            is_outer = np.ones(len(rest), np.bool_)
            is_outer[1:] = end[rest[1:]] > np.maximum.accumulate(end[rest])[:-1]
            outer, rest = rest[is_outer], rest[~is_outer]
            track[outer] = number
            end[outer[:-1]] = np.minimum(end[outer[:-1]], start[outer[1:]])
    places = np.flatnonzero(track >= 0)
    places = places[np.lexsort((start[places], track[places], stream[order[places]]))]
    at = order[places]
    return _Kernels(rows[at], start[places], end[places], stream[at], track[places], key[at], part[at], run_of_op[at])


def _events(
    trace: HostTrace, kernels: _Kernels, keys: Sequence[_Key], lane: int, texts: dict[str, int]
) -> list[_Events]:
    """Return the events of a lane, one part per level; adds their names to `texts`."""
    depth = np.array([len(each.paths[lane]) for each in keys], np.int64)
    # Equal numbers are equal names with equal names around them.
    numbers: dict[tuple[str, ...], int] = {}
    names: list[int] = []
    number = np.full((int(depth.max(initial=0)), len(keys)), -1, np.int64)
    for place, each in enumerate(keys):
        for level in range(len(each.paths[lane])):
            path = each.paths[lane][: level + 1]
            if path not in numbers:
                numbers[path] = len(names)
                names.append(texts.setdefault(each.op_type if lane == _OPS else path[-1], len(texts)))
            number[level, place] = numbers[path]
    modules = {path: place for place, path in enumerate(dict.fromkeys(each.paths[_MODULES] for each in keys))}
    module = np.array([modules[each.paths[_MODULES]] for each in keys], np.int64)
    at = np.flatnonzero(depth[kernels.key] > 0)
    key = kernels.key[at]
    is_new = np.ones(len(at), np.bool_)
    around = (kernels.stream[at], kernels.track[at], kernels.part[at], module[key])
    is_new[1:] = np.any([column[1:] != column[:-1] for column in around], axis=0)
    if lane in (_OPS, _SOURCES):  # an op without a framework op or a source in between
        is_new[1:] |= np.diff(at) > 1
    run = kernels.run_of_op[at]
    is_next_run = np.zeros(len(at), np.bool_)
    is_next_run[1:] = (run[1:] != run[:-1]) & (run[1:] >= 0) & (run[:-1] >= 0) & (lane == _HLO_OPS)
    duration = trace.duration_ps[kernels.row[at]]
    events = []
    for level, of_key in enumerate(number):
        numbered, innermost = of_key[key], depth[key] == level + 1
        begins = is_new | (is_next_run & innermost)
        begins[1:] |= numbered[1:] != numbered[:-1]
        starts = np.flatnonzero(begins)
        counts = np.diff(starts, append=len(at))
        sums = np.add.reduceat(duration, starts)
        last = starts + counts - 1
        kept = numbered[starts] >= 0
        starts, last = starts[kept], last[kept]
        first = at[starts]
        events.append(
            _Events(
                stream=kernels.stream[first],
                lane=np.full(len(first), lane),
                track=kernels.track[first],
                start=kernels.start[first],
                level=np.full(len(first), level),
                end=kernels.end[at[last]],
                name=np.array(names, np.int64)[numbered[starts]],
                key=key[starts],
                is_innermost=innermost[starts],
                kernels=counts[kept],
                kernel_ps=sums[kept],
            )
        )
    return events


def _group(  # noqa: PLR0913, PLR0917
    trace: HostTrace,
    plane: int,
    kernels: _Kernels,
    keys: Sequence[_Key],
    selected: Steps,
    selection: Selection,
    origin_ps: int,
) -> TrackGroup:
    names: dict[str, int] = {}
    parts = [part for lane in range(len(LANES)) for part in _events(trace, kernels, keys, lane, names)]
    columns: Any = zip(*parts, strict=True)
    events = _Events(*map(np.concatenate, columns))
    shown = events.end - events.start >= selection.min_duration_ps
    if selection.steps is not None:
        shown &= overlaps(union(selected.start_ps, selected.end_ps), events.start, events.end)
    kind = events.stream * len(LANES) + events.lane
    titles = {}
    for each in distinct(kind).tolist():
        stream, lane = divmod(each, len(LANES))
        line = trace.lines[trace.line_of[kernels.row[np.argmax(kernels.stream == stream)]]]
        titles[each] = f"{LANES[lane]} - {line.name}" if stream else LANES[lane]
    matches = name_matcher(selection.threads or ("*",))
    if not matches(trace.planes[plane].name):
        shown &= np.isin(kind, [each for each, title in titles.items() if matches(title)])
    rows = np.flatnonzero(shown)
    rows = rows[np.lexsort((events.level[rows], events.start[rows], events.track[rows], kind[rows]))]
    columns = (column[rows] for column in events)
    events, kind = _Events(*columns), kind[rows]
    borders = np.flatnonzero((np.diff(kind, prepend=-1) != 0) | (np.diff(events.track, prepend=-1) != 0))
    tracks: list[Track] = []
    number = 0
    for start, stop in pairwise([*borders.tolist(), len(rows)]):
        title = titles[int(kind[start])]
        number = number + 1 if tracks and kind[start] == kind[start - 1] else 1
        tracks.append(Track(f"{title} ({number})" if number > 1 else title, start, stop, extra=number > 1))
    texts = {"": 0}
    op, source = (
        np.array([texts.setdefault(text, len(texts)) for text in of_keys], np.int64)[events.key]
        for of_keys in ([each.op for each in keys], [each.source for each in keys])
    )
    is_op, is_hlo_op = events.is_innermost & (events.lane == _OPS), events.is_innermost & (events.lane == _HLO_OPS)
    arguments = EventArguments.of_columns(
        (
            ("events", StatKind.INT, events.kernels, None),
            ("event time (ns)", StatKind.INT, events.kernel_ps // PS_PER_NS, None),
            ("op", StatKind.TEXT, op, (op > 0) & (is_op | is_hlo_op)),
            ("source", StatKind.TEXT, source, (source > 0) & is_hlo_op),
        ),
        tuple(texts),
    )
    return TrackGroup(
        title=f"{device_label(trace.planes[plane].name)} ops",
        category=CATEGORY,
        tracks=tuple(tracks),
        start=events.start - origin_ps,
        end=events.end - origin_ps,
        name=events.name,
        names=tuple(names),
        arguments=arguments,
    )
