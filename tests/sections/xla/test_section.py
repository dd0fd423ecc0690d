from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, gpu, host, read_back, ref, results_of, rows_of, trace_of
from synthetic_tpu import offload_tpu

from tfperf.report.model import Section
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
    assert [fact.key for fact in section.facts] == ["hlo_modules"]


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
