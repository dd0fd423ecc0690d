"""Tracks that are derived from the kernels of a GPU, and counters of devices and buffers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import Event, Plane, event, gpu, host, iterator_call, line, plane, programs, ref
from export.timeline.example_files import exported, shown
from export.timeline.perfetto_reader import Read
from hlo_builders import F32, computation, instruction, program, shape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import TRACES
from protobytes import field

from tfperf.base.errors import TfperfError
from tfperf.export.timeline.export import write_timeline
from tfperf.export.timeline.selection import Selection

US = 1000
MODULES, SCOPES, OPS, HLO_OPS, SOURCES = (
    "XLA Modules",
    "Framework Name Scope",
    "Framework Ops",
    "XLA Ops",
    "Source code",
)


def op(number: int, name: str, op_name: str, source_line: int) -> bytes:
    metadata = field(2, op_name.encode()) + field(3, b"/home/me/a.py") + field(4, source_line)
    return instruction(number, name, "fusion", shape(F32, 8), extra=field(7, metadata))


PROGRAM = program(
    computation(
        "main",
        op(1, "fusion.1", "jit(f)/layer_1/add", 1),
        op(2, "custom-call.2", "jit(f)/layer_1/dot_general", 2),
        op(3, "fusion.3", "jit(f)/layer_2/add", 2),
        instruction(4, "copy.4", "copy", shape(F32, 8)),
    )
)


def kernel(hlo_op: str, start: float, duration: float, launch: int = 0, **stats: Any) -> Event:
    stats = {"hlo_op": ref(hlo_op), "hlo_module": ref("jit_f"), "program_id": 7, "correlation_id": launch, **stats}
    return event(hlo_op.replace(".", "_"), start, duration, **stats)


def launches(*runs: range) -> Plane:
    """Runs of the program on the host, each of which launches some kernels: the second one begins at 20."""
    calls = [event("cuLaunchKernel", n, 0.5, correlation_id=n) for run in runs for n in run]
    executed = [event("[0] GpuExecutable::ExecuteThunks", run[0] - 0.2, len(run)) for run in runs]
    return host(*executed, *calls)


RUNS = (
    kernel("fusion.1", 100, 10, 1),
    kernel("custom-call.2", 110, 20, 2),
    kernel("custom-call.2", 132, 8, 3),
    event("MemcpyD2H", 141, 5, memcpy_details="size:4"),
    kernel("fusion.3", 150, 10, 4),
    kernel("fusion.3", 200, 10, 20),
    kernel("copy.4", 212, 5, 21),
)
TWO_RUNS = (launches(range(1, 5), range(20, 22)), gpu(*RUNS), programs(id_7=PROGRAM))


def on(read: Read, name: str) -> list[tuple[str, float, float, int]]:
    """Names, times in microseconds and depths of the slices of a track."""
    return [(each.name, each.start_ns / US, each.end_ns / US, each.depth) for each in read.on(name)]


def test_tracks_of_two_runs_of_a_program(tmp_path: Path) -> None:
    """The last op of the first run is the first one of the second; a copy to the host belongs to no op."""
    read = shown(tmp_path, *TWO_RUNS)
    assert on(read, MODULES) == [("jit_f(7)", 100, 160, 0), ("jit_f(7)", 200, 217, 0)]
    assert on(read, SCOPES) == [
        ("jit(f)", 100, 160, 0),
        ("layer_1", 100, 140, 1),
        ("layer_2", 150, 160, 1),
        ("jit(f)", 200, 210, 0),
        ("layer_2", 200, 210, 1),
    ]
    assert on(read, OPS) == [
        ("add", 100, 110, 0),
        ("dot_general", 110, 140, 0),
        ("add", 150, 160, 0),
        ("add", 200, 210, 0),
    ]
    assert on(read, HLO_OPS) == [
        ("fusion.1", 100, 110, 0),
        ("custom-call.2", 110, 140, 0),
        ("fusion.3", 150, 160, 0),
        ("fusion.3", 200, 210, 0),
        ("copy.4", 212, 217, 0),
    ]
    source = "/home/me/a.py"
    assert on(read, SOURCES) == [
        (f"{source}:1", 100, 110, 0),
        (f"{source}:2", 110, 160, 0),
        (f"{source}:2", 200, 210, 0),
    ]
    assert read.on(HLO_OPS)[1].args == {
        "events": 2,
        "event time (ns)": 28_000,
        "op": "jit(f)/layer_1/dot_general",
        "source": f"{source}:2",
    }
    assert read.on(OPS)[0].args == {"events": 1, "event time (ns)": 10_000, "op": "jit(f)/layer_1/add"}


def test_calls_on_lines_of_their_own_belong_to_the_thread_that_encloses_most(tmp_path: Path) -> None:
    """As AMD's profiler records them. Another device executes at the same time, but not for as long."""
    runs = launches(range(1, 5), range(20, 22)).lines[0].events
    executed = line("main", *(each for each in runs if "Execute" in each.name))
    other = line("other", event("[1] GpuExecutable::ExecuteThunks", 0, 3))
    calls = line("Host Threads/7", *(each for each in runs if "Launch" in each.name))
    cpu = (plane("/host:CPU", executed, other), plane("/host:ROCTRACER", calls))
    read = shown(tmp_path, *cpu, gpu(*RUNS), programs(id_7=PROGRAM))
    assert on(read, MODULES) == [("jit_f(7)", 100, 160, 0), ("jit_f(7)", 200, 217, 0)]


def test_an_op_without_a_name_separates_ops_but_not_scopes(tmp_path: Path) -> None:
    kernels = (kernel(name, 100 + 10 * n, 10) for n, name in enumerate(("fusion.1", "copy.4", "fusion.1")))
    read = shown(tmp_path, gpu(*kernels), programs(id_7=PROGRAM))
    assert on(read, OPS) == [("add", 100, 110, 0), ("add", 120, 130, 0)]
    assert [each[1:] for each in on(read, SCOPES)] == [(100, 130, 0), (100, 130, 1)]


def test_loops_enclose_their_ops(tmp_path: Path) -> None:
    """Runs of the op inside are numbered; those of the loop are not, so it is one event."""
    body = [kernel("while.5::fusion.1", 100 + 10 * n, 8, scope_range_id=40 + n) for n in range(3)]
    read = shown(tmp_path, gpu(*body, kernel("fusion.3", 130, 5)), programs(id_7=PROGRAM))
    assert on(read, HLO_OPS) == [
        ("while.5", 100, 128, 0),
        ("fusion.1", 100, 108, 1),
        ("fusion.1", 110, 118, 1),
        ("fusion.1", 120, 128, 1),
        ("fusion.3", 130, 135, 0),
    ]


def test_kernels_that_overlap(tmp_path: Path) -> None:
    """The first ends just after the second begins, in which the third runs."""
    kernels = kernel("fusion.1", 100, 11), kernel("custom-call.2", 110, 20), kernel("copy.4", 115, 5)
    read = shown(tmp_path, gpu(*kernels, kernel("fusion.3", 130, 5)), programs(id_7=PROGRAM))
    assert on(read, HLO_OPS) == [("fusion.1", 100, 110, 0), ("custom-call.2", 110, 130, 0), ("fusion.3", 130, 135, 0)]
    assert on(read, f"{HLO_OPS} (2)") == [("copy.4", 115, 120, 0)]
    assert [each.args["event time (ns)"] for each in read.on(HLO_OPS)] == [11_000, 20_000, 5_000]


KERNELS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.sampled_from(["a", "b", "w::a", "w::b", "w"])), max_size=20
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(streams=st.lists(KERNELS, min_size=1, max_size=2))
def test_whatever_overlaps_every_kernel_is_in_an_op_and_slices_nest(
    tmp_path: Path, streams: list[list[tuple[int, int, str]]]
) -> None:
    """The reader fails for slices that do not nest."""
    lines = [
        line(f"Stream #{number}", *(kernel(name, start, length) for start, length, name in kernels), id=number)
        for number, kernels in enumerate(streams, 1)
    ]
    read = shown(tmp_path, plane("/device:GPU:0", *lines))
    (tmp_path / "made.pftrace").unlink()
    tracks = {uuid for uuid, track in read.tracks.items() if track.name.startswith(HLO_OPS)}
    outer = [each for each in read.slices if each.track in tracks and each.depth == 0]
    assert sum(each.args["events"] for each in outer) == sum(map(len, streams))
    lengths = sum(length for kernels in streams for _, length, _ in kernels)
    assert sum(each.args["event time (ns)"] for each in outer) == lengths * US


def test_streams_have_tracks_of_their_own(tmp_path: Path) -> None:
    """The stream with most ops comes first; one without any has none."""
    one = line("Stream #1", kernel("fusion.1", 100, 10), id=1)
    two = line("Stream #2", kernel("fusion.1", 105, 10), kernel("fusion.3", 120, 10), id=2)
    three = line("Stream #3", event("MemcpyH2D", 100, 5, memcpy_details="size:4"), id=3)
    read = shown(tmp_path, plane("/device:GPU:0", one, two, three), programs(id_7=PROGRAM))
    assert on(read, HLO_OPS) == [("fusion.1", 105, 115, 0), ("fusion.3", 120, 130, 0)]
    assert on(read, f"{HLO_OPS} - Stream #1") == [("fusion.1", 100, 110, 0)]
    titles = [track.name for track in read.tracks.values() if track.HasField("process")]
    assert titles == ["GPU:0 ops", "/device:GPU:0"]
    assert len(read.tracks) == 1 + 2 + 2 * 5 + 3 + 1


def test_ops_of_tensorflow_end_with_their_step(tmp_path: Path) -> None:
    """The call tells the step of a kernel, which begins later."""
    steps = host(
        *(event("train", 50 * n, 50, step_num=n) for n in range(2)),
        *(event("cuLaunchKernel", at, 1, correlation_id=number) for number, at in enumerate((10, 12, 55), 1)),
    )
    names = ("net/dense/MatMul:MatMul", "net/dense/MatMul:MatMul", "net/dense/MatMul:MatMul")
    kernels = [
        event("gemm", at, 8, tf_op=ref(name), correlation_id=number)
        for number, (at, name) in enumerate(zip((40, 52, 70), names, strict=True), 1)
    ]
    read = shown(tmp_path, steps, gpu(*kernels, event("unnamed", 80, 5)))
    assert on(read, OPS) == [("MatMul", 40, 60, 0), ("MatMul", 70, 78, 0)]
    assert on(read, SCOPES) == [("net", 40, 60, 0), ("dense", 40, 60, 1), ("net", 70, 78, 0), ("dense", 70, 78, 1)]
    assert not [name for name in (MODULES, HLO_OPS, SOURCES) if read.on(name)]


@pytest.mark.parametrize("name", ["XLA Ops", "TensorFlow Ops", "XLA Modules - from #14"])
def test_a_profile_keeps_the_tracks_that_it_has(name: str, tmp_path: Path) -> None:
    """Of the other device, the program and the HLO op; the program's names are missing."""
    stored = line(name, event("mine", 100, 10), id=-559038734)
    other = plane("/device:GPU:1", line("Stream #1", kernel("fusion.1", 100, 10)))
    result, _ = exported(tmp_path, plane("/device:GPU:0", line("Stream #1", *RUNS, id=1), stored), other)
    assert (result.derived, result.shown) == (2, len(RUNS) + 2)


def test_parts_of_derived_tracks(tmp_path: Path) -> None:
    """Tracks are selected like threads, events by step and duration."""
    assert on(shown(tmp_path, *TWO_RUNS, selection=Selection(threads=("XLA M*",))), MODULES)[0] == (
        "jit_f(7)",
        100,
        160,
        0,
    )
    (tmp_path / "made.pftrace").unlink()
    read = shown(tmp_path, *TWO_RUNS, selection=Selection(threads=("Stream*",), min_duration_ps=0))
    assert {each.category for each in read.slices} == {"gpu"}
    (tmp_path / "made.pftrace").unlink()
    read = shown(tmp_path, *TWO_RUNS, selection=Selection(min_duration_ps=30_000_000))
    assert on(read, HLO_OPS) == [("custom-call.2", 110, 140, 0)]
    (tmp_path / "made.pftrace").unlink()
    marks = line("python", *(event("train", 100 * n, 100, step_num=n) for n in range(3)))
    read = shown(tmp_path, *TWO_RUNS[1:], plane("/host:CPU", marks), selection=Selection(steps=(2, 2)))
    assert [name for name, *_ in on(read, HLO_OPS)] == ["fusion.3", "copy.4"]
    (tmp_path / "made.pftrace").unlink()
    with pytest.raises(TfperfError, match="no thread or plane is named XLA X"):
        shown(tmp_path, *TWO_RUNS, selection=Selection(threads=("XLA X*",)))


def test_the_summary_counts_derived_events_apart(tmp_path: Path) -> None:
    result, output = exported(tmp_path, *TWO_RUNS, name="o.json")
    assert (result.events, result.shown, result.derived) == (8 + 7, 8 + 7, 2 + 5 + 4 + 5 + 3)
    assert "19 derived events" in next(result.sentences())
    events = json.loads(output.read_text())["traceEvents"]
    assert events[-1]["args"]["events"] == 15
    assert sum(each.get("cat") == "derived" for each in events) == 19


def counters(output: Path) -> dict[str, list[tuple[float, dict[str, int]]]]:
    found: dict[str, list[tuple[float, dict[str, int]]]] = {}
    for each in json.loads(output.read_text())["traceEvents"]:
        if each["ph"] == "C":
            found.setdefault(each["name"], []).append((each["ts"], each["args"]))
    return found


def test_a_device_is_busy_for_a_share_of_each_window(tmp_path: Path) -> None:
    """1 ms in windows of 1 us: 0 to 3 busy, one copy of half a microsecond, and the end."""
    events = (
        event("a", 0, 2),
        event("MemcpyH2D", 2, 1, memcpy_details="size:4"),
        event("b", 10.25, 0.5),
        event("c", 999, 1),
    )
    (track,) = [each for each in shown(tmp_path, gpu(*events)).tracks.values() if each.HasField("counter")]
    assert (track.counter.unit, track.counter.unit_name) == (0, "%")
    _, output = exported(tmp_path, gpu(*events), name="o.json")
    values = [(0, 100), (3, 0), (10, 50), (11, 0), (999, 100), (1000, 0)]
    assert counters(output) == {"busy, % of 1 us": [(time, {"%": value}) for time, value in values]}


def test_windows_of_a_step(tmp_path: Path) -> None:
    """Step 1 lasts from 2 to 4 ms: windows of 2 us."""
    marks = host(*(event("train", 2000 * n, 2000, step_num=n) for n in range(3)))
    result, output = exported(
        tmp_path, marks, gpu(event("a", 3000, 5)), selection=Selection(steps=(1, 1)), name="o.json"
    )
    found = counters(output)["busy, % of 2 us"]
    assert found == [(2000, {"%": 0}), (3000, {"%": 100}), (3004, {"%": 50}), (3006, {"%": 0})]
    assert result.counters == 1


def test_elements_in_buffers(tmp_path: Path) -> None:
    """An empty buffer is not recorded; Map has no buffer."""
    calls = [
        iterator_call("Root", 0, 5, 1),
        iterator_call("Root::Prefetch", 0, 5, 2, 1, buffer_limit=4, buffered_elements=3, cpu_budget=8),
        iterator_call("Root", 10, 5, 1),
        iterator_call("Root::Prefetch", 10, 5, 2, 1, buffer_limit=4, cpu_budget=8),
        iterator_call("Root::Prefetch::Map", 10, 1, 3, 2),
    ]
    _, output = exported(tmp_path, host(*calls), name="o.json")
    assert counters(output) == {"buffer of Root::Prefetch": [(0, {"elements": 3}), (10, {"elements": 0})]}


@pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")
def test_runs_of_a_real_program(tmp_path: Path) -> None:
    """XProf 2.24 shows 30 runs, because it merges neighboring ones and leaves out 12 copies of programs."""
    result = write_timeline(TRACES / "jax_mi300x" / "jax08_gemm", tmp_path / "o.json")
    events = json.loads((tmp_path / "o.json").read_text())["traceEvents"]
    tracks = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    on_tracks = [tracks[each["pid"], each["tid"]] for each in events if each["ph"] == "X" and each["cat"] == "derived"]
    counts = {name: on_tracks.count(name) for name in (MODULES, SCOPES, OPS, HLO_OPS, SOURCES)}
    assert counts == {MODULES: 42, SCOPES: 30, OPS: 30, HLO_OPS: 42, SOURCES: 30}
    assert result.derived == 174
