"""Where the tables of a query come from: recorded ones from the files, others from the sections that declare them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import event, iterator_call, line, logdir_of, plane, space
from jax_builders import three_steps
from places import SAMPLES
from sections.hosts.jobs import job
from sections.requests.jobs import server
from synthetic_tpu import core_with_work, offload_tpu
from tpu_twin import tpu_twin

import tfperf
from tfperf.analysis.registry import find_table
from tfperf.export.query.sources import Source, source_of
from tfperf.export.query.sql_tables import analyzed_tables, every_table

ARROW_TYPES = {"BIGINT": "int64", "UBIGINT": "uint64", "DOUBLE": "double", "BOOLEAN": "bool", "VARCHAR": "large_string"}
STEPS = (0, 1, 2, 30, 31, 32, 50, 51, 52)
"""When steps start, in milliseconds."""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hosts with a device each, steps of two kinds with a pause between them, input, and an allocator."""
    train = [event("train", 1000 * number, 1000, step_num=number) for number in (0, 1, 2, 30, 31, 32)]
    evaluation = [event("eval", 1000 * number, 1000, step_num=number) for number in (50, 51, 52)]
    fetches = [event("IteratorGetNextOp::DoCompute", 1000 * number, 200) for number in STEPS]
    calls = [iterator_call("Root", 1000 * number, 200, number + 1) for number in STEPS]
    sizes = dict.fromkeys(("bytes_allocated", "peak_bytes_in_use", "requested_bytes", "allocation_bytes"), 4096)
    facts = {"allocator_name": "GPU_0_bfc", "bytes_available": 1 << 20, "addr": 64, "tf_op": "dense/MatMul", **sizes}
    allocation = event("MemoryAllocation", 500, 0, **facts)
    layers = [event(f"layer_{number}/MatMul:MatMul", 1000 * number + 400, 50) for number in range(2)]
    kernels = [
        event("gemm", 1000 * number + 500, 300, correlation_id=number, tf_op=f"layer_{number}/MatMul:MatMul")
        for number in range(3)
    ]
    frames = [event("$train.py:9 load", 900, 50), event("$time sleep", 910, 30)]
    copy = event("MemcpyH2D", 100, 50, memcpy_details="size:1024 dest:0 async:1")
    data = space(
        plane(
            "/host:CPU",
            line("python", *train, *evaluation, *fetches, *calls, *layers, *frames, allocation),
            line("other", iterator_call("Root", 0, 90, 99), event("cuLaunchKernel", 1400, 5, correlation_id=1)),
        ),
        plane("/device:GPU:0", line("Stream #1", *kernels), line("Stream #2", copy)),
    )
    return logdir_of(tmp_path_factory.mktemp("run"), a=data, b=data)


@pytest.fixture(scope="module")
def of_xla(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Logdirs of programs of XLA: of a job of JAX, and of TPUs; one uses host memory, one runs a kernel of its own."""
    made = {"jax": three_steps(), "tpu": space(core_with_work()), "offload": offload_tpu(), "twin": tpu_twin()}
    made["server"] = space(server())
    folder = tmp_path_factory.mktemp("xla")
    return [logdir_of(folder / name, a=data) for name, data in made.items()]


@pytest.fixture(scope="module")
def analyses(logdir: Path, of_xla: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[tfperf.Analysis]:
    """The sample traces, and runs with what they lack: on two hosts, on one (only then there are pauses), of XLA.

    The last one is of two hosts that exchange data.
    """
    runs = [tfperf.load(path.parent) for path in sorted(SAMPLES.glob("*/plugins"))]
    exchanging = job(tmp_path_factory.mktemp("hosts"), sections=(), a=[0] * 4, b=[20_000] * 4)
    return [*runs, tfperf.load(logdir), tfperf.load(logdir, hosts=["a"]), *map(tfperf.load, of_xla), exchanging]


@pytest.fixture(scope="module")
def tables(analyses: list[tfperf.Analysis]) -> list[Mapping[str, Any]]:
    """The tables of each of them."""
    return [source_of(analysis).tables(every_table()) for analysis in analyses]


@pytest.mark.parametrize("name", analyzed_tables())
def test_tables_have_the_columns_and_types_that_are_declared(name: str, tables: list[Mapping[str, Any]]) -> None:
    """Each table is in some profile."""
    declared = analyzed_tables()[name]
    found = [of_analysis[name] for of_analysis in tables if name in of_analysis]
    assert found
    for table in found:
        assert table.column_names == [column.name for column in declared.columns]
        assert [str(kind) for kind in table.schema.types] == [ARROW_TYPES[column.type] for column in declared.columns]


def test_tables_hold_the_values_of_the_report(analyses: list[tfperf.Analysis], tables: list[Mapping[str, Any]]) -> None:
    for analysis, of_analysis in zip(analyses, tables, strict=True):
        for table in analysis.report().tables():
            for column in table.columns:
                values = [
                    value for value in of_analysis[table.name].column(column.key).to_pylist() if value is not None
                ]
                assert len(values) == sum(value is not None for value in table.data[column.key])


def test_only_sections_of_the_tables_that_are_named_are_analyzed(logdir: Path) -> None:
    source = source_of(logdir)
    assert isinstance(source, Source)
    asked: list[set[str]] = []

    def analyze(sections: Collection[str]) -> tfperf.Analysis:
        asked.append(set(sections))
        return source.analyze(sections)

    watched = Source(source.run, analyze)
    assert set(watched.tables({"steps", "events", "host_steps"})) == {"steps", "events", "host_steps"}
    assert set(watched.tables({"events", "lines"})) == {"events", "lines"}
    assert set(watched.tables({"tf_functions", "functions", "kernels"})) == {"kernels"}
    assert asked == [{"steps"}, {find_table("functions")[0], "kernels"}]


def test_steps_of_each_host_have_its_name_and_its_clock(logdir: Path) -> None:
    table: Any = source_of(logdir).tables({"host_steps"})["host_steps"]
    assert table.column("host").to_pylist() == ["a"] * 9 + ["b"] * 9
    assert table.column("start_ps").to_pylist() == [number * 10**9 for number in STEPS] * 2
    assert table.column("step_time_ms").to_pylist() == [1.0] * 18
