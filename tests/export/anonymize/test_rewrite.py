"""Trace files with every text replaced."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import event, host, line, plane, ref, space
from hlo_builders import F32, computation, instruction, program, shape
from hypothesis import given
from hypothesis import strategies as st
from protobytes import field, message

from tfperf.base.errors import TraceFormatError
from tfperf.export.anonymize import rewrite
from tfperf.formats.hlo.messages import PROGRAMS
from tfperf.formats.wire import planes
from tfperf.formats.wire.schema import message_class
from tfperf.formats.wire.trace_file import TraceFile


def rewritten(tmp_path: Path, data: bytes, host_name: str = "host1") -> bytes:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(data)
    out = io.BytesIO()
    with TraceFile(path) as file:
        rewrite(file, out, str.upper, lambda digits: f"9{digits}", host_name)
    return out.getvalue()


def test_texts_are_replaced_and_numbers_stay(tmp_path: Path) -> None:
    def made(f: Callable[[str], str], hostname: str) -> bytes:
        stats = {f("step_num"): -3, f("ratio"): 0.5, f("text"): f("b"), f("kept"): ref(f("c"))}
        thread = line(f("python"), event(f("a"), 1, 2, **stats), timestamp_ns=5)
        facts, of_names = {f("of plane"): f("d"), f("count"): 7}, {f("a"): {f("of name"): f("e")}}
        made = plane(f("/host:cpu"), thread, stats=facts, name_stats=of_names)
        return space(made, hostname=hostname, errors=(f("bad"),))

    parse = message_class("XSpace").FromString
    assert parse(rewritten(tmp_path, made(str.lower, "machine"))) == parse(made(str.upper, "host1"))


def test_what_is_not_declared_and_bytes_that_are_no_program_are_left_out(tmp_path: Path) -> None:
    data = space(host(event("a", 1, 2, blob=b"secret"), event("b", 4, 2, other=1)))
    data += field(1, message(field(2, b"/host:CPU"), field(3, message(field(2, b"line"), field(99, b"secret")))))
    assert b"secret" not in rewritten(tmp_path, data).lower()


def test_which_core_a_plane_is_stays(tmp_path: Path) -> None:
    """The numbers of a core are bytes, of which only those that are known stay."""
    core = message(field(2, 3), field(5, 200), field(6, 201))
    data = space(plane("/device:TPU:3", stats={"core_details": core + field(99, b"secret"), "other": b"secret"}))
    copy = rewritten(tmp_path, data)
    assert core in copy
    assert b"secret" not in copy.lower()


def test_a_program_keeps_its_numbers(tmp_path: Path) -> None:
    metadata = message(field(2, b"op"), field(4, 12))
    window = message(field(1, message(field(1, 3), field(2, 2))))
    extra = field(7, metadata) + field(15, window) + field(43, b'{"a":"b"}')
    buffers = field(3, message(field(1, 1), field(2, 4096)))
    made = program(
        computation("main", instruction(5, "r", "dot", shape(F32, 8, 9), [1, 2], extra=extra)), buffers=buffers
    )
    data = space(plane("/host:metadata", line("x", event("p", 0, 1)), name_stats={"p": {"Hlo Proto": made}}))
    out = message_class("XSpace").FromString(rewritten(tmp_path, data))
    stat = out.planes[0].event_metadata[0].value.stats[0]
    proto = PROGRAMS.message_class("HloProto").FromString(stat.bytes_value)
    kept = proto.hlo_module.computations[0].instructions[0]
    assert (kept.name, kept.opcode, kept.metadata.op_name, kept.backend_config) == (b"R", b"DOT", b"OP", b'{"A":"B"}')
    assert (kept.id, list(kept.operand_ids), list(kept.shape.dimensions)) == (5, [1, 2], [8, 9])
    assert (kept.metadata.source_line, kept.window.dimensions[0].stride) == (12, 2)
    assert proto.buffer_assignment.buffer_allocations[0].size == 4096


@given(st.integers(0, 40), st.integers(20, 400))
def test_pieces_of_lines_make_the_same_file(tmp_path_factory: pytest.TempPathFactory, count: int, piece: int) -> None:
    folder = tmp_path_factory.mktemp("rewrite")
    events = [
        event(f"name {n % 3}", n, 1, number=n, **({"text": f"text {n}"} if n % 4 == 0 else {})) for n in range(count)
    ]
    data = space(plane("/host:CPU", line("one", *events), line("two", *events[:2])))
    whole = rewritten(folder, data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfperf.export.anonymize.BATCH_BYTES", piece)
        in_pieces = rewritten(folder, data)
    parse = message_class("XSpace").FromString
    assert parse(in_pieces) == parse(whole)
    assert piece < planes.BATCH_BYTES


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_damaged_file_is_an_error(tmp_path: Path, cut: int) -> None:
    data = space(host(*(event(f"name {n}", n, 1) for n in range(20))))
    with pytest.raises(TraceFormatError, match="damaged"):
        rewritten(tmp_path, data[:-cut])


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="JSON"):
        rewritten(tmp_path, b'{"traceEvents": []}')


def test_numbers_of_processes_and_threads_are_replaced_where_they_are_names(tmp_path: Path) -> None:
    """The id of a line is that of its thread if its name ends with it; other ids are numbers that tfperf needs."""
    made = plane(
        "/host:CPU",
        line("main/4711", event("a", 0, 1), id=4711),
        line("pool", event("a", 0, 1), id=4712),
        stats={"process_id": 4711, "core_count": 4711},
    )
    copy = message_class("XSpace").FromString(rewritten(tmp_path, space(made)))
    (host,) = copy.planes
    assert [each.id for each in host.lines] == [94711, 4712]
    assert sorted(stat.int64_value for stat in host.stats) == [4711, 94711]


def test_a_host_s_name_is_replaced_in_other_texts_too(tmp_path: Path) -> None:
    made = plane("/host:CPU", line("x", event("to t1v-n-0a1b2c3d-w-0:8471", 0, 1)))
    data = rewritten(tmp_path, space(made, hostname="t1v-n-0a1b2c3d-w-0"))
    copy = message_class("XSpace").FromString(data)
    assert copy.planes[0].event_metadata[0].value.name == b"TO HOST1:8471"


def test_bytes_that_are_numbers_stay(tmp_path: Path) -> None:
    accesses = field(1, message(field(1, 2), field(2, 1), field(3, 400)))
    facts = {"memory_access_breakdown": accesses + field(9, b"secret"), "other": accesses}
    data = space(plane("/device:TPU:0", line("x", event("a", 0, 1)), name_stats={"a": facts}))
    copy = message_class("XSpace").FromString(rewritten(tmp_path, data))
    assert [stat.bytes_value for stat in copy.planes[0].event_metadata[0].value.stats] == [accesses, b""]
