"""The decoder against protobuf's own parser: the same columns from valid bytes, the same verdict on damaged ones."""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from protobytes import damage

from tfperf.base.errors import TraceFormatError
from tfperf.formats.wire import planes, schema
from tfperf.formats.wire.event_columns import (
    NO_STAT,
    NO_STAT_ROWS,
    EventColumns,
    Stat,
    StatKind,
    StatRows,
    join_columns,
)
from tfperf.formats.wire.planes import PlaneHeader, WantedStats, read_events, read_header
from tfperf.formats.wire.trace_file import TraceFile, walk

pytestmark = pytest.mark.usefixtures("decoder_name")
WANTED = WantedStats({"id": "number", "tf_op": "text"})
GUESSED = WantedStats({"id": "guess"})
EVERYTHING = WantedStats({"id": "real"}, every=True)
EXAMPLES = settings(derandomize=True)

Row = tuple[int, int, int, bool, dict[str, int | float | str]]
"""Index of the name, offset, duration, whether it stands for many, wanted stats."""

NO_ID = 1 << 70
INT64S = (0, 1, 2, 3, 4, 5, 127, 128, 16383, 16384, 1 << 40, -1, -(1 << 63), (1 << 63) - 1)
UINT64S = (1, 2, 3, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
TEXTS = (b"", b"id", b"tf_op", b"junk", b"\xff", b"text of some length " * 3)
ARMS: dict[str, tuple[Any, ...]] = {
    "int64_value": INT64S,
    "uint64_value": UINT64S,
    "double_value": (0.0, 1.5, float("nan")),
    "str_value": TEXTS,
    "bytes_value": TEXTS,
    "ref_value": UINT64S,
}


def made(random: Random) -> bytes:
    """Make a small XSpace."""
    count, one = random.randrange, random.choice

    def stat(_: int) -> dict[str, Any]:
        arm = one([*ARMS, ""])
        return {"metadata_id": one(INT64S), **({arm: one(ARMS[arm])} if arm else {})}

    def event(_: int) -> dict[str, Any]:
        data = one(["offset_ps", "offset_ps", "num_occurrences"])
        stats = [stat(n) for n in range(count(4))]
        return {"metadata_id": one(INT64S), data: one(INT64S), "duration_ps": one(INT64S), "stats": stats}

    def line(_: int) -> dict[str, Any]:
        events = [event(n) for n in range(one([0, 1, 3, 9]))]
        name, shown = one(TEXTS), one([b"", b"shown"])
        return {"id": one(INT64S), "name": name, "display_name": shown, "timestamp_ns": one(INT64S), "events": events}

    def entry(_: int) -> dict[str, Any]:
        return {"key": one(INT64S), "value": {"name": one(TEXTS)}}

    def plane(_: int) -> dict[str, Any]:
        parts = {"lines": line, "event_metadata": entry, "stat_metadata": entry, "stats": stat}
        return {
            "id": one(INT64S),
            "name": one(TEXTS),
            **{k: [make(n) for n in range(count(5))] for k, make in parts.items()},
        }

    space = schema.message_class("XSpace")(planes=[plane(n) for n in range(1 + count(2))], hostnames=[one(TEXTS)])
    data: bytes = space.SerializeToString()
    return data


# Drawing every number of a space from Hypothesis takes longer than all else here.
spaces = st.builds(lambda seed: made(Random(seed)), st.integers(0, 1 << 32))
limits = st.sampled_from([1, 64, 200, planes.BATCH_BYTES])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wire") / "made.xplane.pb"


def ours(path: Path, data: bytes, limit: int, wanted: WantedStats = WANTED) -> list[tuple[PlaneHeader, EventColumns]]:
    """Header and events of each plane, read in batches of about `limit` bytes."""
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch, TraceFile(path) as file:
        patch.setattr(planes, "BATCH_BYTES", limit)
        read = [read_header(file, span, wanted) for span in walk(file).planes]
        return [(header, join_columns(list(read_events(file, span, header, wanted)))) for header, span in read]


def values(stat: Stat) -> list[int | float | str]:
    if stat.type == "text":
        return [stat.text(position) for position in range(len(stat.value))]
    numbers: list[int | float | str] = (stat.value.view(np.float64) if stat.type == "real" else stat.value).tolist()
    return numbers


def rows(events: EventColumns) -> list[Row]:
    numbers = zip(events.name.tolist(), events.start_ps.tolist(), events.duration_ps.tolist(), strict=True)
    made: list[Row] = [
        (*three, aggregated, {}) for three, aggregated in zip(numbers, events.aggregated.tolist(), strict=True)
    ]
    for name, stat in events.stats.items():
        for event, value in zip(stat.event.tolist(), values(stat), strict=True):
            made[event][4][name] = value
    return made


def signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def expected_value(stat: Any, name: str, names: dict[int, str]) -> int | float | str:
    """Return what a wanted stat holds; 0 or no text where it is of a type that makes no sense for it."""
    if name == "id":
        return int(stat.int64_value or signed(stat.uint64_value))
    return names.get(signed(stat.ref_value), "") if stat.ref_value else str(stat.str_value, "utf-8", "replace")


def expected_row(event: Any, names: dict[int, str], positions: dict[int, int]) -> Row:
    named = [(stat, names.get(stat.metadata_id, "")) for stat in event.stats]
    stats = {name: expected_value(stat, name, names) for stat, name in named if name in ("id", "tf_op")}
    name = positions.get(event.metadata_id, positions[NO_ID])
    return name, event.offset_ps, event.duration_ps, event.num_occurrences != 0, stats


def shown(text: bytes) -> str:
    return text.decode("utf-8", "replace")


@EXAMPLES
@given(data=spaces, limit=limits)
def test_valid_bytes_give_what_protobuf_gives(data: bytes, limit: int, path: Path) -> None:
    space = schema.message_class("XSpace").FromString(data)
    for plane, (header, columns) in zip(space.planes, ours(path, data, limit), strict=True):
        names = {entry.key: shown(entry.value.name) for entry in plane.stat_metadata}
        assert (header.id, header.name, header.stat_names) == (plane.id, shown(plane.name), names)
        assert header.event_ids.tolist() == [entry.key for entry in plane.event_metadata]
        assert header.event_names == [shown(entry.value.name) for entry in plane.event_metadata]
        assert [(line.id, line.name, line.timestamp_ns, line.stop - line.start) for line in columns.lines] == [
            (line.id, shown(line.display_name) or shown(line.name), line.timestamp_ns, len(line.events))
            for line in plane.lines
        ]
        positions = {entry.key: position for position, entry in enumerate(plane.event_metadata)}
        positions[NO_ID] = len(plane.event_metadata)
        events = [event for line in plane.lines for event in line.events]
        assert rows(columns) == [expected_row(event, names, positions) for event in events]


KINDS = {
    "int64_value": StatKind.INT,
    "uint64_value": StatKind.UNSIGNED,
    "double_value": StatKind.REAL,
    "str_value": StatKind.TEXT,
    "ref_value": StatKind.TEXT,
    "bytes_value": StatKind.BYTES,
    None: StatKind.INT,
}


def every_row(every: StatRows) -> list[tuple[int, str, int, int | str]]:
    """Event, name, kind and value (a text as text) of each stat."""
    columns = every.event.tolist(), every.key.tolist(), every.kind.tolist(), every.value.tolist()
    return [
        (event, every.keys[key], kind, every.texts[value] if kind == StatKind.TEXT else value)
        for event, key, kind, value in zip(*columns, strict=True)
    ]


def every_expected(stat: Any, names: dict[int, str]) -> tuple[str, int, int | str]:
    arm = stat.WhichOneof("value")
    value: Any = getattr(stat, arm) if arm else 0
    if arm == "ref_value":
        value = names.get(signed(value), "") if value else ""
    elif arm == "str_value":
        value = shown(value)
    elif arm == "bytes_value":
        value = len(value)
    elif arm == "double_value":
        value = struct.unpack("<q", struct.pack("<d", value))[0]
    name = names.get(stat.metadata_id, "")
    return name, KINDS[arm], value if arm == "int64_value" or isinstance(value, str) else signed(value)


@EXAMPLES
@given(data=spaces, limit=limits)
def test_every_stat_is_what_protobuf_gives(data: bytes, limit: int, path: Path) -> None:
    space = schema.message_class("XSpace").FromString(data)
    for plane, (header, columns) in zip(space.planes, ours(path, data, limit, EVERYTHING), strict=True):
        events = [event for line in plane.lines for event in line.events]
        assert every_row(columns.every or NO_STAT_ROWS) == [
            (index, *every_expected(stat, header.stat_names))
            for index, event in enumerate(events)
            for stat in event.stats
        ]


@EXAMPLES
@given(data=spaces)
def test_real_numbers_also_where_a_writer_stored_whole_ones(data: bytes, path: Path) -> None:
    space = schema.message_class("XSpace").FromString(data)
    for plane, (header, columns) in zip(space.planes, ours(path, data, 1, EVERYTHING), strict=True):
        stats = [stat for line in plane.lines for event in line.events for stat in event.stats]
        expected = [
            float(stat.int64_value or signed(stat.uint64_value)) or stat.double_value
            for stat in stats
            if header.stat_names.get(stat.metadata_id) == "id"
        ]
        np.testing.assert_array_equal(values(columns.stats["id"]) if "id" in columns.stats else [], expected)


@EXAMPLES
@given(data=spaces, limit=limits)
def test_the_type_of_an_unknown_stat_is_the_widest_that_the_plane_stores(data: bytes, limit: int, path: Path) -> None:
    """Texts if there is any, else real numbers if there is any; bytes are omitted."""
    space = schema.message_class("XSpace").FromString(data)
    for plane, (header, columns) in zip(space.planes, ours(path, data, limit, GUESSED), strict=True):
        names, stat = header.stat_names, columns.stats.get("id", NO_STAT)
        carried: dict[int, list[Any]] = {}
        for row, event in enumerate(event for line in plane.lines for event in line.events):
            named = [one for one in event.stats if names.get(one.metadata_id) == "id"]
            carried[row] = [one for one in named if not one.HasField("bytes_value")]
        kinds = {KINDS[one.WhichOneof("value")] for some in carried.values() for one in some}
        assert stat.type == ("text" if StatKind.TEXT in kinds else "real" if StatKind.REAL in kinds else "number")
        assert stat.event.tolist() == [row for row, some in carried.items() for _ in some]
        for row, value in zip(stat.event.tolist(), values(stat), strict=True):
            if len(carried[row]) > 1:
                continue  # of one event's stats with the same name, numbers come first
            (one,) = carried[row]
            if KINDS[one.WhichOneof("value")] == StatKind.TEXT:
                assert value == expected_value(one, "tf_op", names)
            else:
                np.testing.assert_equal(float(value), float(one.double_value or expected_value(one, "id", names)))


@lru_cache(maxsize=1)
def loose_class() -> Any:
    """Return XSpace for protobuf to read only what the decoder reads: stats of events and their names stay bytes."""
    file = descriptor_pb2.FileDescriptorProto()
    schema.descriptor("XSpace").file.CopyToProto(file)
    for message in file.message_type:
        for field in message.field:
            if field.type_name.endswith(".XStat") and message.name != "XPlane":
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                field.ClearField("type_name")
        kept = [field for field in message.field if (message.name, field.name) != ("XEventMetadata", "child_id")]
        del message.field[:]
        message.field.extend(kept)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{schema.PACKAGE}.XSpace"))


def count_events(message_class: Any, data: bytes) -> int | None:
    """Return how many events protobuf finds, or None if it refuses the bytes."""
    try:
        return sum(len(line.events) for plane in message_class.FromString(data).planes for line in plane.lines)
    except DecodeError:
        return None


def damaged() -> st.SearchStrategy[bytes]:
    return damage(spaces, changes=2, longest=30)


REFUSED_BY_US_ONLY = re.compile(r"0 bytes|contains no planes|wire type [34]|not an XSpace;|gzip")
"""An XSpace without planes, and groups (a wire type that no XSpace uses) outside of lines."""


@settings(EXAMPLES, max_examples=6 * EXAMPLES.max_examples)
@given(data=damaged(), limit=limits)
def test_damaged_bytes_get_the_verdict_of_protobuf(data: bytes, limit: int, path: Path) -> None:
    """Damage in stats that nobody asked for stays unseen; else what protobuf refuses is refused."""
    strict = count_events(schema.message_class("XSpace"), data)
    count, why = None, ""
    try:
        count = sum(len(events.name) for _, events in ours(path, data, limit))
    except TraceFormatError as error:
        why = str(error)
    if count is None:
        assert strict is None or REFUSED_BY_US_ONLY.search(why)
    else:
        assert count == (count_events(loose_class(), data) if strict is None else strict)
