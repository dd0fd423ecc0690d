"""What ran over a whole trace and over hosts, and the real traces of the references."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
from builders import Event, event, gpu, host, known, line, plane, programs, ref, result_of, trace_of, u64
from hlo_builders import F32, computation, instruction, program, shape
from msgspec.structs import replace
from places import TRACES
from real_runs import analysis_of

from tfperf.analysis.load import load
from tfperf.formats.wire.event_columns import unsigned
from tfperf.sections.xla.analysis import Xla, combine, compile_times, shorten
from tfperf.trace.device.device_peaks import DevicePeaks

REFERENCE, OFFLOAD = TRACES / "xla_reference", TRACES / "tpu_v6e"
US = 1_000_000
VECTOR = shape(F32, 8)
LOOP = program(
    computation("body", instruction(1, "add", "add", VECTOR), number=2),
    computation("main", instruction(1, "w", "while", VECTOR, calls=[2]), instruction(2, "c", "copy", VECTOR), root=1),
)


def on_host(name: str, start: float, duration: float) -> Event:
    return event(name, start, duration, hlo_op=ref(name), program_id=7)


def test_on_a_host_what_runs_other_instructions_is_omitted(tmp_path: Path) -> None:
    """The loop runs twice with three turns each."""
    events = [on_host("w", 100 * run, 50) for run in range(2)]
    events += [on_host("add", 100 * run + 10 * turn, 5) for run in range(2) for turn in range(3)]
    events += [on_host("c", 100 * run + 60, 10) for run in range(2)]
    xla = result_of(tmp_path, "xla", host(*events), programs(id_7=LOOP))
    assert [(op.op, op.runs, op.time_ps) for op in xla.ops] == [("add", 6, 30 * US), ("c", 2, 20 * US)]
    assert [(module.runs, module.is_estimated) for module in xla.modules] == [(2, False)]
    assert (xla.place, xla.whole_ps) == ("cpu", 50 * US)


def of_gpu(tmp_path: Path, *starts: float, **stats: int) -> Xla:
    kernels = [event("k", at, 5, hlo_op=ref("a"), hlo_module=ref("m"), program_id=7) for at in starts]
    xla: Xla = result_of(tmp_path, "xla", gpu(*kernels, event("MemcpyD2H", 90, 5), **{"clock_rate": 1, **stats}))
    return xla


def test_shares_are_of_all_that_devices_did(tmp_path: Path) -> None:
    xla = of_gpu(tmp_path, 0, 10)
    assert xla.whole_ps == 15 * US
    assert xla.table["percent"].tolist() == [pytest.approx(200 / 3)]


def test_ops_of_equal_time_have_an_order_even_if_the_program_of_one_is_unknown(tmp_path: Path) -> None:
    ops = line("XLA Ops", event("known", 0, 5), event("unknown", 10, 5))
    texts = {"known": ("%a = f32[] add()", "a"), "unknown": ("%a = f32[8] add()", "a")}
    core = plane("/device:TPU:0", ops, texts=texts, name_stats={"known": {"program_id": 7}})
    assert [op.program_id for op in result_of(tmp_path, "xla", core).ops] == [None, 7]


def test_hosts_add_up(tmp_path: Path) -> None:
    one, other = of_gpu(tmp_path, 0, 10), of_gpu(tmp_path, 0)
    both = combine([one, Xla(), other])
    assert [(op.runs, op.events, op.time_ps, op.devices, op.is_estimated) for op in both.ops] == [
        (3, 3, 15 * US, 2, True)
    ]
    assert [(module.runs, module.time_ps) for module in both.modules] == [(3, 15 * US)]
    assert both.whole_ps == 25 * US
    assert combine([Xla(), Xla()]) == Xla()


def test_devices_of_two_kinds_have_no_common_peaks(tmp_path: Path) -> None:
    known = {"compute_cap_major": 7, "compute_cap_minor": 5, "core_count": 40, "clock_rate": 1590000}
    one = of_gpu(tmp_path, 0, **known)
    assert one.peaks.teraflops
    assert combine([one, one]).peaks == one.peaks
    assert combine([one, of_gpu(tmp_path, 0)]).peaks == DevicePeaks()


def test_a_compile_time_is_that_of_the_only_program_of_its_name(tmp_path: Path) -> None:
    compiled = event("CpuCompiler::RunBackend", 200, 30, name=ref("jit_step"))
    xla = result_of(tmp_path, "xla", host(on_host("c", 0, 9), compiled), programs(id_7=LOOP))
    assert [module.compile_ps for module in xla.modules] == [30 * US]
    other = event("c", 20, 9, hlo_op=ref("c"), program_id=8)
    made = host(on_host("c", 0, 9), other, compiled)
    xla = result_of(tmp_path, "xla", made, programs(id_7=LOOP, id_8=LOOP))
    assert [module.compile_ps for module in xla.modules] == [None, None]


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the references are not here")
@pytest.mark.parametrize("name", ["jax08_gemm", "jax_conv_minimal_08"])
def test_executions_and_times_are_those_of_the_references(name: str) -> None:
    xla = analysis_of(TRACES / "jax_mi300x" / name)["xla"]
    ours = {(op.module, op.program_id, op.op): op for op in xla.ops}
    with (REFERENCE / "cost" / f"gpu_ops.{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(ours)
    for row in rows:
        op = ours[row["module"], int(row["program_id"]), row["hlo_op"]]
        assert (op.runs, op.events, op.devices) == (int(row["executions"]), int(row["kernels"]), int(row["devices"]))
        assert op.time_ps / US == pytest.approx(float(row["device_us"]), abs=0.001)
        assert (op.opcode, op.target, op.is_estimated) == (row["opcode"], row["target"], False)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the references are not here")
@pytest.mark.parametrize(
    ("name", "op", "least_ms", "most_ms"),
    [("jax_plain_cnn", "conv_general_dilated.8", 24.6, 344.7), ("jax_plain_mlp", "dot.1", 1.2, 31.1)],
)
def test_spans_on_a_host_are_those_of_the_references(name: str, op: str, least_ms: float, most_ms: float) -> None:
    xla = load(REFERENCE / "captures" / name, sections=["xla"])["xla"]
    found = next(each for each in xla.ops if each.op == op)
    assert found.runs == 20
    assert (found.least_ps or 0) / 1e9 == pytest.approx(least_ms, abs=0.1)
    assert found.time_ps / 1e9 == pytest.approx(most_ms, abs=0.1)


def test_instructions_beyond_the_first_are_one_of_which_nothing_else_is_known(tmp_path: Path) -> None:
    events = [on_host("add", 0, 35), on_host("c", 40, 20), on_host("d", 70, 10)]
    xla = result_of(tmp_path, "xla", host(*events), programs(id_7=LOOP))
    short = shorten(xla, 1)
    assert [(op.op, op.runs, op.time_ps, op.work) for op in short.ops] == [
        ("add", 1, 35 * US, None),
        ("(other HLO ops)", 2, 30 * US, None),
    ]
    assert (short.modules, short.whole_ps) == (xla.modules, xla.whole_ps)
    both = combine([short, short])
    assert [(op.op, op.runs, op.time_ps) for op in both.ops] == [("add", 2, 70 * US), ("(other HLO ops)", 4, 60 * US)]


def test_programs_beyond_the_first_are_one_that_is_lost_if_one_of_them_is(tmp_path: Path) -> None:
    kernels = [event("k", 10 * n, 5, hlo_op=ref("a"), hlo_module=ref(f"m{n}"), program_id=n) for n in range(3)]
    xla = result_of(tmp_path, "xla", gpu(*kernels))
    assert [module.module for module in shorten(xla, 1).modules] == ["(other programs)", "m0"]
    assert [module.module for module in shorten(xla, 1).lost] == ["(other programs)", "m0"]
    held = replace(xla, modules=tuple(replace(module, instructions=4) for module in xla.modules))
    counts = [(module.module, module.instructions) for module in shorten(held, 1).modules]
    assert counts == [("(other programs)", 8), ("m0", 4)]


def test_a_tpu_program_of_which_no_op_takes_time_ran_too(tmp_path: Path) -> None:
    """Ids have up to 20 digits and no sign. The program of the second run is not in the file, but its name is."""
    large = 12190760917235803885
    core = plane(
        "/device:TPU:0",
        line("XLA Modules", event(f"jit_f({large})", 0, 20), event("jit_g(9)", 30, 1), event("jit_g(9)", 40, 2)),
        line("XLA Ops", event("%copy.1 = f32[8] copy(f32[8] %p)", 0, 15)),
        name_stats={"%copy.1 = f32[8] copy(f32[8] %p)": {"program_id": u64(large), "hlo_category": "copy"}},
    )
    xla = result_of(tmp_path, "xla", core)
    assert [(module.module, module.runs, module.is_estimated, module.time_ps) for module in xla.modules] == [
        ("jit_f", 1, False, 15 * US),
        ("jit_g", 2, False, 3 * US),
    ]
    assert [(op.module, op.op) for op in xla.ops] == [("jit_f", "copy.1")]


@pytest.mark.skipif(not OFFLOAD.is_dir(), reason="the real TPU profile is not here")
def test_programs_of_the_real_tpu_profile_are_those_of_the_reference() -> None:
    expected = json.loads((OFFLOAD / "reference" / "expected.json").read_text(encoding="utf-8"))["A"]
    xla = load(OFFLOAD / "offload", sections=["xla"])["xla"]
    runs: Counter[str] = Counter()
    for of_core in expected["runs_per_core"].values():
        runs.update(of_core)
    modules = {module.module: module for module in xla.modules}
    assert {name: module.runs for name, module in modules.items()} == runs
    of_f = modules["jit_f"]
    assert unsigned(known(of_f.program_id)) == 12190760917235803885
    assert known(of_f.compile_ps) / 1e9 == pytest.approx(expected["first_call"]["compile_ms"], abs=0.05)
    assert of_f.vmem_bytes == expected["memory"]["scoped_vmem_jit_f"]
    memory = known(of_f.memory)
    hbm, on_host = memory["HBM"], memory["host memory"]
    assert {"temporaries": hbm.temporaries, "parameters": hbm.parameters} == expected["memory"]["hbm_program_jit_f"]
    assert on_host.aliased == on_host.parameters == 16106127360
    means = {op.op: op.time_ps / op.runs / 1e9 for op in xla.ops if op.module == "jit_f"}
    for name, mean in expected["ops_mean_ms"].items():
        assert means[name] == pytest.approx(mean, rel=1e-5), name
    assert {op.runs for op in xla.ops if op.module == "jit_f"} == {expected["ops_count"]}
    assert xla.device_count == expected["device"]["cores_in_file"]


# --- compilations ---


def test_a_compilation_is_all_that_is_done_for_a_program(tmp_path: Path) -> None:
    thread = host(
        event("PjRtCpuClient::Compile", 0, 50),
        event("CpuCompiler::RunBackend", 10, 30, name=ref("jit_f")),
        event("GpuCompiler::RunBackend", 60, 5, name=ref("jit_g")),
        event("PjRtCpuClient::Compile", 70, 20),
        event("CpuCompiler::RunBackend", 71, 3, name=ref("jit_f")),
        event("Other::RunBackend", 95, 3, name=ref("jit_h")),
    )
    assert compile_times(trace_of(tmp_path, thread)) == {"jit_f": 70 * US, "jit_g": 5 * US}


def test_a_capture_without_compilations_has_none(tmp_path: Path) -> None:
    assert compile_times(trace_of(tmp_path, host(event("PjRtCpuClient::Compile", 0, 50)))) == {}


def test_on_a_tpu_the_call_around_a_compilation_says_of_what_it_is(tmp_path: Path) -> None:
    """A function is traced inside the call of another one, and compiled by itself."""
    thread = host(
        event("PjitFunction(_psum)", 0, 100),
        event("PjitFunction(add)", 5, 20),
        event("backend_compile", 6, 10),
        event("backend_compile", 30, 60),
        event("TfrtTpuCompiler::Compile", 31, 50),
        event("PjitFunction(<lambda>)", 200, 20),
        event("backend_compile", 201, 9),
        event("backend_compile", 300, 9),
    )
    core = plane("/device:TPU:0", line("XLA Ops", event("add", 400, 5)))
    assert compile_times(trace_of(tmp_path, thread, core)) == {
        "jit_add": 10 * US,
        "jit__psum": 60 * US,
        "jit__lambda_": 9 * US,
    }
