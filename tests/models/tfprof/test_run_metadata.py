"""Records of runs: which belong to which node, how long they took, and their memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from protobytes import field, written
from tfprof_builders import CPU, GPU, STREAMS, message, ran, run_metadata

from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.wire.decoder import texts
from tfperf.models.tfprof.run_metadata import (
    NodeIndex,
    Records,
    is_all_streams,
    is_canonical,
    is_no_node,
    kernel_of,
    read_run_metadata,
)


def read(folder: Path, data: bytes) -> Records:
    return read_run_metadata(InputFile(written(folder, data), "RunMetadata"))


def test_records_have_whole_names_and_devices_in_lower_case(tmp_path: Path) -> None:
    found = read(tmp_path, run_metadata({CPU: [ran("a/b", 1, 2), ran("c:D", 3, 4)], STREAMS: [ran("c:E:F", 5, 6)]}))
    assert texts(found.name) == ["a/b", "c:D", "c:E:F"]
    assert [found.devices[place] for place in found.device.tolist()] == [CPU.lower(), CPU.lower(), STREAMS.lower()]
    assert (len(found), found.start_micros.tolist()) == (3, [1, 3, 5])


def test_a_duration_of_zero_is_a_microsecond(tmp_path: Path) -> None:
    found = read(tmp_path, run_metadata({CPU: [ran("a", 1, 0), ran("b", 1, 7, op_end_rel_nanos=7123)]}))
    assert (found.duration_micros.tolist(), found.duration_nanos.tolist()) == ([1, 7], [0, 7123])


def test_memory_is_summed_over_allocators_and_outputs(tmp_path: Path) -> None:
    memory = [{"total_bytes": 100, "peak_bytes": 80, "live_bytes": 30}, {"total_bytes": 10, "peak_bytes": 8}]
    outputs = [
        {"tensor_description": {"allocation_description": {"requested_bytes": 5, "allocated_bytes": 64}}},
        {"tensor_description": {"allocation_description": {"requested_bytes": 9}}},
        {"tensor_description": {}},
    ]
    stats = {"temp_memory_size": 1, "persistent_memory_size": 2}
    record = ran("a", 1, 1, memory_stats=stats) + message("NodeExecStats", memory=memory, output=outputs)
    found = read(tmp_path, run_metadata({CPU: [record, ran("b", 1, 1)]}))
    columns = [column.tolist() for column in (found.requested, found.peak, found.residual, found.output)]
    assert columns == [[113, 0], [91, 0], [32, 0], [73, 0]]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty: the run was not traced"),
        (field(5, b""), "has no node times"),
        (run_metadata({CPU: [], STREAMS: []}), "has no node times"),
        (run_metadata({CPU: [ran("a", 1, 1)]})[:-2], "damaged"),
    ],
)
def test_what_holds_no_records(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(TfprofInputError, match=said):
        read(tmp_path, data)


CANONICAL = {
    "/job:localhost/replica:0/task:0/device:cpu:0": True,
    "/job:a/replica:0/task:1/device:gpu:12": True,
    "/gpu:0": True,
    "/device:tpu:3": True,
    "/device:gpu:0/stream:all": False,
    "/device:gpu:0/stream:7": False,
    "/device:gpu:0/memcpy": False,
    "/device:gpu:": False,
    "cpu:0": False,
    "": False,
}


def test_which_rows_are_of_devices() -> None:
    assert {device: is_canonical(device) for device in CANONICAL} == CANONICAL
    assert [device for device in CANONICAL if is_all_streams(device)] == ["/device:gpu:0/stream:all"]


def test_what_is_no_node() -> None:
    names = ("RecvTensor", "_SOURCE", "edge MEMCPYHtoD", "", "x", "_arg_x_0_0", "RecvTensor_1")
    assert [is_no_node(name) for name in names] == [True, True, True, True, False, False, False]


@pytest.mark.parametrize(
    ("label", "kernel"),
    [
        ("h/Relu = _MklNativeFusedMatMul(x, w, b)", "_MklNativeFusedMatMul"),
        ("a = NoOp()", "NoOp"),
        ("", ""),
        ("[8B] rendezvous from a to b", ""),
        ("a = ", ""),
    ],
)
def test_the_kernel_that_a_label_names(label: str, kernel: str) -> None:
    assert kernel_of(label) == kernel


def test_nodes_keep_the_device_on_which_they_are_first_seen(tmp_path: Path) -> None:
    index = NodeIndex(["a", "b"], ["A", "B"])
    a, b = ran("a", 1, 1), ran("b", 1, 1)
    joined = index.join(read(tmp_path, run_metadata({CPU: [a], GPU: [a, b], STREAMS: [a]})))
    assert joined.rows.tolist() == [0, 2, 3]  # the record of a on the GPU does not count, its kernels do
    assert [index.devices[place] for place in index.device_of().tolist()] == [CPU.lower(), GPU.lower()]
    assert (joined.is_canonical.tolist(), joined.is_all_streams.tolist()) == ([True, True, False], [False, False, True])


def test_the_name_of_a_node_ends_at_the_first_colon(tmp_path: Path) -> None:
    index = NodeIndex(["c"], ["C"])
    found = read(tmp_path, run_metadata({CPU: [ran("c:D:E", 1, 1), ran("x:Y", 1, 1), ran(":Z", 1, 1), ran("c", 1, 1)]}))
    joined = index.join(found)
    assert (joined.rows.tolist(), joined.node.tolist(), index.names) == ([0, 1, 3], [0, 1, 0], ["c", "x"])


def test_names_that_no_graph_knows_become_nodes(tmp_path: Path) -> None:
    index = NodeIndex(["a"], ["A"])
    names = ("_arg_x", "RecvTensor", "a", "_arg_x", "q")
    data = run_metadata({CPU: [ran(name, start, 1) for start, name in enumerate(names, 1)]})
    joined = index.join(read(tmp_path, data))
    assert (joined.rows.tolist(), joined.node.tolist()) == ([0, 2, 3, 4], [1, 0, 1, 2])
    assert (index.names, index.ops) == (["a", "_arg_x", "q"], ["A", "_arg_x", "q"])
    assert index.join(read(tmp_path, data)).node.tolist() == [1, 0, 1, 2]


def test_the_kernel_of_the_first_record_counts(tmp_path: Path) -> None:
    index = NodeIndex(["a", "b"], ["A", "B"])
    for label in (b"a = _FusedA(x)", b"a = A(x)"):
        index.join(read(tmp_path, run_metadata({CPU: [ran("a", 1, 1, timeline_label=label)]})))
    assert index.kernels == {0: "_FusedA"}
