"""The walk over a file: where planes and lines lie, and which files are refused, in what words."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import event, host, line, plane, space
from protobytes import BYTES, END_GROUP, FIXED32, FIXED64, GROUP, field, message, tag, varint, written

from tfperf.base.errors import TraceFormatError, TraceNotFoundError
from tfperf.formats.wire import trace_file
from tfperf.formats.wire.trace_file import SpaceSpans, TraceFile, open_regular, walk, walk_plane

PACKED = "made.xplane.pb.gz"
GOOD = space(host(event("step", 0, 10, step_num=1)))
PLANE = field(1, message(field(2, b"/host:CPU"), field(3, field(4, field(3, 7)))))


def walked(tmp_path: Path, data: bytes) -> SpaceSpans:
    with TraceFile(written(tmp_path, data)) as file:
        return walk(file)


def test_planes_and_lines_are_found_by_position(tmp_path: Path) -> None:
    data = space(plane("/host:CPU", line("one", event("a", 0, 1)), line("two")), plane("/device:GPU:0"))
    first, second = walked(tmp_path, data).planes
    assert [b"one" in data[span.start : span.stop] for span in first.lines] == [True, False]
    assert [b"two" in data[span.start : span.stop] for span in first.lines] == [False, True]
    assert second.lines == ()
    assert b"/device:GPU:0" in b"".join(data[start:stop] for start, stop in second.header)


def test_the_header_of_a_plane_is_all_but_its_lines(tmp_path: Path) -> None:
    name, lines, facts = field(2, b"/host:CPU"), field(3, b"") * 3, field(4, b"") + field(5, b"") + field(6, b"")
    data = field(1, name + lines + facts)
    (span,) = walked(tmp_path, data).planes
    assert b"".join(data[start:stop] for start, stop in span.header) == name + facts


def test_lines_behind_the_metadata_are_found_by_looking_at_every_field(tmp_path: Path) -> None:
    data = field(1, field(4, b"") + field(3, b"") + field(5, b"") + field(3, b""))
    with TraceFile(written(tmp_path, data)) as file:
        (span,) = walk(file).planes
        assert (len(span.lines), span.header) == (0, ((2, 10),))
        again = walk_plane(file, span.start, span.stop, every_field=True)
    assert (len(again.lines), again.header) == (2, ((2, 4), (6, 8)))


def test_texts_of_the_space_are_read_even_if_they_are_no_utf8(tmp_path: Path) -> None:
    found = walked(tmp_path, field(2, b"lost events") + field(3, b"\xff") + field(4, b"vm") + PLANE)
    assert (found.errors, found.warnings, found.hostnames) == (("lost events",), ("\ufffd",), ("vm",))


@pytest.mark.parametrize(
    "odd",
    [field(1, 5), tag(1, FIXED64) + bytes(8), tag(1, FIXED32) + bytes(4), field(99, b"later")],
    ids=["number", "8 bytes", "4 bytes", "unknown"],
)
def test_fields_of_another_type_or_number_are_skipped(odd: bytes, tmp_path: Path) -> None:
    assert len(walked(tmp_path, odd + PLANE + odd).planes) == 1


def test_a_plane_field_of_another_type_is_no_line(tmp_path: Path) -> None:
    (span,) = walked(tmp_path, field(1, field(3, 5) + field(3, b""))).planes
    assert len(span.lines) == 1


REFUSED = {
    "nothing": (b"", "is empty (0 bytes): the profiler did not write any data"),
    "no plane": (field(4, b"host"), "contains no planes"),
    "another message": (field(1, b"_TFProfRoot"), "is a tfprof result (GraphNodeProto), not an XSpace"),
    "a long name": (
        tag(1, BYTES) + varint((1 << 20) + 5) + field(2, bytes((1 << 20) + 1)),
        "a plane with a name of 1048577",
    ),
    "group": (PLANE + tag(1, GROUP) + tag(1, END_GROUP), "wire type 3 at byte 19 of 21"),
    "end of a group": (PLANE + tag(1, END_GROUP), "wire type 4"),
    "unknown type": (PLANE + tag(1, 6), "wire type 6"),
    "field 0": (PLANE + b"\x00\x01", "an invalid field number at byte 19"),
    "large field number": (PLANE + tag(1 << 29, 0) + b"\x01", "an invalid field number"),
    "field number with zeros": (PLANE + b"\x88\x80\x80\x80\x80\x00\x01", "an invalid field number"),
    "endless number": (PLANE + b"\x80" * 30, "an invalid varint"),
    "cut off": (PLANE[:-1], "a field that is 1 byte too long (truncated file?)"),
    "huge length": (tag(1, BYTES) + varint(1 << 62), f"a field that is {1 << 62:,} bytes too long"),
    "negative length": (tag(1, BYTES) + varint(-1), f"a field that is {(1 << 64) - 1:,} bytes too long"),
    "cut off fixed number": (tag(1, FIXED64) + bytes(7), "a field that is 1 byte too long"),
    "line longer than its plane": (field(1, tag(3, BYTES) + varint(9)) + bytes(20), "is 9 bytes too long"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_xspace_is_refused_in_words(case: str, tmp_path: Path) -> None:
    data, words = REFUSED[case]
    with pytest.raises(TraceFormatError) as error:
        walked(tmp_path, data)
    assert words in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "made.xplane.pb"))


def test_of_a_very_long_error_only_the_start_is_read(tmp_path: Path) -> None:
    assert walked(tmp_path, field(2, b"x" * 70_000) + PLANE).errors == ("x" * (1 << 16),)


def test_more_planes_than_any_profile_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "_MOST_PLANES", 3)
    assert len(walked(tmp_path, PLANE * 3).planes) == 3
    with pytest.raises(TraceFormatError, match="more than 3 planes"):
        walked(tmp_path, PLANE * 4)


def test_bytes_that_went_through_a_text_are_recognized(tmp_path: Path) -> None:
    long = space(host(*[event(f"op {n}", 1000 * n, 900) for n in range(200)]))
    with pytest.raises(TraceFormatError, match="corrupted by a text-mode copy"):
        walked(tmp_path, long.decode("utf-8", "replace").encode())


def test_a_plane_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    for size in range(1, len(PLANE)):
        with pytest.raises(TraceFormatError, match=r"truncated file\?|invalid varint"):
            walked(tmp_path, PLANE[:size])


def test_a_missing_file_or_a_folder_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(TraceNotFoundError, match="No such file or directory; check the path"):
        TraceFile(tmp_path / "nowhere")
    with pytest.raises(TraceNotFoundError, match="cannot open"):
        TraceFile(tmp_path)


def test_a_file_that_shrinks_meanwhile_is_an_error(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    with TraceFile(path) as file:
        os.truncate(path, len(GOOD) - 1)
        assert file.read(0, 4) == GOOD[:4]
        with pytest.raises(TraceFormatError, match="changed while being read; try again"):
            file.read(0, file.size)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda path: path.write_bytes(GOOD + b"more"), id="grows"),
        pytest.param(lambda path: os.utime(path, ns=(0, 0)), id="is rewritten"),
    ],
)
def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path, change: Callable[[Path], object]) -> None:
    path = written(tmp_path, GOOD)
    with TraceFile(path) as file:
        file.check_unchanged()
        change(path)
        with pytest.raises(TraceFormatError, match="changed while being read"):
            file.check_unchanged()


def test_damage_in_a_file_that_changes_is_put_down_to_the_change(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    with TraceFile(path) as file:
        path.write_bytes(PLANE[:-1] + b"\xff" * (len(GOOD) - len(PLANE)) + b"more")
        with pytest.raises(TraceFormatError, match="changed while being read"):
            walk(file)


def test_a_named_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"data")
    for path in (tmp_path / "pipe", tmp_path, Path(os.devnull)):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(path)
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"data"


def test_a_compressed_file_is_read_as_what_it_holds(tmp_path: Path) -> None:
    with TraceFile(written(tmp_path, gzip.compress(GOOD[:10]), gzip.compress(GOOD[10:]), name=PACKED)) as file:
        assert (file.size, file.read(0, file.size)) == (len(GOOD), GOOD)
        file.check_unchanged()


@pytest.mark.parametrize(
    "data",
    [gzip.compress(GOOD)[:-9], GOOD, gzip.compress(GOOD)[:-4] + b"abcd"],
    ids=["cut off", "not compressed", "another checksum"],
)
def test_a_damaged_compressed_file(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="is cut off, damaged or not a gzip file"):
        TraceFile(written(tmp_path, data, name=PACKED))


def test_a_small_file_that_would_become_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfperf.formats.wire.schema.LARGEST_MESSAGE", 3_000_000)
    bomb = written(tmp_path, gzip.compress(bytes(4_000_000)), name=PACKED)
    with pytest.raises(TraceFormatError, match=r"more than 3.00 MB, the maximum size of a profile"):
        TraceFile(bomb)
