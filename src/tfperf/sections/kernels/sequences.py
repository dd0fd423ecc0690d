"""Frequent sequences of short kernels on a stream: work that a compiler or a fused kernel could do at once.

A sequence is two to five kernels of less than `TINY_PS` each that run one after the other on a stream, at most
`LONGEST_GAP_PS` apart, in averaged steps. Kernels are compared by short name without the number of an XLA fusion.
Products, convolutions, attention and collectives end a sequence, because compilers do not fuse them with what follows.
No kernel counts for two sequences: the one with the most time comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import Host
from tfperf.base.arrays import Bools, Int64s, distinct_index, text_index
from tfperf.trace.device.device_work import DeviceOp
from tfperf.trace.device.families import Family, family_of_kernel
from tfperf.trace.device.kernels import TINY_PS, short_name

LONGEST_GAP_PS = 100_000_000
_LENGTHS = range(5, 1, -1)
_MOST = 10
_LEAST_SHARE = 0.01
"""Share of the step time below which a sequence is left out."""
_MOST_KERNELS = 1 << 16
"""Number of kernels and copies that are searched per host: those of the first averaged steps."""
_NEVER_FUSED: frozenset[Family] = frozenset({"attention", "collective", "convolution", "product"})
_NUMBER = re.compile(r"_\d+$")


class KernelSequence(Struct, frozen=True, kw_only=True):
    """Short kernels that follow each other; times are summed over its runs, in picoseconds."""

    kernels: tuple[str, ...]
    ops: tuple[str, ...]
    """The framework ops of its first run."""
    count: int
    kernel_ps: int
    gap_ps: int
    """Time between its kernels."""
    steps: int
    """Searched steps, each once per device, of the hosts where it is one of the longest sequences."""
    step_ps: int
    """Time of these steps, once per device."""


def combine_sequences(rows: Iterable[KernelSequence]) -> tuple[KernelSequence, ...]:
    """Add up equal sequences of several hosts, and return those with the most time."""
    sums: dict[tuple[str, ...], KernelSequence] = {}
    for row in rows:
        before = sums.get(row.kernels)
        added = ("count", "kernel_ps", "gap_ps", "steps", "step_ps")
        sums[row.kernels] = (
            row
            if before is None
            else replace(before, **{key: getattr(before, key) + getattr(row, key) for key in added})
        )
    return tuple(sorted(sums.values(), key=lambda row: (-row.kernel_ps - row.gap_ps, row.kernels))[:_MOST])


_Level = tuple[int, Int64s, Int64s]
"""Where sequences of one length begin, in the order of their kinds: a place among the searched rows, and a kind."""


def kernel_sequences(
    host: Host, kernels: Sequence[tuple[str, DeviceOp]], kernel_of: Int64s
) -> tuple[KernelSequence, ...]:
    """Return the sequences of short kernels in the averaged steps of a host.

    `kernels` are names and ops; `kernel_of` has the kernel of each run, in the order of the host's device work.
    """
    trace, work, steps = host.trace, host.device_work, host["steps"].steps
    step = steps.at(trace.start_ps[work.rows])
    per_step = np.bincount(step + 1, minlength=len(steps) + 1)[1:] * steps.headline
    chosen = steps.headline & ((np.cumsum(per_step) <= _MOST_KERNELS) | (np.cumsum(per_step > 0) == 1))
    rows = np.flatnonzero(np.append(chosen, False)[step])
    if not len(rows):
        return ()
    rows = rows[np.lexsort((trace.start_ps[work.rows[rows]], work.line[rows]))]
    start, end = trace.start_ps[work.rows[rows]], trace.end_ps[work.rows[rows]]
    kernel = np.full(len(work.rows), -1, np.int64)
    kernel[~work.moves] = kernel_of
    names, name_of, may_fuse = _named(host, kernels)
    fuses = np.append(may_fuse, False)[kernel[rows]] & (end - start < TINY_PS)
    gap, line, step = start[1:] - end[:-1], work.line[rows], step[rows]
    follows = (line[1:] == line[:-1]) & (step[1:] == step[:-1]) & (gap >= 0) & (gap <= LONGEST_GAP_PS)
    follows &= fuses[1:] & fuses[:-1]
    if not follows.any():
        return ()
    devices = int(np.count_nonzero(np.bincount(work.plane[rows])))
    counts = int(chosen.sum()) * devices
    step_ps = int(steps.duration_ps[chosen].sum()) * devices
    kernel_ps = np.concatenate(([0], np.cumsum(end - start)))
    name = np.append(name_of, -1)[kernel[rows]]
    levels, found, used = _levels(name, follows), [], np.zeros(len(rows), np.bool_)
    for _ in range(_MOST):
        best: tuple[int, int, Int64s] | None = None
        before = np.concatenate(([0], np.cumsum(used)))
        for length, place, kind in levels:
            place, kind = _apart(length, *(each[before[place + length] == before[place]] for each in (place, kind)))
            if not len(place):
                continue
            taken = np.bincount(kind, end[place + length - 1] - start[place])
            taken[np.bincount(kind) < max(counts, 2)] = 0
            most = int(taken.argmax())
            if taken[most] >= max(_LEAST_SHARE * step_ps, 1, 0 if best is None else best[0] + 1):
                best = int(taken[most]), length, place[kind == most]
        if best is None:
            break
        whole_ps, length, place = best
        used[(place[:, None] + np.arange(length)).ravel()] = True
        inside_ps = int((kernel_ps[place + length] - kernel_ps[place]).sum())
        first = slice(int(place.min()), int(place.min()) + length)
        ops = (work.ops[at] if at >= 0 else None for at in work.op[rows[first]].tolist())
        found.append(
            KernelSequence(
                kernels=tuple(names[each] for each in name[first].tolist()),
                ops=tuple("" if op is None else op.name for op in ops),
                count=len(place),
                kernel_ps=inside_ps,
                gap_ps=whole_ps - inside_ps,
                steps=counts,
                step_ps=step_ps,
            )
        )
    return tuple(found)


def _named(host: Host, kernels: Iterable[tuple[str, DeviceOp]]) -> tuple[list[str], Int64s, Bools]:
    """Return names, the name of each kernel, and which kernels a compiler may fuse, by family."""
    families = {(op.module, op.op): op.family for op in host["xla"].ops}
    texts, fuses = [], []
    for name, op in kernels:
        family = family_of_kernel(name, op.type, op.hlo_op, families.get((op.hlo_module, op.hlo_op)))
        texts.append(_NUMBER.sub("", short_name(name)))
        fuses.append(family not in _NEVER_FUSED)
    return *text_index(texts), np.array(fuses, np.bool_)


def _levels(name: Int64s, follows: Bools) -> list[_Level]:
    """Return the places of all sequences of each length, the longest first."""
    kind, holds, levels = name, np.ones(len(name), np.bool_), list[_Level]()
    for length in reversed(_LENGTHS):
        # A sequence goes on if the one that is shorter by a kernel does, and the next kernel follows.
        holds = holds[:-1] & follows[length - 2 :]
        place = np.flatnonzero(holds)
        kinds = np.zeros(len(holds), np.int64)
        kinds[place] = distinct_index(kind[:-1][place] * (int(name.max()) + 1) + name[length - 1 :][place])[1]
        kind = kinds
        order = np.lexsort((place, kind[place]))
        levels.append((length, place[order], kind[place[order]]))
    return levels[::-1]


def _apart(length: int, place: Int64s, kind: Int64s) -> tuple[Int64s, Int64s]:
    """Return places (ascending for each kind) of sequences that do not overlap others of their kind: at least these.

    Overlapping places of a kind are some constant distance apart or more, so every n-th of them is kept.
    """
    step = np.diff(place, prepend=0)
    is_first = np.diff(kind, prepend=-1) != 0
    overlaps = ~is_first & (step < length)
    if not overlaps.any():
        return place, kind
    nearest = np.full(int(kind.max()) + 1, length, np.int64)
    np.minimum.at(nearest, kind[overlaps], step[overlaps])
    at = np.arange(len(place))
    number = at - np.maximum.accumulate(np.where(overlaps, 0, at))
    kept = number % -(-length // nearest[kind]) == 0
    return place[kept], kind[kept]
