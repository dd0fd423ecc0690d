"""What a file is that is no XSpace: each format in a few bytes, and that no XSpace is taken for one of them."""

from __future__ import annotations

import gzip

import pytest
from builders import event, host, line, plane, space
from hypothesis import given
from hypothesis import strategies as st
from places import SHARED
from protobytes import field, message

from tfperf.formats.wire.other_formats import is_text, other_format

HEAD_BYTES = 1 << 16


def event_record(content: bytes) -> bytes:
    """A record of TensorFlow: length, checksum, content, checksum."""
    return len(content).to_bytes(8, "little") + b"sum1" + content + b"sum2"


def node(name: bytes, op: bytes) -> bytes:
    return message(field(1, name), field(2, op), field(3, b"x"))


GRAPH = field(1, node(b"a/x", b"Placeholder")) + field(1, node(b"a/y", b"_Arg"))
COMPUTATION = message(field(1, b"main"), field(2, message(field(1, b"add.1"), field(2, b"add"))))
HLO_MODULE = message(field(1, b"jit_f"), field(2, b"main"), field(3, COMPUTATION))
TFPROF_NODE = message(field(1, b"a/x"), field(5, b"Const"), field(9, b"Const"))
TRACES = message(field(1, field(2, 7)))
STEP_STATS = field(1, message(field(1, b"/job:localhost/device:CPU:0"), field(2, field(1, b"MatMul"))))

FORMATS = {
    "a trace for the trace viewer": (gzip.compress(b'{"traceEvents": []}'), "gzip-compressed JSON, such as an export"),
    "anything in gzip": (gzip.compress(b"\x0a\x0b"), "gzip-compressed; decompress it"),
    "gzip, cut off": (b"\x1f\x8b\x08\x00rest", "gzip-compressed; decompress it"),
    "JSON object": (b'{"a": 1}', "JSON, not an XSpace"),
    "JSON list": (b"[1]", "JSON, not an XSpace"),
    "events of TensorBoard": (event_record(field(3, b"brain.Event:2")), "a TensorBoard event file"),
    "zip": (b"PK\x03\x04" + bytes(30), "a zip archive"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(30), "an HDF5 file"),
    "SQLite": (b"SQLite format 3\x00" + bytes(30), "an SQLite database"),
    "text": (b"# Notes\n\tSome words.\n", "a text file"),
    "text that is cut off within a character": ("Größe und Länge: ü".encode()[:-1], "a text file"),
    "few words": (b"hello world\n", "a text file"),
    "two bytes of text": (b"\n(", ""),
    "an XSpace of a host name, cut off": (b'"\tlocalhost', ""),
    "HTML": (b"<!DOCTYPE html><html></html>", "an HTML page"),
    "HTML after a line": (b"\n<HTML><body>Sign in</body></HTML>", "an HTML page"),
    "XML": (b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', "an XML file"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git LFS pointer"),
    "bzip2": (b"BZh91AY&SY" + bytes(9), "compressed by bzip2"),
    "xz": (b"\xfd7zXZ\x00" + bytes(9), "compressed by xz"),
    "zstd": (b"\x28\xb5\x2f\xfd" + bytes(9), "compressed by zstd"),
    "zeros": (bytes(100), ""),
    "records of another kind": (event_record(b"\x0a\x05hello and more"), ""),
    "profile of tfprof": (field(1, field(1, 0) + field(2, TFPROF_NODE)) + field(2, 1), "(ProfileProto)"),
    "log of tfprof": (field(1, field(1, b"a/x") + field(4, TRACES)), "(OpLogProto)"),
    "result of tfprof": (field(1, b"_TFProfRoot") + field(6, 7), "(GraphNodeProto)"),
    "graph": (GRAPH + field(4, field(1, 27)), "(GraphDef), not an XSpace; pass a *.xplane.pb file"),
    "meta graph": (field(1, field(5, b"2.1")) + field(2, GRAPH), "(MetaGraphDef)"),
    "saved model": (field(1, 1) + field(2, field(1, field(5, b"2.1")) + field(2, GRAPH)), "a TensorFlow SavedModel"),
    "what a session ran": (field(1, STEP_STATS), "a TensorFlow RunMetadata"),
    "graphs of a session": (field(3, GRAPH), "a TensorFlow RunMetadata"),
    "graphs of functions": (field(4, field(1, GRAPH)), "a TensorFlow RunMetadata"),
    "program of XLA": (field(1, HLO_MODULE), "(HloProto)"),
    "program of XLA alone": (HLO_MODULE, "(HloProto)"),
    "snapshot of XLA": (field(1, field(1, HLO_MODULE)), "(HloProto)"),
    "timeline": (field(1, field(10, 1) + field(60, b"")), "a Perfetto timeline"),
    "table of numbers and texts": (field(1, field(1, 1) + field(2, b"cat")), ""),
    "nothing": (b"", ""),
}


@pytest.mark.parametrize("case", FORMATS)
def test_the_first_bytes_tell_the_format(case: str) -> None:
    head, said = FORMATS[case]
    assert said in other_format(head) if said else other_format(head) == ""


@pytest.mark.parametrize("case", ["graph", "profile of tfprof", "program of XLA"])
def test_a_message_longer_than_what_is_looked_at(case: str) -> None:
    """The last field is cut off, as the first plane of a large trace would be."""
    head, said = FORMATS[case]
    assert said in other_format((head + field(2, bytes(HEAD_BYTES)))[:HEAD_BYTES])


XSPACE = space(
    host(event("a/b:MatMul", 0, 5, step_num=1), event("_Op", 1, 2, step_name="graph\nof\n two")),
    plane("/device:GPU:0", line("stream", event("k", 0, 1))),
    plane("/host:metadata"),
    errors=("CUPTI: no permission\n  see https://example.com",),
)


def test_an_xspace_is_none_of_them_wherever_it_is_cut_off() -> None:
    for stop in range(1, len(XSPACE) + 1):
        assert other_format(XSPACE[:stop]) == "", stop


@given(place=st.integers(0, len(XSPACE) - 1), byte=st.integers(0, 255))
def test_an_xspace_with_a_damaged_byte_is_none_of_them(place: int, byte: int) -> None:
    """But for the first bytes, where the kind of the first field stands."""
    damaged = XSPACE[:place] + bytes([byte]) + XSPACE[place + 1 :]
    assert other_format(damaged) == "" or place == 0


def test_no_real_xspace_is_one_of_them() -> None:
    for path in SHARED.glob("traces/**/*.xplane.pb"):
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        assert other_format(head) == "", path


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("*/profile*.pb", "(ProfileProto)"),
        ("*/tfprof_log", "(OpLogProto)"),
        ("*/*.node.pb", "(GraphNodeProto)"),
        ("**/*graph.pb", "(GraphDef)"),
        ("**/run_metadata*.pb", "a TensorFlow RunMetadata"),
        ("*/*.ckpt.meta", "(MetaGraphDef)"),
        ("**/saved_model.pb", "a TensorFlow SavedModel"),
        ("**/*hlo*.pb", "(HloProto)"),
    ],
)
def test_real_files_of_other_kinds(pattern: str, said: str) -> None:
    files = [path for path in (SHARED / "tfprof").glob(pattern) if path.stat().st_size]
    if not files:
        pytest.skip(f"{SHARED / 'tfprof'} is not there: it is no part of the project")
    for path in files:
        assert f"{said}, not an XSpace" in other_format(path.read_bytes()[:HEAD_BYTES]), path


def test_text_is_what_people_read() -> None:
    assert all(map(is_text, (b"words\n", "größe".encode(), b"")))
    assert not any(map(is_text, (b"\x00", b"a\x1b[1m", b"\xff" * 9)))
