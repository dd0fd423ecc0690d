from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, gpu, host, line, plane, programs, read_back, ref, results_of, rows_of, trace_of
from hlo_builders import F32, computation, instruction, layout, program, shape
from protobytes import field, message
from synthetic_tpu import offload_tpu

from tfperf.formats.hlo.buffers import Buffer, Plan
from tfperf.report.model import Section, Sparkline
from tfperf.sections.xla.section import NO_PROGRAMS, build


def section_of(tmp_path: Path, *programs: tuple[int, str]) -> Section:
    """A GPU that runs an instruction of each of these programs."""
    events = [
        event("k", 10 * at, 5, hlo_op=ref("a"), hlo_module=ref(module), program_id=number)
        for at, (number, module) in enumerate(programs)
    ]
    return build(results_of(trace_of(tmp_path, gpu(*events)), sections=["xla"]))


def shown(section: Section, table: int) -> list[str]:
    return [column.key for column in section.tables[table].columns if column.level == "brief"]


def test_a_trace_without_programs_says_so(tmp_path: Path) -> None:
    section = build(results_of(trace_of(tmp_path, host(event("train", 0, 5, step_num=1))), sections=["xla"]))
    assert (section.notes, section.tables, section.level) == ((NO_PROGRAMS,), (), "full")


def test_columns_tell_programs_apart_where_there_are_several(tmp_path: Path) -> None:
    assert "module" not in shown(section_of(tmp_path, (7, "f")), 0)
    several = section_of(tmp_path, (7, "f"), (8, "g"))
    assert "module" in shown(several, 0)
    assert "program_id" not in shown(several, 0)
    assert "program_id" in shown(section_of(tmp_path, (7, "f"), (8, "f")), 1)


def test_estimates_and_missing_programs_are_told(tmp_path: Path) -> None:
    section = section_of(tmp_path, (7, "f"))
    assert any("Runs of 1 HLO op are estimates" in note for note in section.notes)
    assert any("1 program missing" in note for note in section.notes)
    assert {fact.key: fact.value for fact in section.facts} == {"hlo_modules": 1, "xla_percent": 100}


def test_times_on_a_host_are_an_upper_bound(tmp_path: Path) -> None:
    made = host(event("dot", 0, 5, hlo_op=ref("dot"), program_id=7))
    section = build(results_of(trace_of(tmp_path, made), sections=["xla"]))
    assert "times are upper bounds" in section.notes[0]
    assert not any("overlapping" in note for note in section.notes)
    assert [fact.key for fact in section.facts] == ["hlo_modules"]


def test_ops_of_a_host_that_overlap_are_told(tmp_path: Path) -> None:
    threads = (line(name, event(name, 0, 5, hlo_op=ref(name), program_id=7)) for name in ("dot", "add"))
    section = build(results_of(trace_of(tmp_path, plane("/host:CPU", *threads)), sections=["xla"]))
    assert rows(section, "hlo_modules", "total_ms") == [(0.005,)]
    assert rows(section, "hlo_ops", "total_ms") == [(0.005,), (0.005,)]
    assert "counts overlapping time once" in section.notes[1]


def rows(section: Section, name: str, *keys: str) -> list[tuple[object, ...]]:
    return rows_of(next(table.data for table in section.tables if table.name == name), *keys)


def of_offload(tmp_path: Path) -> Section:
    return build(results_of(read_back(tmp_path, offload_tpu()), sections=["xla"]))


def test_memory_of_a_tpu_program_is_told_by_where_it_is(tmp_path: Path) -> None:
    """Two arrays lie in host memory, whose outputs take it over; their copies are temporaries of the device."""
    section = of_offload(tmp_path)
    memory = ("module", "memory", "parameters_bytes", "aliased_bytes", "temporaries_bytes")
    array = 1 << 30
    assert rows(section, "hlo_memory", *memory) == [
        ("jit_f", "HBM", 0, 0, 2 * array + 98304),
        ("jit_f", "host memory", 2 * array, 2 * array, 0),
    ]
    assert "parameters_bytes" not in shown(section, 1)
    (of_f, *_) = rows(section, "hlo_modules", "module", "parameters_bytes", "temporaries_bytes", "outputs_bytes")
    assert of_f == ("jit_f", 0, 2 * array + 98304, 0)


def test_sums_over_chips_have_the_mean_of_a_chip_beside_them(tmp_path: Path) -> None:
    section = of_offload(tmp_path)
    assert {"total_ms", "device_mean_ms"} <= {*shown(section, 0)}
    for total, mean in rows(section, "hlo_ops", "total_ms", "device_mean_ms"):
        assert total == pytest.approx(2 * mean)  # type: ignore[operator]


def test_one_device_needs_no_mean(tmp_path: Path) -> None:
    section = section_of(tmp_path, (7, "f"))
    assert "device_mean_ms" not in shown(section, 0)
    assert rows(section, "hlo_ops", "total_ms", "device_mean_ms") == [(0.005, 0.005)]


def layered(*sizes: int) -> bytes:
    """A program whose layers each make an array that lives to the end, and then a result."""
    numbers = range(2, 2 + len(sizes))
    rows = [shape(F32, size, layout=layout(0)) for size in sizes]
    ops = [field(7, message(field(2, f"jit(f)/block_{at - 2}/mul".encode()), field(3, b"f.py"))) for at in numbers]
    made = [
        instruction(at, f"mul.{at}", "multiply", row, [1, 1], extra=op)
        for at, row, op in zip(numbers, rows, ops, strict=True)
    ]
    parameter = instruction(1, "p", "parameter", rows[0])
    root = instruction(99, "r", "add", rows[0], [1, 1])
    values = [(1, 4 * sizes[0]), *((at, 4 * size) for at, size in zip(numbers, sizes, strict=True)), (99, 4 * sizes[0])]
    events = [*((0, at) for at in numbers), *((1, at) for at in numbers)]
    buffers = message(
        *(field(1, message(field(1, at), field(2, size), field(3, message(field(4, at))))) for at, size in values),
        field(3, message(field(2, 4 * sizes[0]), field(5, 1), field(9, message(field(1, 1))))),
        field(3, message(field(2, 4 * sizes[0]), field(7, 1), field(9, message(field(1, 99))))),
        field(3, message(field(2, 4 * sum(sizes) + 8), *(field(9, message(field(1, at))) for at in numbers))),
        field(4, message(*(field(1, message(field(1, kind), field(2, at))) for kind, at in events))),
    )
    return program(computation("main", parameter, *made, root, root=99), buffers=buffers)


def of_layers(tmp_path: Path, **made: bytes) -> Section:
    ran = [
        event("k", 10 * at, 5, hlo_op=ref("mul.2"), hlo_module=ref(name), program_id=int(name.removeprefix("id_")))
        for at, name in enumerate(made)
    ]
    return build(results_of(trace_of(tmp_path, gpu(*ran), programs(**made)), sections=["xla"]))


def test_memory_at_the_peak_is_summed_over_repeated_layers(tmp_path: Path) -> None:
    section = of_layers(tmp_path, id_7=layered(100, 100, 50))
    of_peak = rows(section, "hlo_peak", "kind", "what", "shape", "count", "total_bytes", "padding_bytes")
    assert of_peak == [
        ("temporary", "block_*/mul", "f32[100]", 2, 800, 0),
        ("parameter", "parameter", "f32[100]", 1, 400, 0),
        ("output", "add", "f32[100]", 1, 400, 0),
        ("temporary", "block_2/mul", "f32[50]", 1, 200, 0),
        ("unused", "(free at the peak)", None, None, 8, None),
    ]
    (peak,) = (table for table in section.tables if table.name == "hlo_peak")
    assert peak.title == "Live at the peak of jit_step: 1.81 kB of device memory"
    assert "Padding" not in {column.title for column in peak.columns if column.level == "brief"}
    of_buffer = rows(section, "hlo_buffers", "hlo_op", "layer", "first_position", "last_position", "source")
    assert of_buffer == [
        ("p", None, None, None, None),
        ("r", None, None, None, None),
        ("mul.2", "block_0", 0, 2, "f.py"),
        ("mul.3", "block_1", 1, 2, "f.py"),
        ("mul.4", "block_2", 2, 2, "f.py"),
        (None, None, None, None, None),
    ]
    assert rows(section, "hlo_live", "position", "hlo_op", "live_bytes") == [
        (0, "mul.2", 1200),
        (1, "mul.3", 1600),
        (2, "mul.4", 1800),
    ]
    assert [(chart.x_title, chart.values) for chart in section.charts if isinstance(chart, Sparkline)] == [
        ("HLO ops that allocate, in program order", (1200.0, 1600.0, 1800.0))
    ]


def test_small_programs_are_omitted_and_people_see_the_largest(tmp_path: Path) -> None:
    section = of_layers(tmp_path, id_7=layered(10, 10), id_8=layered(10_000, 10_000), id_9=layered(9_000))
    assert {number for (number,) in rows(section, "hlo_buffers", "program_id")} == {8, 9}
    (peak,) = (table for table in section.tables if table.name == "hlo_peak")
    assert {peak.data["program_id"][row] for row in peak.rows_for_people or ()} == {8}
    assert peak.note_for_people == "1 more program or memory in JSON and CSV."


def test_results_with_shapes_of_parameters_that_they_do_not_reuse_are_counted() -> None:
    """Each parameter serves one result; parameters that a result reuses are donated already."""

    def of(kind: str, size: int, shape: str, *, is_reused: bool = False) -> Buffer:
        return Buffer(kind=kind, bytes=size, shape=shape, is_reused=is_reused)  # type: ignore[arg-type]

    parameters = [of("parameter", 40, "f32[10]"), of("parameter", 80, "f32[20]", is_reused=True)]
    results = [of("output", 40, "f32[10]"), of("output", 40, "f32[10]"), of("output", 80, "f32[20]")]
    assert Plan(buffers=(*parameters, *results), total_bytes=280).donatable_bytes == 40
