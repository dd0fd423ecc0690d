"""Views as files for trace viewers: real times of the graph view, the layout of the others, and strict JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest
from export.timeline.perfetto_reader import read_perfetto
from hypothesis import given
from hypothesis import strategies as st
from tfprof_builders import (
    CPU,
    GPU,
    REFERENCE,
    STREAMS,
    message,
    model,
    node,
    op_log,
    ran,
    reference_model,
    run_metadata,
)

from tfperf.formats.models.graph_def import read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof import timeline
from tfperf.models.tfprof.model import Model, build_model
from tfperf.models.tfprof.options import PRESETS, Options, options_from
from tfperf.models.tfprof.run_metadata import read_run_metadata
from tfperf.models.tfprof.timeline import write_timeline
from tfperf.models.tfprof.views import View

MEMORY = "Memory: " + GPU.lower()


def options(**given: Any) -> Options:
    return options_from({"max_depth": 100, **given})


def strict(data: bytes) -> Any:
    """Read JSON as the standard has it: no NaN, no key twice."""

    def refuse(constant: str) -> NoReturn:
        raise ValueError(constant)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return json.loads(data.decode("utf-8"), parse_constant=refuse, object_pairs_hook=once)


class Opened:
    """A file as a viewer reads it."""

    def __init__(self, data: bytes) -> None:
        document = strict(data)
        assert document["displayTimeUnit"] == "ns"
        self.events: list[dict[str, Any]] = document["traceEvents"]
        named = [event for event in self.events if event["name"] == "process_name"]
        self.processes = {event["args"]["name"]: event["pid"] for event in named}

    def of(self, phase: str, process: str = "") -> list[dict[str, Any]]:
        found = [event for event in self.events if event["ph"] == phase]
        return [event for event in found if not process or event["pid"] == self.processes[process]]

    def boxes(self, process: str) -> list[tuple[Any, ...]]:
        found = self.of("X", process)
        first = min(event["tid"] for event in found) - 1
        return [(event["name"], event["ts"], event["dur"], event["tid"] - first) for event in found]

    def counters(self) -> list[tuple[str, int, int]]:
        return [(event["name"], event["ts"], event["args"]["bytes"]) for event in self.of("C", MEMORY)]

    def arrows(self) -> list[tuple[str, str]]:
        """Return the names of the boxes that arrows lead from and to: those around their ends."""

        def around(end: dict[str, Any]) -> str:
            places = [
                event["name"]
                for event in (*self.of("X"), *self.of("i"))
                if (event["pid"], event["tid"]) == (end["pid"], end["tid"])
                and event["ts"] <= end["ts"] < event["ts"] + max(event.get("dur", 0), 1)
            ]
            assert len(places) == 1
            return str(places[0])

        ends = {end["id"]: end for end in self.of("f")}
        return [(around(start), around(ends[start["id"]])) for start in self.of("s")]


def opened(of: Model, view: View, asked: Options, folder: Path) -> Opened:
    write_timeline(of, view, asked, folder / "any.name")
    assert [path.name for path in folder.iterdir() if path.is_file() and path.name.startswith("any")] == ["any.name"]
    return Opened((folder / "any.name").read_bytes())


def allocated(name: str, start: int, duration: int, in_use: int, **changes: int) -> bytes:
    """Return the record of a node on an accelerator: `t10=500` takes 500 bytes at microsecond 10."""
    records = [{"alloc_micros": int(time[1:]), "alloc_bytes": size} for time, size in changes.items()]
    log = {"allocator_name": b"GPU_0_bfc", "allocator_bytes_in_use": in_use, "allocation_records": records}
    host = {"allocator_name": b"gpu_host_bfc", "allocator_bytes_in_use": 77, "allocation_records": records}
    memory = {"memory": [log, host], "memory_stats": {"persistent_memory_size": 8}}
    # What tfprof reads first leaves the log of allocators out.
    of = message("NodeMemory", all_start_micros=start, op_end_rel_micros=duration, **memory)
    return of + ran(name, start, duration)


@pytest.fixture
def small(tmp_path: Path) -> Model:
    """Two ops on a GPU feed one on a CPU, in two steps."""
    nodes = [node("a", "Conv2D"), node("b", "Relu", "a"), node("scope/c", "Sum", "b", "a")]

    def step(at: int) -> bytes:
        a = allocated("a", at + 10, 5, 1000, **{f"t{at + 10}": 600, f"t{at + 14}": -100})
        b = allocated("b", at + 20, 5, 900, **{f"t{at + 21}": 300})
        streams, sums = [ran("a:k", at + 12, 30), ran("b:k", at + 40, 20)], [(at + 50, 1), (at + 60, 4)]
        return run_metadata({GPU: [a, b], STREAMS: streams, CPU: [ran("scope/c", *each) for each in sums]})

    log = op_log({"scope/c": {"stack": [("main.py", 1, "f")]}})
    return model(tmp_path, nodes, {3: step(1000), 4: step(5000)}, log)


def test_the_graph_view_has_real_times(small: Model, tmp_path: Path) -> None:
    file = opened(small, "graph", options(step=3), tmp_path)
    gpu, cpu = GPU.lower(), CPU.lower()
    processes = f"Op execution: {STREAMS.lower()}", f"Op scheduling: {gpu}", f"Op execution: {cpu}", MEMORY
    assert (*file.processes,) == processes
    # Kernels of a and b overlap.
    assert file.boxes(f"Op execution: {STREAMS.lower()}") == [("a", 1012, 30, 1), ("b", 1040, 20, 2)]
    assert file.boxes(f"Op scheduling: {gpu}") == [("a", 1010, 5, 1), ("b", 1020, 5, 1)]
    assert file.boxes(f"Op execution: {cpu}") == [("scope/c", 1050, 1, 1), ("scope/c", 1060, 4, 1)]
    assert {event["args"]["op"] for event in file.of("X")} == {"Conv2D", "Relu", "Sum"}
    named = [(event["pid"], event["args"]["name"]) for event in file.of("M") if event["name"] == "thread_name"]
    assert named == [(1, "lane 1"), (1, "lane 2"), (2, "lane 1"), (3, "lane 1")]
    # The kernel of b ends after c starts, so its arrow can only come from where b was scheduled.
    assert sorted(file.arrows()) == [("a", "scope/c"), ("b", "scope/c")]
    assert {start["ts"] for start in file.of("s")} == {1012, 1020}


def test_the_memory_of_accelerators(small: Model, tmp_path: Path) -> None:
    file = opened(small, "graph", options(step=3), tmp_path)
    assert file.counters() == [
        ("Allocated bytes", 1015, 1000),
        ("Allocated bytes", 1025, 900),
        ("Largest allocations: a", 1010, 608),
        ("Largest allocations: a", 1014, 508),
        ("Largest allocations: a", 1021, 508),
        ("Largest allocations: b", 1010, 8),
        ("Largest allocations: b", 1014, 8),
        ("Largest allocations: b", 1021, 308),
    ]


def test_memory_is_read_when_it_is_drawn(small: Model, tmp_path: Path) -> None:
    (tmp_path / "run_metadata_3.pb").unlink()
    with pytest.raises(TfprofInputError, match=r"cannot open .*run_metadata_3.pb"):
        write_timeline(small, "graph", options(step=3), tmp_path / "a.json")
    assert opened(small, "graph", options(step=4), tmp_path).of("C", MEMORY)
    # What was never in a file is kept.
    data = run_metadata({GPU: [allocated("a", 10, 5, 1000, t12=600)]})
    records = read_run_metadata(InputFile(Path("step 0"), "RunMetadata", data))
    graph_file = InputFile(Path("graph"), "GraphDef", message("GraphDef", node=[node("a", "Conv2D")]))
    of = build_model(read_graph(graph_file), {0: [records]}, None)
    assert [size for *_, size in opened(of, "graph", options(), tmp_path).counters()] == [1000, 608]


def test_all_steps_are_in_one_file_at_their_times(small: Model, tmp_path: Path) -> None:
    file = opened(small, "graph", options(), tmp_path)
    assert file.boxes("Steps") == [("step 3", 1010, 54, 1), ("step 4", 5010, 54, 1)]
    boxes = file.boxes(f"Op scheduling: {GPU.lower()}")
    assert boxes == [("a", 1010, 5, 1), ("b", 1020, 5, 1), ("a", 5010, 5, 1), ("b", 5020, 5, 1)]
    assert {event["args"]["step"] for event in file.of("X") if event["cat"] == "Op"} == {3, 4}
    assert len(file.arrows()) == 4
    names = {event["name"] for event in file.of("C")}
    assert names == {"Allocated bytes", *(f"Largest allocations, step {step}: {of}" for step in (3, 4) for of in "ab")}


def test_what_the_view_does_not_show_is_not_drawn(small: Model, tmp_path: Path) -> None:
    file = opened(small, "graph", options(step=3, hide_name_regexes=["a"]), tmp_path)
    assert {event["name"] for event in file.of("X")} == {"b", "scope/c"}
    assert file.arrows() == [("b", "scope/c")]


def test_a_file_for_perfetto(small: Model, tmp_path: Path) -> None:
    write_timeline(small, "graph", options(step=3), tmp_path / "a.pftrace")
    read = read_perfetto(tmp_path / "a.pftrace")
    boxes = [(each.name, each.start_ns, each.end_ns, each.args["op"]) for each in read.slices]
    assert ("a", 1_010_000, 1_015_000, "Conv2D") in boxes
    assert len(boxes) == 6
    assert sorted((source.name, target.name) for source, target in read.flows) == [("a", "scope/c"), ("b", "scope/c")]
    assert read.counters[read.track("Allocated bytes").uuid] == [(1_015_000, 1000), (1_025_000, 900)]


@pytest.mark.parametrize("step", [-1, 3])
def test_the_scope_view_is_a_layout(small: Model, tmp_path: Path, step: int) -> None:
    notes = write_timeline(small, "scope", options(step=step), tmp_path / "scope.json")
    assert notes == ["the horizontal axis is not time: in the scope view, the width of a box shows its total micros"]
    file = Opened((tmp_path / "scope.json").read_bytes())
    name = f"Layout by total micros, not time: scope view, {'mean of 2 steps' if step < 0 else 'step 3'}"
    assert file.boxes(name) == [
        ("_TFProfRoot", 0, 65, 1),
        ("a", 0, 35, 1),
        ("b", 35, 25, 1),
        ("scope", 60, 5, 1),
        ("scope/c", 60, 5, 1),
    ]
    assert [event["args"]["own_us"] for event in file.of("X")] == [0, 35, 25, 0, 5]


def test_rows_without_time_are_not_drawn(small: Model, tmp_path: Path) -> None:
    asked = options(show_name_regexes=["main.*"], account_type_regexes=["Sum", "Placeholder"])
    assert len(opened(small, "code", asked, tmp_path).of("X")) == 2
    nothing = options(account_type_regexes=["Placeholder"])
    with pytest.raises(TfprofInputError, match="the rows of the code view took no time"):
        write_timeline(small, "code", nothing, tmp_path / "none.json")
    with pytest.raises(TfprofInputError, match="the rows of the graph view were not executed"):
        write_timeline(small, "graph", nothing, tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_what_has_no_timeline(small: Model, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the op view has no timeline: use the scope, graph or code view"):
        write_timeline(small, "op", options(), tmp_path / "none.json")
    with pytest.raises(ValueError, match="step 7 was not recorded: use one of 3, 4, or -1"):
        write_timeline(small, "graph", options(step=7), tmp_path / "none.json")
    of = model(tmp_path, [node("a", "Op")])
    with pytest.raises(TfprofInputError, match="no executions were recorded"):
        write_timeline(of, "scope", options(), tmp_path / "none.json")


def test_a_large_file_is_said_to_be_large(small: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_timeline(small, "graph", options(), tmp_path / "a.json") == []
    monkeypatch.setattr(timeline, "LARGE_BYTES", 1000)
    (note,) = write_timeline(small, "graph", options(), tmp_path / "a.json")
    assert note.startswith(f"{tmp_path / 'a.json'} has ")
    assert note.endswith("which viewers may fail to open: select one step, or omit short executions with --min-micros")


NUMBERS = st.one_of(st.integers(0, 50), st.sampled_from([-(1 << 63), -1, (1 << 53) + 1, (1 << 63) - 1]))
NAMES = ["a", 'b"\\', "c\x00\n\u2028", "d/é\U0001f600"]


@given(
    executions=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([GPU, STREAMS, CPU]), st.sampled_from(NAMES), NUMBERS, NUMBERS),
        min_size=1,
        max_size=25,
    ),
    step=st.sampled_from([-1, 0]),
)
def test_lanes_never_overlap_whatever_was_recorded(
    tmp_path_factory: pytest.TempPathFactory, executions: list[tuple[int, str, str, int, int]], step: int
) -> None:
    folder = tmp_path_factory.mktemp("model")
    nodes = [node(name, 'Op"', *NAMES[:place]) for place, name in enumerate(NAMES)]
    steps: dict[int, dict[str, list[bytes]]] = {0: {CPU: [ran("a", 5, 5)]}}
    for number, device, name, start, duration in executions:
        recorded = ran(name, start, duration)
        if device == GPU:
            recorded = allocated(name, start, duration, duration, **{f"t{max(start, 0)}": duration})
        steps.setdefault(number, {}).setdefault(device, []).append(recorded)
    of = model(folder, nodes, {number: run_metadata(devices) for number, devices in steps.items()})
    file = opened(of, "graph", options(step=step), folder)
    free: dict[tuple[int, int], int] = {}
    for event in file.of("X"):
        lane = event["pid"], event["tid"]
        assert event["ts"] >= free.get(lane, 0)
        assert event["dur"] >= 0
        free[lane] = event["ts"] + max(event["dur"], 1)
    file.arrows()


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the timelines of the reference are not beside the project")
def test_timelines_of_the_reference(tmp_path: Path) -> None:
    of = reference_model("mnist")

    def times(events: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
        return sorted((event["name"], event["ts"], event["dur"]) for event in events if event["ph"] == "X")

    ours = opened(of, "graph", options(**{**PRESETS["time-and-memory"], "step": 70}), tmp_path)
    theirs = json.loads((REFERENCE / "mnist" / "timeline_graph.json_70").read_text())["traceEvents"]
    assert len(ours.of("X")) == 37
    assert len(ours.processes) == 1
    assert times(ours.events) == times(theirs)
    every = opened(of, "graph", options(**PRESETS["time-and-memory"]), tmp_path)
    for step in of.steps:
        theirs = json.loads((REFERENCE / "mnist" / f"timeline_graph_all.json_{step}").read_text())["traceEvents"]
        assert times([event for event in every.events if event.get("args", {}).get("step") == step]) == times(theirs)
    for view in ("scope", "code"):
        asked = options(**{**PRESETS["time-and-memory"], "step": 70})
        file = opened(of, view, asked, tmp_path)
        theirs = json.loads((REFERENCE / "mnist" / f"timeline_{view}.json_70").read_text())["traceEvents"]
        widths = sorted((event["name"], event["dur"]) for event in theirs if event["ph"] == "X" and event["dur"])
        assert sorted((event["name"], event["dur"]) for event in file.of("X")) == widths


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the timelines of the reference are not beside the project")
@pytest.mark.parametrize("way", ["graph", "profile"])
def test_the_timeline_of_a_gpu(tmp_path: Path, way: str) -> None:
    file = opened(reference_model("synth_gpu", way), "graph", options(), tmp_path)
    assert file.arrows() == [("net/Relu", "loss")]
    counters = file.counters()
    in_use = [(time % 1000, size) for name, time, size in counters if name == "Allocated bytes"]
    assert in_use == [(30, 10_000), (50, 11_000), (63, 12_000), (100, 13_000)]
    held = next(size for name, _, size in counters if name == "Largest allocations: net/conv/Conv2D")
    # What the reference writes as 0.001032 MB.
    assert held == 1032
