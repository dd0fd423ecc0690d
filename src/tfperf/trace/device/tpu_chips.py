"""The chips of a TPU: those in the trace, and those that its main program runs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS
from tfperf.formats.wire.event_columns import MODULE_LINE
from tfperf.trace.host_trace import HostTrace

_NUMBERS = ("global_core_id", "global_chip_id")


class TpuChips(Struct, frozen=True):
    """The devices of TPUs in the traces of some hosts, and those of the program that takes most of their time.

    A device is what JAX calls so: a chip, or one of the two cores of an old chip. Devices count over all hosts of the
    job; without numbers, only how many there are is known.
    """

    recorded: int
    numbers: tuple[int, ...]
    are_chips: bool
    """Whether each device is a chip of its own, as far as the profile shows."""
    program: str
    """Name of the program; empty: unknown."""
    program_devices: tuple[int, ...]
    """Numbers of the devices that it runs on; empty: unknown."""

    @property
    def missing(self) -> int:
        """Return how many devices of the program are not in the traces."""
        return max(len(self.program_devices) - self.recorded, 0)

    @property
    def noun(self) -> str:
        """Return what to call a device."""
        return "chip" if self.are_chips else "core"

    @property
    def sentence(self) -> str:
        """Say which devices of the program are missing; empty if none is."""
        if not self.missing:
            return ""
        of_all = f"{self.recorded} of the {len(self.program_devices)} {self.noun}s of {self.program}"
        others = sorted({*self.program_devices} - {*self.numbers})
        named = f" ({ranges_of(others)})" if len(others) == self.missing else ""
        return f"only {of_all} are in this profile; the others{named} are on another host, or were not recorded"


def ranges_of(numbers: Sequence[int]) -> str:
    """Return ascending numbers in words: `0 to 3, 8`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def find_chips(trace: HostTrace) -> TpuChips | None:
    """Return the chips of a trace; None without a TPU."""
    if trace.device_kind != "tpu":
        return None
    planes = [trace.planes[index] for index in trace.devices]
    numbers, chips = ({int(each.stats[key]) for each in planes if key in each.stats} for key in _NUMBERS)
    is_numbered = len(numbers) == len(planes)
    program, devices = _main_program(trace)
    return TpuChips(
        recorded=len(planes),
        numbers=tuple(sorted(numbers)) if is_numbered else (),
        are_chips=not is_numbered or len(chips) == len(planes),
        program=program,
        program_devices=devices,
    )


def join_chips(parts: Iterable[TpuChips | None]) -> TpuChips | None:
    """Return the chips of several hosts; the program is that of most hosts."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    numbers = {number for part in known for number in part.numbers}
    recorded = sum(part.recorded for part in known)
    program, devices = Counter((part.program, part.program_devices) for part in known).most_common(1)[0][0]
    return TpuChips(
        recorded=recorded,
        numbers=tuple(sorted(numbers)) if len(numbers) == recorded else (),
        are_chips=all(part.are_chips for part in known),
        program=program,
        program_devices=devices,
    )


def _main_program(trace: HostTrace) -> tuple[str, tuple[int, ...]]:
    """Return the program that runs longest on the devices, and the numbers of the devices that it runs on."""
    lines = [line for line in trace.lines if line.plane in trace.devices and line.name == MODULE_LINE]
    rows = np.concatenate([NO_NUMBERS, *(np.arange(line.start, line.stop) for line in lines)])
    if not len(rows):
        return "", ()
    took = np.bincount(trace.name[rows], weights=trace.duration_ps[rows], minlength=len(trace.names))
    name, _, number = trace.names[int(took.argmax())].removesuffix(")").partition("(")
    programs = trace.programs if trace.hlo_protos is not None else {}
    return name, next((each.devices for key, each in programs.items() if number == str(key % (1 << 64))), ())
