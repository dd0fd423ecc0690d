"""Write a trace that is several times as large as a real one, to measure how tfperf copes with size.

Usage: python benchmarks/make_giant_trace.py OUT_LOGDIR TRACE [--copies N]

Every thread of TRACE is written N times, each time with a new id and after the end of the copy before, as if the job
had gone on. (A capture of that size would take the profiler many times the memory that tfperf may use.)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from tfperf.formats.wire.schema import message_class

XPlane, XSpace = message_class("XPlane"), message_class("XSpace")
LINES_TAG, PLANES_TAG = b"\x1a", b"\x0a"
PS_PER_NS = 1000


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_logdir", type=Path, help="folder that receives plugins/profile/RUN")
    parser.add_argument("trace", type=Path, help="a *.xplane.pb file")
    parser.add_argument("--copies", type=int, default=10, help="how often each thread is written")
    return parser.parse_args()


def framed(tag: bytes, *parts: bytes) -> list[bytes]:
    """Return parts as one length-delimited protobuf field."""
    length, prefix = sum(map(len, parts)), bytearray(tag)
    while length > 0x7F:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return [bytes(prefix), *parts]


def extent_ns(planes: Iterable[Any]) -> int:
    """Return the time from the first event to the end of the last."""
    begins: list[int] = []
    ends: list[int] = []
    for line in (line for plane in planes for line in plane.lines if line.events):
        last = max(event.offset_ps + event.duration_ps for event in line.events)
        begins.append(line.timestamp_ns)
        ends.append(line.timestamp_ns + last // PS_PER_NS + 1)
    return max(ends) - min(begins)


def repeated(plane: Any, copies: int, period_ns: int) -> list[bytes]:
    """Return the parts of a plane with all its lines repeated; fields stay in number order, as writers put them."""
    parts = [XPlane(id=plane.id, name=plane.name).SerializeToString()]
    highest = max((line.id for line in plane.lines), default=0)
    identity = [(line.id, line.timestamp_ns) for line in plane.lines]
    for copy in range(copies):
        for number, (line, (first_id, timestamp_ns)) in enumerate(zip(plane.lines, identity, strict=True)):
            line.id = highest + (copy - 1) * len(identity) + number + 1 if copy else first_id
            line.timestamp_ns = timestamp_ns + copy * period_ns
            parts += framed(LINES_TAG, line.SerializeToString())
    for field in ("id", "name", "lines"):
        plane.ClearField(field)
    return [*parts, plane.SerializeToString()]


def write(file: IO[bytes], space: Any, copies: int) -> None:
    """Write the space with the lines of each plane repeated."""
    period_ns = extent_ns(space.planes)
    for plane in space.planes:
        file.writelines(framed(PLANES_TAG, *repeated(plane, copies, period_ns)))
    space.ClearField("planes")
    file.write(space.SerializeToString())


def main() -> None:
    """Read the trace and write the larger one."""
    arguments = parse_arguments()
    space = XSpace()
    space.ParseFromString(arguments.trace.read_bytes())
    out = arguments.out_logdir / "plugins" / "profile" / arguments.trace.parent.name / arguments.trace.name
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("wb") as file:
        write(file, space, arguments.copies)
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
