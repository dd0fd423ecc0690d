"""Causes on TPU cores that wait for data: for arrays in the memory of the host, and for copies on the chip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tfperf.base.units import PS_PER_MS, counted, format_bytes, format_ms, format_number, listed, without_middle
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Action, Cause, Evidence, Range

if TYPE_CHECKING:
    from tfperf.sections.kernels.analysis import Kernels
    from tfperf.sections.kernels.async_copies import AsyncCopies, AsyncCopy
    from tfperf.sections.memory.analysis import Memory
    from tfperf.sections.roofline.analysis import Roofline, RooflineOp
    from tfperf.trace.device.tpu_copies import Way

_NAMED_ARRAYS = 3
_TO_DEVICE, _TO_HOST, _ON_DEVICE = "host_to_device", "output", "device_to_device"


def host_copies(case: Case) -> Cause | None:
    """Judge waiting for arrays that the program keeps in the memory of the host: copies to a TPU, and back."""
    copies: AsyncCopies = case.results["kernels"].async_copies
    ways: dict[Way, str] = {"to_device": _TO_DEVICE, "to_host": _TO_HOST}
    if not case.results["steps"].copies_are_input:
        parts = [ways[way] for way in ways if _waited_ms(case, way)]
    else:
        parts = [_TO_HOST] if _waited_ms(case, "to_host") else []
    waited_ms = sum(_waited_ms(case, way) for way, part in ways.items() if part in parts)
    share = min(100.0 * waited_ms / case.step_ms, case.ledger.left(*parts))
    if share < LEAST_PERCENT:
        return None
    cost = case.ledger.claim(*parts, most=share)
    waiting = f"{format_ms(case.ledger.ms(cost).high)} of {format_ms(case.step_ms)} ms"
    first = next(each for each in copies.copies if each.way in ways)
    made = case.cause(
        "host_copies",
        "Waiting for copies between host and TPU memory",
        cost,
        f"{waiting}; {_arrays(case)}",
        actions=(_keep_on_device(case, cost), _halve(case, cost), _overlap(case, cost)),
        rests_on=(*map(in_categories, parts), Evidence("kernels", "async_copies", first.copy)),
    )
    return replace(made, are_alternatives=True)


def _mean(case: Case, way: Way, name: str) -> float:
    """Return a field of the traffic one way per step, on average over hosts."""
    values = [each.mean(name) for each in case.results["kernels"].async_copies.of_way(way)]
    return sum(values) / len(values) if values else 0.0


def _waited_ms(case: Case, way: Way) -> float:
    return _mean(case, way, "waited_ps") / PS_PER_MS


def _in_steps(case: Case, way: Way) -> list[AsyncCopy]:
    """Return the copies one way in the steps, in the order of their arrays' names."""
    copies: AsyncCopies = case.results["kernels"].async_copies
    found = {each.array or each.copy: each for each in copies.copies if each.way == way and each.in_steps}
    return [found[name] for name in sorted(found)]


def _arrays(case: Case) -> str:
    """Say which arrays are copied from where to where, how large they are, and how fast they go."""
    there, back = _in_steps(case, "to_device"), _in_steps(case, "to_host")
    names = {each.array for each in there}
    if names == {each.array for each in back} and "" not in names:
        rates = f"{_size(case, 'to_device')} to the TPU{_rate(case, 'to_device')} and {_size(case, 'to_host')} back"
        moving = "comes from the host and goes back" if len(there) == 1 else "come from the host and go back"
        return f"{_named(there)} {moving} in each step: {rates}{_rate(case, 'to_host')}"
    texts = []
    if there:
        of_all = f"{_size(case, 'to_device')}{_rate(case, 'to_device')}"
        texts.append(f"{_named(there)} {'comes' if len(there) == 1 else 'come'} from the host in each step: {of_all}")
    if back:
        going = "goes" if len(back) == 1 else "go"
        of_all = f"{_size(case, 'to_host')}{_rate(case, 'to_host')}"
        texts.append(f"{_named(back)} {going} to the host in each step: {of_all}")
    return "; ".join(texts)


def _size(case: Case, way: Way) -> str:
    return format_bytes(_mean(case, way, "bytes"))


def _named(copies: Sequence[AsyncCopy]) -> str:
    """Describe arrays: their number, shape and names, and their size if all have the same."""
    named = [without_middle(each.array, LONGEST_NAME) for each in copies if each.array]
    shapes, sizes = {each.shape for each in copies}, {each.bytes for each in copies}
    what = counted(len(copies), "array") + (f" {shapes.pop()}" if len(shapes) == 1 else "")
    known = [listed(named, _NAMED_ARRAYS)] if len(named) == len(copies) else []
    if len(sizes) == 1 and None not in sizes:
        known.append(f"{format_bytes(sizes.pop())}{' each' * (len(copies) > 1)}")
    return f"{what} ({', '.join(known)})" if known else what


def _rate(case: Case, way: Way) -> str:
    """Return how fast copies that cores wait for go; empty if that is unknown.

    At least, that is their bytes / time in which any of them is in flight; at most, bytes / time of waiting.
    """
    moved, link_ps, waited_ps = (_mean(case, way, name) for name in ("awaited_bytes", "link_ps", "waited_ps"))
    if not moved or not link_ps or not waited_ps:
        return ""
    low, high = (format_number(1000.0 * moved / time_ps) for time_ps in (link_ps, waited_ps))
    return f" at {low} to {high} GB/s" if low != high else f" at {high} GB/s"


def _keep_on_device(case: Case, cost: Range) -> Action | None:
    """Return the advice to keep arrays on the device, if its memory is large enough for them."""
    copies: AsyncCopies = case.results["kernels"].async_copies
    memory: Memory = case.results["memory"]
    chips = [allocator for allocator in memory.allocators if allocator.place == "device" and allocator.capacity_bytes]
    action = case.action("keep_on_device", cost)
    if action is None:
        return None
    if copies.kept_bytes is None or not chips:  # nobody knows whether there is room
        return replace(action, text=f"{action.text}, if they fit", step_ms=None, rest_ms=None)
    capacity = min(allocator.capacity_bytes or 0 for allocator in chips)
    if copies.kept_bytes > capacity:
        return None
    used = max(allocator.peak_bytes for allocator in chips)
    kept, whole = format_bytes(copies.kept_bytes), format_bytes(capacity)
    donated = ", donated, so that results need no more" * copies.are_donated
    assumption = f"they fit into {whole} with what else the program has there; now that is {format_bytes(used)} at most"
    return replace(
        action,
        text=f"{action.text} ({kept} of {whole}{donated})",
        assumption=f"{assumption}, which holds copies of them",
    )


def _halve(case: Case, cost: Range) -> Action | None:
    """Return the advice to copy half of the bytes, where the arrays are of 32 bit."""
    copied = [*_in_steps(case, "to_device"), *_in_steps(case, "to_host")]
    if not all(each.shape.startswith("f32[") for each in copied):
        return None
    computing = case.share("device_compute")
    return case.action("halve_copies", cost, Range(0.5, min(0.5 * (1.0 + computing / cost.high), 1.0)))


def _overlap(case: Case, cost: Range) -> Action | None:
    """Return the advice to begin copies earlier: at best, the busier of link and core is busy all the time."""
    ways: tuple[Way, ...] = ("to_device", "to_host")
    needed_ms = [case.step_ms - case.ledger.ms(cost).high]
    for way in ways:
        moved, awaited, link_ps = (_mean(case, way, name) for name in ("bytes", "awaited_bytes", "link_ps"))
        if awaited:
            needed_ms.append(link_ps / PS_PER_MS * moved / awaited)
    least_ms = max(needed_ms)
    if least_ms >= case.step_ms:
        return None
    most = min((case.step_ms - least_ms) / case.ledger.ms(cost).high, 1.0)
    text = f"copies both ways and computing overlap; the link alone takes {format_ms(max(needed_ms[1:]))} ms"
    return case.action("overlap_copies", cost, Range(0.0, most), text)


def kernel_waits(case: Case) -> Cause | None:
    """Judge kernels that wait for their blocks, as they mark it: of several kernels, the one that waits most."""
    kernels: Kernels = case.results["kernels"]
    sums: dict[tuple[str, int | None], list[float]] = {}
    for each in kernels.regions.waits:
        times = (each.steps.sum(ps) / max(each.steps.count, 1) / PS_PER_MS for ps in (each.waited_ps, each.kernel_ps))
        before = sums.get((each.kernel, each.program_id), [0.0, 0.0])
        sums[each.kernel, each.program_id] = [one + other for one, other in zip(before, times, strict=True)]
    key, (waited_ms, kernel_ms) = max(sums.items(), key=lambda item: item[1][0], default=(("", None), [0.0, 0.0]))
    hosts = max(len({id(each.steps) for each in kernels.regions.waits if each.kernel == key[0]}), 1)
    waited_ms, kernel_ms = waited_ms / hosts, kernel_ms / hosts
    share = min(100.0 * waited_ms / case.step_ms, case.ledger.left("device_compute"))
    if share < LEAST_PERCENT:
        return None
    cost = case.ledger.claim("device_compute", most=share)
    regions = [each for each in kernels.regions.regions if (each.kernel, each.program_id) == key and each.waits]
    first = max(regions, key=lambda each: each.total_ps)
    part = Quantity("waits", 100.0 * waited_ms / kernel_ms, of=f"kernel {key[0]}")
    rates, quantities = _rates(_judged(case, key))
    return case.cause(
        "kernel_waits",
        "Waiting for blocks in a kernel",
        cost,
        f"{without_middle(key[0], LONGEST_NAME)} waits {part} of its time, mostly in {first.region}{rates}",
        actions=(_feed_kernel(case, key, kernel_ms, cost),),
        rests_on=(in_categories("device_compute"), Evidence("kernels", "kernel_regions", first.region)),
        quantities=(part, *quantities),
    )


def _judged(case: Case, key: tuple[str, int | None]) -> RooflineOp | None:
    """Return the work of a kernel, if its shapes tell it, as they do of a product of matrices."""
    roofline: Roofline | None = case.results["roofline"]
    rows = () if roofline is None else roofline.ops
    return next((row for row in rows if (row.op.op, getattr(row.op, "program_id", None)) == key), None)


def _rates(row: RooflineOp | None) -> tuple[str, tuple[Quantity, ...]]:
    """Return how near a kernel comes to the peaks, as far as that is known: a clause, and its numbers."""
    if row is None or row.judged.compute_percent is None or row.judged.memory_percent is None:
        return "", ()
    computes = Quantity("compute_peak", row.judged.compute_percent, of=row.op.op)
    moves = Quantity("bandwidth", row.judged.memory_percent, of=row.op.op)
    text = f"by its shapes, it reaches {computes} of the peak and at least {moves} of the bandwidth"
    return f"; {text}", (computes, moves)


def _feed_kernel(case: Case, key: tuple[str, int | None], kernel_ms: float, cost: Range) -> Action | None:
    """Return the advice to feed a kernel faster: at best, it takes as long as the busier of its two limits allows."""
    row = _judged(case, key)
    reached = max((row.judged.compute_percent or 0.0, row.judged.memory_percent or 0.0), default=0.0) if row else 0.0
    if not 0.0 < reached < 100.0 or not _rates(row)[0]:
        return case.without_estimate("feed_kernel")
    most = min(kernel_ms * (1.0 - reached / 100.0) / case.ledger.ms(cost).high, 1.0)
    return case.action("feed_kernel", cost, Range(0.0, most))


def chip_copies(case: Case) -> Cause | None:
    """Judge waiting for copies between the memories of a chip, which are begun too late to be hidden."""
    share = min(100.0 * _waited_ms(case, "on_device") / case.step_ms, case.ledger.left(_ON_DEVICE))
    if share < LEAST_PERCENT:
        return None
    copies = _in_steps(case, "on_device")
    first = max(copies, key=lambda each: each.waited_ps)
    cost = case.ledger.claim(_ON_DEVICE, most=share)
    return case.cause(
        "chip_copies",
        "Waiting for copies between memories of the chip",
        cost,
        f"{counted(len(copies), 'copy', 'copies')}, longest {without_middle(first.copy, LONGEST_NAME)}"
        f"{_rate(case, 'on_device')}",
        actions=(case.without_estimate("fewer_bytes"),),
        rests_on=(in_categories(_ON_DEVICE), Evidence("kernels", "async_copies", first.copy)),
        confidence="medium",
    )
