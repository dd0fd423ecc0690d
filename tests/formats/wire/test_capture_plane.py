"""The plane that captures of this project add: what is written is read back, and what cannot be true is unknown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import event, host, known, plane, space, trace_of
from protobytes import written

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE, CaptureFacts, CpuSample, Pause, PythonRecord
from tfperf.formats.wire.contents import look_into
from tfperf.formats.wire.schema import message_class
from tfperf.trace.read import read_host

pytestmark = pytest.mark.usefixtures("decoder_name")
FACTS = CaptureFacts(
    tfperf_version="1.2", tensorflow_version="2.21.0", cpu_model="Some CPU", cpu_count=8, cpu_affinity=4, cpu_quota=1.5,
    memory_bytes=1 << 34, batch_size=32, overhead_percent=0.0, task_index=0, start_time_us=1_790_000_000_000_000,
)  # fmt: skip


def test_appended_to_a_trace_it_is_one_more_plane(tmp_path: Path) -> None:
    trace = space(host(event("train", 0, 10, step_num=1)))
    path = written(tmp_path, trace, FACTS.to_bytes())
    assert read_host(path).capture_facts == FACTS
    planes = message_class("XSpace").FromString(path.read_bytes()).planes
    assert [made.name for made in planes] == [b"/host:CPU", CAPTURE_PLANE.encode()]
    assert look_into(path).event_count == 1, "it holds no events"


def test_what_python_did_is_on_lines_of_its_own(tmp_path: Path) -> None:
    start_ns = FACTS.start_time_us * 1000 if FACTS.start_time_us else 0
    pause = Pause(start_ns + 5_000, 3_000, thread=7, generation=2, collected=4, place="train.py:12 clean")
    samples = [
        CpuSample(start_ns + at, cpu, queued) for at, cpu, queued in ((0, 50, 0), (4000, 1050, 500), (9000, 1050, 500))
    ]
    record = PythonRecord(pauses=[pause], samples={7: samples})
    path = written(tmp_path, space(host(event("train", 0, 10))), FACTS.to_bytes(record, start_ns))
    trace = read_host(path)
    assert trace.capture_facts == FACTS
    assert len(trace.name) == 1, "the events of the capture are no events of the job"
    pauses, times = known(trace.python_activity.pauses), known(trace.python_activity.cpu)
    assert (pauses.start_ps.tolist(), pauses.end_ps.tolist()) == ([5_000_000], [8_000_000])
    assert (pauses.generation.tolist(), pauses.places) == ([2], ("train.py:12 clean",))
    assert (times.start_ps.tolist(), times.end_ps.tolist()) == ([0, 4_000_000], [4_000_000, 9_000_000])
    assert (times.cpu_ps.tolist(), times.queued_ps.tolist()) == ([1_000_000, 0], [500_000, 0])
    shown = read_host(path, everything=True)
    assert [line.name for line in shown.lines] == ["python", "Garbage collection", "CPU time of thread 7"]
    assert "garbage collection, generation 2" in shown.names


def test_that_no_collection_ran_is_known_if_the_start_of_the_session_is(tmp_path: Path) -> None:
    path = written(tmp_path, FACTS.to_bytes(PythonRecord(), 1))
    assert not len(known(read_host(path).python_activity.pauses).start_ps)
    path = written(tmp_path, FACTS.to_bytes(PythonRecord(), None))
    assert read_host(path).python_activity.pauses is None


def test_what_is_unknown_is_not_written(tmp_path: Path) -> None:
    path = written(tmp_path, FACTS.to_bytes())
    (made,) = message_class("XSpace").FromString(path.read_bytes()).planes
    names = {entry.value.name.decode() for entry in made.stat_metadata}
    assert len(made.stats) == len(names) == 12
    assert not {"cuda_version", "replicas"} & names


def test_a_trace_of_another_profiler_states_nothing(tmp_path: Path) -> None:
    assert trace_of(tmp_path, host(event("train", 0, 10))).capture_facts == CaptureFacts()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("batch_size", value) for value in ("many", -3, 2.5, 0)),
        ("task_index", -1),
        ("cpu_quota", float("nan")),
        ("overhead_percent", float("inf")),
        ("cpu_model", 7),
        ("memory_bytes", 1 << 62),
        ("something_else", 5),
    ],
)
def test_what_cannot_be_true_is_unknown(tmp_path: Path, key: str, value: object) -> None:
    assert trace_of(tmp_path, plane(CAPTURE_PLANE, stats={key: value})).capture_facts == CaptureFacts()


def test_a_long_text_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path, CaptureFacts(cpu_model="x" * 5000).to_bytes())
    assert read_host(path).capture_facts.cpu_model == "x" * 200


@pytest.mark.parametrize(
    ("facts", "cores"),
    [
        (CaptureFacts(), None),
        (CaptureFacts(cpu_count=8), 8.0),
        (CaptureFacts(cpu_count=8, cpu_affinity=4), 4.0),
        (CaptureFacts(cpu_count=8, cpu_affinity=4, cpu_quota=1.5), 1.5),
        (CaptureFacts(cpu_count=8, cpu_quota=16.0), 8.0),
    ],
)
def test_cores_are_what_the_tightest_limit_leaves(facts: CaptureFacts, cores: float | None) -> None:
    assert facts.cores == cores


def test_the_page_lists_every_stat(root: Path) -> None:
    text = (root / "docs" / "capture.md").read_text()
    table = text.partition("<!-- capture facts -->")[2].partition("<!-- end -->")[0]
    listed = [
        name for line in table.splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1 if "|" in line else 0])
    ]
    assert listed == list(CaptureFacts.__struct_fields__)


def test_memory_is_what_the_tighter_limit_leaves() -> None:
    assert CaptureFacts(memory_bytes=8, memory_limit_bytes=4).usable_memory_bytes == 4
    assert CaptureFacts(memory_bytes=8).usable_memory_bytes == 8
    assert CaptureFacts().usable_memory_bytes is None
