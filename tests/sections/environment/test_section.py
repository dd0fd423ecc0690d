"""The environment in words: what captures of tfperf add, of one host and of several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from builders import event, host, iterator_call, line, plane, read_back, results_of, space, trace_of
from protobytes import field
from synthetic_tpu import JUMP, Offload, offload_tpu
from tpu_twin import tpu_twin

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.report.model import Section
from tfperf.sections.environment.section import build


def section(tmp_path: Path, *hosts: dict[str, Any], cpu_budget: int = 0) -> Section:
    traces = []
    for number, stats in enumerate(hosts):
        folder = tmp_path / str(number)
        folder.mkdir()
        added = [plane(CAPTURE_PLANE, stats=stats)] if stats else []
        counted = [iterator_call("Root", 0, 10, 1, cpu_budget=cpu_budget)] if cpu_budget else []
        traces.append(trace_of(folder, host(event("A:A", 20, 5), *counted), *added))
    return build(results_of(*traces, sections=["environment"]))


def shown(made: Section) -> dict[str, tuple[Any, str]]:
    return {fact.key: (fact.value, fact.note) for fact in made.facts}


ADDED = {
    "tensorflow_version": "2.21.0",
    "keras_version": "3.15.1",
    "python_version": "3.11.7",
    "cpu_model": "EPYC",
    "cpu_count": 8,
    "cpu_affinity": 4,
    "memory_bytes": 1 << 34,
    "gpu_driver_version": "535.104.05",
    "cuda_version": "12.5",
    "overhead_percent": 6.5,
}


def test_what_a_capture_adds_is_shown(tmp_path: Path) -> None:
    facts = shown(section(tmp_path, ADDED))
    assert facts["tensorflow_version"] == ("2.21.0", "Keras 3.15.1, Python 3.11.7")
    assert facts["cpu_model"] == ("EPYC", "")
    assert facts["cores"] == (4, "limited by CPU affinity, of 8")
    assert facts["host_memory"] == (1 << 34, "")
    assert facts["gpu_driver_version"] == ("535.104.05", "TensorFlow is built for CUDA 12.5")
    assert facts["overhead"][0] == 6.5


def test_what_profilers_of_a_tpu_state_is_shown(tmp_path: Path) -> None:
    """The build of libtpu is a text of several lines; the file has another name than the host."""
    tpu = plane("/device:TPU:0", line("XLA Ops", event("op", 0, 5)), stats={"core_details": field(6, 4) + field(5, 4)})
    versions = {"jax_version": "0.10.0", "jaxlib_version": "0.10.1", "tpu_version": "\nBuilt on Jul 3\ncl/7"}
    data = space(tpu, host(event("A:A", 0, 5)), plane("/host:metadata", stats=versions), hostname="t1v")
    facts = shown(of_file(tmp_path, data))
    assert facts["jax_version"] == ("0.10.0", "jaxlib 0.10.1, libtpu Built on Jul 3 cl/7")
    assert facts["recorded_host"] == ("t1v", "")
    assert "chips" not in facts, "the number of the only chip says nothing"


def of_file(tmp_path: Path, data: bytes) -> Section:
    return build(results_of(read_back(tmp_path, data), sections=["environment"]))


def test_chips_and_clocks_of_a_tpu(tmp_path: Path) -> None:
    section = of_file(tmp_path, offload_tpu(Offload(jumps=(JUMP,))))
    assert shown(section)["chips"] == ("2 to 3", "of 4 that run jit_f")
    assert section.detail_notes == ("Clocks in the file jump (once, by 200 ms); tfperf uses chip times.",)
    assert of_file(tmp_path, offload_tpu()).detail_notes == ()
    of_twin = of_file(tmp_path, tpu_twin())
    assert shown(of_twin)["jax_version"] == ("0.10.0", "jaxlib 0.10.0, libtpu Built on Jun 30 2026")
    assert of_twin.detail_notes == ("The clocks of TPU and host differ by 0.396 to 0.491 ms; tfperf corrects this.",)


def test_limits_of_cgroups_are_said(tmp_path: Path) -> None:
    facts = shown(section(tmp_path, {**ADDED, "cpu_quota": 1.5, "memory_limit_bytes": 1 << 30}))
    assert facts["cores"] == (1.5, "limited by CPU quota, of 4")
    assert facts["host_memory"] == (1 << 30, "limited by cgroups")


def test_a_trace_of_another_profiler_has_none_of_it(tmp_path: Path) -> None:
    assert list(shown(section(tmp_path, {}))) == ["hosts", "devices"]


def test_tf_data_may_tell_the_cores(tmp_path: Path) -> None:
    assert shown(section(tmp_path, {}, cpu_budget=2))["cores"] == (2, "as counted by tf.data")


def test_hosts_that_differ_are_listed(tmp_path: Path) -> None:
    several = section(tmp_path, ADDED, {**ADDED, "cpu_model": "Xeon", "cpu_affinity": 2}, {})
    facts = shown(several)
    assert (facts["cpu_model"][0], facts["cores"][0]) == ("EPYC, Xeon", "4, 2")
    assert facts["tensorflow_version"][0] == "2.21.0"
    (table,) = several.tables
    assert table.data["cores"] == [4.0, 2.0, None]
    assert table.data["cpu_model"] == ["EPYC", "Xeon", None]
    assert table.data["overhead_percent"] == [6.5, 6.5, None]
