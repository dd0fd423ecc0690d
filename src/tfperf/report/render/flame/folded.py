"""Folded stacks: one line for each, `host;sequential;dense;MatMul 1234`, as flamegraph.pl and others read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfperf.report.render.flame.stacks import Flame, StackRow, stack_rows, whole_numbers

_PER_MS = 1000


def folded_text(flames: Sequence[Flame]) -> str:
    """Return a line for each stack: microseconds of time, or whole numbers of what else is counted.

    Of a comparison a line has two numbers, that of the other run first, as difffolded.pl writes them. Stacks that
    round to nothing have no line; rounding passes on what it loses, so that sums stay.
    """
    return "".join(line for flame in flames for line in _lines(flame))


def _lines(flame: Flame) -> Iterator[str]:
    divisor = max(flame.scale.divisor // _PER_MS, 1) if flame.scale.unit == "ms" else flame.scale.divisor
    rows = stack_rows(flame.name, flame.tree)
    now = _by_stack(rows, divisor)
    if flame.other is None:
        yield from (f"{stack} {value}\n" for stack, value in now.items() if value)
        return
    before = _by_stack(stack_rows(flame.name, flame.other), divisor)
    for stack in dict.fromkeys((*now, *before)):
        values = before.get(stack, 0), now.get(stack, 0)
        if any(values):
            yield f"{stack} {values[0]} {values[1]}\n"


def _by_stack(rows: Sequence[StackRow], divisor: int) -> dict[str, int]:
    """Return the value of each line; stacks that read the same once they are safe are one."""
    sums: dict[str, int] = {}
    for row, value in zip(rows, whole_numbers([row.own for row in rows], divisor), strict=True):
        # A semicolon parts frames.
        stack = ";".join(frame.replace(";", ":") for frame in row.frames)
        sums[stack] = sums.get(stack, 0) + value
    return sums
