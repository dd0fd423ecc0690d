"""Planes decoded: headers, events and the wanted stats, from hand-built bytes; and where lines are cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import Plane, event, host, line, plane, ref, space, u64
from protobytes import BYTES, field, message, nested_groups, tag, varint, written

from tfperf.base.arrays import Bools
from tfperf.base.errors import TraceFormatError
from tfperf.formats.wire import planes, schema
from tfperf.formats.wire.contents import look_into
from tfperf.formats.wire.event_columns import EventColumns, join_columns
from tfperf.formats.wire.planes import PlaneHeader, WantedStats, line_groups, line_pieces, read_events, read_header
from tfperf.formats.wire.trace_file import Span, TraceFile, walk
from tfperf.trace.read import read_host

pytestmark = pytest.mark.usefixtures("decoder_name")
WANTED = WantedStats({"id": "number", "step_num": "number", "tf_op": "text", "graph_type": "text"})
EVENT = field(4, message(field(1, 1), field(2, 5), field(3, 7)))


def decoded(tmp_path: Path, data: bytes, wanted: WantedStats = WANTED) -> tuple[PlaneHeader, list[EventColumns]]:
    """Decode the only plane of a space."""
    with TraceFile(written(tmp_path, data)) as file:
        (span,) = walk(file).planes
        header, span = read_header(file, span, wanted)
        return header, list(read_events(file, span, header, wanted))


def only_batch(tmp_path: Path, made: Plane, wanted: WantedStats = WANTED) -> EventColumns:
    (batch,) = decoded(tmp_path, space(made), wanted)[1]
    return batch


def plane_bytes(*fields: bytes) -> bytes:
    """A space with one host plane of these fields."""
    return field(1, message(field(2, b"/host:CPU"), *fields))


def stat_metadata(stat_id: int, name: bytes) -> bytes:
    return field(5, message(field(1, stat_id), field(2, message(field(1, stat_id), field(2, name)))))


def event_with(stat: bytes) -> bytes:
    return field(3, field(4, message(field(1, 1), field(3, 7), field(4, stat))))


def test_plane_stats_of_every_arm(tmp_path: Path) -> None:
    facts = {"int": -4, "unsigned": u64((1 << 64) - 1), "double": 1.5, "text": "V100", "reference": ref("A100")}
    header, _ = decoded(tmp_path, space(plane("/host:CPU", stats=facts)))
    assert header.stats == {"int": -4, "unsigned": (1 << 64) - 1, "double": 1.5, "text": "V100", "reference": "A100"}


def test_metadata_without_content_has_an_empty_name(tmp_path: Path) -> None:
    header, _ = decoded(
        tmp_path, plane_bytes(field(4, field(1, 7)), field(4, b""), field(5, field(1, 3)), field(5, b""))
    )
    assert (header.event_ids.tolist(), header.event_names) == ([7, 0], ["", ""])
    assert header.stat_names == {3: "", 0: ""}


def test_stats_of_event_names(tmp_path: Path) -> None:
    names = {"op": {"tf_op": "a/b:MatMul", "id": 5}, "other": {"tf_op": ref("c:Add"), "junk": 1}}
    made = plane("/device:TPU:0", line("t", event("op", 0, 1), event("other", 1, 1)), name_stats=names)
    header, _ = decoded(tmp_path, space(made))
    assert header.event_stats == {"tf_op": {0: "a/b:MatMul", 1: "c:Add"}, "id": {0: 5}}


def test_events_of_several_lines_share_a_batch(tmp_path: Path) -> None:
    lines = line("one", event("a", 1, 2), event("b", 3, 4)), line("empty"), line("two", event("a", 5, 6))
    header, (batch,) = decoded(tmp_path, space(plane("/host:CPU", *lines)))
    assert [(info.id, info.name) for info in batch.lines] == [(1, "one"), (2, "empty"), (3, "two")]
    assert [(line.start, line.stop) for line in batch.lines] == [(0, 2), (2, 2), (2, 3)]
    assert [header.event_names[name] for name in batch.name.tolist()] == ["a", "b", "a"]
    assert batch.start_ps.tolist() == [1_000_000, 3_000_000, 5_000_000]
    assert batch.duration_ps.tolist() == [2_000_000, 4_000_000, 6_000_000]


def _are_iterators(names: Sequence[str]) -> Bools:
    return np.array([name.startswith("Iterator") for name in names], np.bool_)


@pytest.mark.parametrize("stat_id", [5, 20_000, -5])
def test_a_narrowed_stat_is_read_only_on_events_of_that_name(stat_id: int, tmp_path: Path) -> None:
    stats = [field(4, field(1, stat_id) + field(4, 10 + n)) for n in (1, 2)]
    events = [field(4, message(field(1, n), field(3, 7), stat)) for n, stat in enumerate(stats, 1)]
    names = [field(4, message(field(1, n), field(2, field(2, name)))) for n, name in ((1, b"Iterator::A"), (2, b"Add"))]
    data = plane_bytes(field(3, message(*events)), *names, stat_metadata(stat_id, b"id"))
    wanted = WantedStats({"id": "number"}, {"id": _are_iterators})
    (batch,) = decoded(tmp_path, data, wanted)[1]
    assert (batch.stats["id"].event.tolist(), batch.stats["id"].value.tolist()) == ([0], [11])


def test_a_narrowed_stat_without_such_names_is_not_read(tmp_path: Path) -> None:
    wanted = WantedStats({"id": "number"}, {"id": _are_iterators})
    assert only_batch(tmp_path, host(event("MatMul", 0, 1, id=5)), wanted).stats == {}


def test_an_unwanted_stat_is_not_even_parsed(tmp_path: Path) -> None:
    broken = field(1, 1) + b"\xff\xff"
    assert decoded(tmp_path, plane_bytes(event_with(broken), stat_metadata(1, b"junk")))[1][0].stats == {}
    with pytest.raises(TraceFormatError, match="not a valid Stat"):
        decoded(tmp_path, plane_bytes(event_with(broken), stat_metadata(1, b"id")))


def test_fields_out_of_order_give_the_same_plane(tmp_path: Path) -> None:
    made = plane("/host:CPU", line("t", event("a", 1, 2, id=3), event("b", 4, 5, tf_op=ref("x"))))
    whole: Any = schema.message_class("XSpace").FromString(space(made)).planes[0]
    lines: Any = schema.message_class("XPlane")(lines=whole.lines)
    whole.ClearField("lines")
    data = field(1, whole.SerializeToString() + lines.SerializeToString())
    assert repr(decoded(tmp_path, data)) == repr(decoded(tmp_path, space(made)))


def test_lines_behind_a_very_long_header_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planes, "_LONG_HEADER", 30)
    header, (batch,) = decoded(tmp_path, plane_bytes(stat_metadata(1, b"a name that takes room"), field(3, EVENT)))
    assert header.stat_names == {1: "a name that takes room"}
    assert batch.duration_ps.tolist() == [7]


def test_a_header_that_no_decoder_takes_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = plane_bytes(field(6, field(6, bytes(100))))
    assert decoded(tmp_path, data)[0].name == "/host:CPU"
    monkeypatch.setattr(schema, "LARGEST_MESSAGE", 99)
    with pytest.raises(TraceFormatError, match="a plane with 115 bytes of names and stats at byte 2"):
        decoded(tmp_path, data)


def test_a_plane_with_very_many_names(tmp_path: Path) -> None:
    names = [field(4, message(field(1, n), field(2, field(2, b"op %d" % n)))) for n in range(100_000)]
    header, _ = decoded(tmp_path, plane_bytes(field(3, EVENT), *names))
    assert len(header.event_names) == 100_000
    assert (header.event_ids[-1], header.event_names[-1]) == (99_999, "op 99999")


def with_odd(place: str, odd: bytes) -> bytes:
    """A space with one event and something odd in it, in this place."""
    stat = message(field(1, 1), field(4, 7), odd if place == "stat" else b"")
    one_event = message(field(3, 7), field(4, stat), odd if place == "event" else b"")
    line_with_event = message(field(4, one_event), odd if place == "line" else b"")
    return plane_bytes(field(3, line_with_event), stat_metadata(1, b"id"), odd if place == "header" else b"")


@pytest.mark.parametrize("place", ["line", "event", "stat", "header"])
def test_groups_are_skipped_but_not_to_any_depth(place: str, tmp_path: Path) -> None:
    (batch,) = decoded(tmp_path, with_odd(place, nested_groups(50)))[1]
    assert (batch.duration_ps.tolist(), batch.stats["id"].value.tolist()) == ([7], [7])
    with pytest.raises(TraceFormatError, match="not a valid"):
        decoded(tmp_path, with_odd(place, nested_groups(300_000)))


@pytest.mark.parametrize("place", ["line", "event", "stat", "header"])
@pytest.mark.parametrize("length", [100, 1 << 31, 1 << 63, (1 << 64) - 1])
def test_impossible_lengths_are_refused(length: int, place: str, tmp_path: Path) -> None:
    number = {"line": 4, "event": 4, "stat": 5, "header": 6}[place]
    with pytest.raises(TraceFormatError, match="not a valid"):
        decoded(tmp_path, with_odd(place, tag(number, BYTES) + varint(length) + b"."))


@pytest.mark.parametrize("limit", [1, 64, 200])
def test_what_a_writer_puts_behind_the_events_of_a_large_line_is_not_lost(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planes, "BATCH_BYTES", limit)
    data = plane_bytes(field(3, EVENT * 20 + field(1, 5) + field(2, b"late") + field(3, 9) + field(11, b"shown")))
    (line,) = join_columns(decoded(tmp_path, data)[1]).lines
    assert (line.id, line.raw_name, line.name, line.timestamp_ns) == (5, "late", "shown", 9)
    assert (line.start, line.stop) == (0, 20)


LOOKALIKE = message(field(4, field(1, 1) + field(2, 5)), b'{"a": "b"}', b'"' * 20)
EVENTS: dict[str, Callable[[int], bytes]] = {
    "plain": lambda n: message(field(1, n), field(2, 1000 * n), field(3, 7)),
    "aggregated": lambda n: message(field(1, n), field(5, 3)),
    "without offset": lambda n: message(field(1, n), field(3, 7)),
    "texts that look like events": lambda n: message(
        field(1, n), field(2, n), field(4, field(1, 1) + field(5, LOOKALIKE * 3))
    ),
    "longer than a piece": lambda n: message(field(1, n), field(2, n), field(4, field(5, b"x" * 1000))),
    "empty": lambda n: b"",
}


@pytest.mark.parametrize("limit", [1, 50, 333])
@pytest.mark.parametrize("kind", EVENTS)
def test_pieces_hold_whole_events_and_all_bytes(kind: str, limit: int, tmp_path: Path) -> None:
    events = [field(4, EVENTS[kind](n)) for n in range(1, 40)]
    body = message(field(1, 5), field(2, b"python"), *events)
    with TraceFile(written(tmp_path, b"before" + body + b"behind")) as file:
        pieces = list(line_pieces(file, Span(0, 6, 6 + len(body)), limit))
    assert b"".join(payload for _, payload in pieces) == body
    starts = accumulate((len(payload) for _, payload in pieces), initial=6)
    assert [position for position, _ in pieces] == [*starts][:-1]
    borders = {0, 2, 10} | {10 + sum(map(len, events[:n])) for n in range(len(events) + 1)}
    assert {position - 6 for position, _ in pieces} <= borders
    assert all(len(payload) <= max(limit, len(events[-1]), 8) for _, payload in pieces)


def test_neighbouring_lines_are_grouped_up_to_the_limit() -> None:
    lines = [Span(0, 2, 10), Span(10, 12, 20), Span(20, 22, 30), Span(30, 33, 90), Span(90, 92, 100)]
    assert list(line_groups(tuple(lines), 20)) == [(0, 20), (20, 30), lines[3], (90, 100)]
    assert list(line_groups((Span(0, 2, 10), Span(15, 17, 20)), 100)) == [(0, 10), (15, 20)]
    assert list(line_groups((), 100)) == []


Reader = Callable[[Path], object]
READERS: tuple[Reader, ...] = (read_host, look_into)


def named(name: bytes, *others: bytes) -> bytes:
    return field(1, message(field(1, 7), field(2, name), *others))


WITH_EVENT = field(3, field(4, field(1, 1)))
XSPACES = {
    "a host": space(host(event("a", 0, 1))),
    "only programs": space(plane("/host:metadata")),
    "only programs, and an error": space(plane("/host:metadata"), errors=("lost events",)),
    "only an idle device": space(plane("/device:GPU:0")),
    "a device of somebody else": space(plane("/device:CUSTOM:Megascale Trace")),
    "only the environment": space(plane("Task Environment")),
    "a chip": space(plane("#Chip TPU 0 HBM")),
    "an error and nothing else": field(2, b"CUPTI: permission denied\n\tsee the log") + field(4, b"vm"),
    "a warning and nothing else": field(3, "zu groß".encode()),
    "texts that are no UTF-8": space(host()) + field(3, b"Zugriff verweigert: \xfc") + field(4, b"\xff"),
    "fields of a later version": space(host()) + field(5, 1) + field(6, b"more") + field(1, message(field(9, 1))),
    "a plane of a profiler that nobody knows": space(plane("Some accelerator", line("core", event("a", 0, 1)))),
    "such a plane without events, and an error": space(plane("Some accelerator"), errors=("no permission",)),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("case", XSPACES)
def test_an_xspace(case: str, read: Reader, tmp_path: Path) -> None:
    read(written(tmp_path, XSPACES[case]))


FOREIGN = {
    "a graph": (
        field(1, field(1, b"x") + field(2, b"Const")) * 2,
        "is a TensorFlow graph (GraphDef), not an XSpace; pass a *.xplane.pb file",
    ),
    "a table of numbers and texts": (
        field(1, field(1, 1) + field(2, b"cat")) + field(1, field(1, 2) + field(2, b"dog")),
        "is not an XSpace: its planes do not have names that profilers write, such as /host:CPU",
    ),
    "names that are no text": (named(b"\x08\x01\x10", WITH_EVENT), "the names of its planes are not text"),
    "names that are no UTF-8": (named(b"\xff", WITH_EVENT), "the names of its planes are not text"),
    "warnings that are no text": (named(b"x", WITH_EVENT) + field(3, b"\x01"), "its errors, warnings or host names"),
    "an error that is no text": (field(2, b"\x08\x96\x01"), "its errors, warnings or host names are not text"),
    "a field of another type": (named(b"x", WITH_EVENT) + field(2, 1), "at byte 13 of 15 is not an XSpace field"),
    "a field of another number": (named(b"x", WITH_EVENT) + field(7, b"y"), "at byte 13 of 16 is not an XSpace field"),
    "a plane's field of another type": (field(1, field(1, b"7") + field(2, b"x") + WITH_EVENT), "at byte 2 of 14 is"),
    "a plane's field of another number": (named(b"x", WITH_EVENT, field(12, b"y")), "at byte 13 of 16 is not"),
    "planes without a name": (field(1, WITH_EVENT) * 2, "its planes have no names"),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_none(case: str, read: Reader, tmp_path: Path) -> None:
    data, words = FOREIGN[case]
    path = written(tmp_path, data)
    with pytest.raises(TraceFormatError) as error:
        read(path)
    assert str(error.value).startswith(f"{path} ")
    assert words in str(error.value)
