"""The four checkers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfprof_builders import CPU, GPU, REFERENCE, STREAMS, graph, model, node, op_log, ran, run_metadata

from tfperf.models.tfprof.advise import (
    UsedDevice,
    advise_report,
    checker_of,
    costly_lines,
    costly_ops,
    costly_scopes,
    unfused_batch_norms,
    used_devices,
)
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.run_metadata import HostStep
from tfperf.models.tfprof.sources import Sources, read_model
from tfperf.report.model import Finding, Report
from tfperf.report.render import render

NAMES = ["accelerator_utilization", "operation", "expensive_operation", "job"]


def codes(report: Report) -> dict[str, list[str]]:
    return {section.name: [finding.code for finding in section.findings] for section in report.sections}


def finding(report: Report, code: str) -> Finding:
    return next(each for section in report.sections for each in section.findings if each.code == code)


def on_gpu(folder: Path, kernel: int) -> Model:
    """A convolution whose kernel runs so long, in a step of 100 us."""
    records = {GPU: [ran("conv", 1, 100)], STREAMS: [ran("conv", 1, kernel)]}
    return model(folder, [node("conv", "Conv2D", nhwc=True)], {0: run_metadata(records)})


def test_every_checker_appears_also_when_it_finds_nothing(tmp_path: Path) -> None:
    report = advise_report(model(tmp_path, [node("a", "A")]))
    assert codes(report) == dict(zip(NAMES, [["no_steps"], ["nothing_found"], ["no_steps"], ["no_steps"]], strict=True))
    assert [finding.severity for section in report.sections for finding in section.findings] == ["info"] * 4
    recorded = advise_report(model(tmp_path, [node("a", "A")], {0: run_metadata({CPU: [ran("a", 1, 1)]})}))
    assert codes(recorded) == dict(
        zip(NAMES, [["no_accelerator"], ["nothing_found"], ["expensive_op"], ["nothing_found"]], strict=True)
    )


@pytest.mark.parametrize(
    ("text", "name"), [("job", "Job"), ("expensive-operation", "ExpensiveOperation"), ("JobChecker", "Job")]
)
def test_names_of_checkers(text: str, name: str) -> None:
    assert checker_of(text) == name


@pytest.mark.parametrize(
    ("kernel", "code", "severity"),
    [
        (60, "accelerator_used", "info"),
        (50, "accelerator_used", "info"),
        (49, "low_accelerator_utilization", "hint"),
        (19, "low_accelerator_utilization", "problem"),
    ],
)
def test_how_much_of_the_step_the_device_computes(tmp_path: Path, kernel: int, code: str, severity: str) -> None:
    found = finding(advise_report(on_gpu(tmp_path, kernel)), code)
    assert found.severity == severity
    assert f"is busy for {kernel}.0% of step 0" in found.text
    assert bool(found.action) == (severity != "info")


def test_nhwc_is_to_be_measured_on_accelerators_only(tmp_path: Path) -> None:
    found = finding(advise_report(on_gpu(tmp_path, 60)), "nhwc_on_accelerator")
    assert found.text == "1 op on accelerators with data_format NHWC: conv"
    assert found.action.startswith("measure both layouts")
    on_cpu = model(tmp_path, [node("conv", "Conv2D", nhwc=True)], {0: run_metadata({CPU: [ran("conv", 1, 1)]})})
    assert codes(advise_report(on_cpu, checkers=["Operation"])) == {"operation": ["nothing_found"]}


def test_batch_norms_of_single_ops(tmp_path: Path) -> None:
    of = model(tmp_path, [node("net/BatchNorm/Rsqrt", "Rsqrt")])
    found = finding(advise_report(of), "unfused_batch_norm")
    assert (found.severity, found.text) == ("hint", "1 unfused batch norm: net/BatchNorm")


def test_the_op_that_takes_most_and_what_really_runs(tmp_path: Path) -> None:
    """The runtime puts MatMul, BiasAdd and Relu together under the name of the last (D9)."""
    records = [ran("r", 1, 60, timeline_label=b"r = _FusedMatMul(x, w, b)"), ran("s", 1, 40)]
    of = model(tmp_path, [node("r", "Relu"), node("s", "Sum")], {0: run_metadata({CPU: records})})
    found = finding(advise_report(of), "expensive_op")
    assert (found.severity, found.text) == ("hint", "Relu takes 60.0% of the time of all ops; it runs as _FusedMatMul")
    assert found.action == "run tfperf tfprof scope --account-type-regexes Relu --order-by micros to see where"


def test_a_first_step_that_distorts_the_mean_is_said(tmp_path: Path) -> None:
    steps = {step: run_metadata({CPU: [ran("a", 1, 10 if step else 5000)]}) for step in range(3)}
    assert "first_step" in codes(advise_report(model(tmp_path, [node("a", "A")], steps)))["expensive_operation"]


def workers(folder: Path, late: int, received: int) -> Model:
    """Two workers of one job in two steps of 1 ms; the second ends later, and the first waits for tensors."""
    (folder / "graph").write_bytes(graph(node("a", "A")))
    files: dict[int, list[Path]] = {0: [], 1: []}
    for step in files:
        for task in range(2):
            records = [ran("a", 1000, 1000 + late * task)]
            records += [ran("RecvTensor", 1200, received)] if task == 0 and received else []
            files[step].append(folder / f"step_{step}_task_{task}")
            files[step][-1].write_bytes(run_metadata({f"/job:worker/replica:0/task:{task}/device:CPU:0": records}))
    return read_model(Sources(graph=folder / "graph", run_metadata=files))


def test_hosts_that_end_apart_and_wait_for_tensors(tmp_path: Path) -> None:
    report = advise_report(workers(tmp_path, late=300, received=400), checkers=["Job"])
    apart = finding(report, "hosts_apart").text
    assert "0.300 ms apart (median), with 1.30 ms per step; /job:worker/replica:0/task:1 is last in 2 of 2" in apart
    received = finding(report, "much_received").text
    assert received.startswith("/job:worker/replica:0/task:0 spends 0.400 ms of a 1.00 ms step in RecvTensor")
    (table,) = report.tables()
    assert [*table.data["late_ms"]] == [0.0, 0.3]
    assert [*table.data["received_ms"]] == [0.4, 0.0]
    assert ("never published" in report.sections[0].notes[0], "clocks" in report.sections[0].notes[1]) == (True, True)


def test_hosts_that_end_together(tmp_path: Path) -> None:
    report = advise_report(workers(tmp_path, late=20, received=0), checkers=["Job"])
    (found,) = report.sections[0].findings
    assert found.text == "the hosts of this job end steps at the same time"


def test_long_and_odd_names_are_shown_safely(tmp_path: Path) -> None:
    name = "BatchNorm\x1b[31m\n" + "x" * 5000
    report = advise_report(model(tmp_path, [node(f"{name}/Rsqrt", "Rsqrt\n")]))
    assert "\x1b" not in render(report, "table")
    assert max(map(len, render(report, "table").splitlines())) <= 100


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the runs of the reference are not beside the project")
@pytest.mark.parametrize("way", ["graph", "profile"])
def test_the_reference_computes_091_for_the_synthetic_gpu(way: str) -> None:
    folder = REFERENCE / "synth_gpu"
    sources = Sources(graph=folder / "graph.pb", run_metadata={0: [folder / "run_metadata.pb"]})
    report = advise_report(read_model(sources if way == "graph" else Sources(profile=folder / "profile.pb")))
    tables = {table.name: table.data for table in report.tables()}
    assert (tables["accelerators"]["kernel_ms"], tables["accelerators"]["step_ms"]) == ([0.535], [0.59])
    assert round(tables["accelerators"]["utilization_percent"][0] / 100, 2) == 0.91
    ops = tables["ops"]
    assert [*zip(ops["name"], ops["cpu_ms"], ops["accelerator_ms"], ops["time_ms"], strict=True)] == [
        ("Conv2D", 0.02, 0.3, 0.32),
        ("Conv2DBackpropFilter", 0.03, 0.12, 0.15),
        ("FusedBatchNormV3", 0.015, 0.075, 0.09),
    ]
    assert [round(share, 2) for share in ops["time_percent"]] == [52.03, 24.39, 14.63]
    assert "unfused_batch_norm" not in codes(report)["operation"]
    assert "nhwc_on_accelerator" in codes(report)["operation"]


FUSED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx")


def test_scopes_with_single_ops_are_named_once(tmp_path: Path) -> None:
    names = ("net/bn/BatchNorm/Rsqrt", "net/BatchNorm_1/batchnorm/Rsqrt", "batch_normalization_2/Rsqrt", "x/Rsqrt")
    of = model(tmp_path, [node(name, "Rsqrt") for name in names])
    assert unfused_batch_norms(of) == ["batch_normalization_2", "net/BatchNorm_1", "net/bn/BatchNorm"]


@pytest.mark.parametrize(
    "ops",
    [
        # The reference knows the first only (D11).
        *({f"BatchNorm/{op}": op, "BatchNorm/Rsqrt": "Rsqrt", "BatchNorm/w": "VariableV2"} for op in FUSED),
        {"BatchNorm/gamma": "VariableV2", "gradients/BatchNorm_grad/Rsqrt": "Rsqrt"},
    ],
    ids=[*FUSED, "variables and gradients"],
)
def test_what_is_no_unfused_batch_norm(tmp_path: Path, ops: dict[str, str]) -> None:
    assert unfused_batch_norms(model(tmp_path, [node(name, op) for name, op in ops.items()])) == []


OTHER = GPU.replace("GPU:0", "GPU:1")
NODES = [node(name, "A") for name in "abc"]


def test_kernels_that_overlap_add_up_for_utilization_and_not_for_busy(tmp_path: Path) -> None:
    records = {
        GPU: [ran("a", 100, 5), ran("b", 110, 5)],
        STREAMS: [ran("a", 120, 60), ran("b", 140, 60)],
        CPU: [ran("c", 1, 900)],
    }
    (used,) = used_devices(model(tmp_path, NODES, {3: run_metadata(records)}))
    assert used == UsedDevice(
        device=GPU.lower(), step=3, kernel_ms=0.12, step_ms=0.1, utilization_percent=120.0, busy_percent=80.0
    )


def test_each_device_has_the_last_step_with_kernels_of_it(tmp_path: Path) -> None:
    both = {GPU: [ran("a", 10, 5)], STREAMS: [ran("a", 10, 10), ran("b", 10, 30)], OTHER: [ran("b", 10, 5)]}
    one = {GPU: [ran("a", 10, 5)], STREAMS: [ran("a", 20, 10)]}
    devices = used_devices(model(tmp_path, NODES, {0: run_metadata(both), 1: run_metadata(one)}))
    assert [(each.device[-5:], each.step) for each in devices] == [("gpu:0", 1), ("gpu:1", 0)]
    assert [each.utilization_percent for each in devices] == [50.0, 100.0]


def test_devices_without_kernels_are_left_out(tmp_path: Path) -> None:
    assert used_devices(model(tmp_path, NODES, {0: run_metadata({GPU: [ran("a", 1, 5)], CPU: [ran("b", 1, 5)]})})) == []
    assert used_devices(model(tmp_path, NODES)) == []


def network(folder: Path) -> Model:
    """Four types of ops; `net` takes 6 ms, `head` 3 ms, the rest little."""
    times = {"net/a": 4000, "net/b": 2000, "head/c": 3000, "tail/d": 50, "e": 0}
    ops = {"net/a": "Conv2D", "net/b": "Conv2D", "head/c": "MatMul", "tail/d": "Relu", "e": "NoOp"}
    main, users = ("main.py", 1, "<module>"), {"net/a": 5, "net/b": 6, "head/c": 9, "tail/d": 12, "e": 12}
    stacks = {
        name: {"stack": [main, ("model.py", 2 if name.startswith("net") else 3, "build"), ("layer.py", line, "call")]}
        for name, line in users.items()
    }
    records = [ran(name, 10, time, timeline_label=b"net/a = _FusedConv2D(x)") for name, time in times.items() if time]
    nodes = [node(name, op) for name, op in ops.items()]
    return model(folder, nodes, {0: run_metadata({CPU: records})}, op_log(stacks))


def test_op_types(tmp_path: Path) -> None:
    rows = costly_ops(network(tmp_path))
    assert [(row.name, row.time_ms, row.cpu_ms, row.accelerator_ms) for row in rows] == [
        ("Conv2D", 6.0, 6.0, 0.0),
        ("MatMul", 3.0, 3.0, 0.0),
        ("Relu", 0.05, 0.05, 0.0),
    ]
    assert (rows[0].kernels, round(rows[0].time_percent, 1)) == ("_FusedConv2D", 66.3)


def test_scopes_have_the_time_of_all_in_them(tmp_path: Path) -> None:
    rows = costly_scopes(network(tmp_path))
    assert [(row.name, row.time_ms) for row in rows] == [("net", 6.0), ("head", 3.0)]


def test_lines_begin_below_what_calls_all(tmp_path: Path) -> None:
    rows = costly_lines(network(tmp_path))
    assert [(row.depth, row.name, row.time_ms) for row in rows] == [
        (0, "model.py:2:build", 6.0),
        (1, "layer.py:5:call", 4.0),
        (1, "layer.py:6:call", 2.0),
        (0, "model.py:3:build", 3.05),
        (1, "layer.py:9:call", 3.0),
    ]


def test_kernels_and_launches_are_told_apart(tmp_path: Path) -> None:
    records = {GPU: [ran("a", 1, 20)], STREAMS: [ran("a", 5, 300)]}
    (row,) = costly_ops(model(tmp_path, [node("a", "Conv2D")], {0: run_metadata(records)}))
    assert (row.time_ms, row.accelerator_ms, row.cpu_ms, row.time_percent, row.kernels) == (0.32, 0.3, 0.02, 100.0, "")


def test_nothing_was_recorded(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "A")])
    assert (costly_ops(of), costly_scopes(of), costly_lines(of)) == ([], [], [])


def test_frames_of_packages_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    stack = [("main.py", 1, "f"), ("/x/site-packages/keras/layer.py", 2, "call")]
    stacks = {name: [(file, line + place, f) for file, line, f in stack] for place, name in enumerate("ab")}
    log = op_log({name: {"stack": frames} for name, frames in stacks.items()})
    steps = {0: run_metadata({CPU: [ran("a", 1, 2000), ran("b", 1, 3000)]})}
    of = model(tmp_path, [node("a", "A"), node("b", "B")], steps, log)
    assert [row.name for row in costly_lines(of)] == ["main.py:2:f", "main.py:1:f"]
    assert len(costly_lines(of, every_frame=True)) == 2


def test_one_line_that_costs_everything_is_named(tmp_path: Path) -> None:
    log = op_log({"a": {"stack": [("main.py", 1, "<module>"), ("model.py", 7, "build")]}})
    (row,) = costly_lines(model(tmp_path, [node("a", "A")], {0: run_metadata({CPU: [ran("a", 1, 2000)]})}, log))
    assert (row.name, row.time_ms, row.depth) == ("model.py:7:build", 2.0, 0)


WORKERS = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]


def test_hosts_of_one_file(tmp_path: Path) -> None:
    records = {
        WORKERS[0]: [ran("x", 100, 10), ran("RecvTensor", 105, 30), ran("RecvTensor", 0, 99)],
        "/device:GPU:0/stream:all": [ran("x", 100, 50)],
        WORKERS[1]: [ran("x", 90, 5), ran("RecvTensor", 95, 1)],
    }
    assert model(tmp_path, [node("x", "A")], {3: run_metadata(records)}).hosts == [
        HostStep(step=3, host="/job:worker/replica:0/task:0", start=100, end=150, received_micros=30, received=1),
        HostStep(step=3, host="/job:worker/replica:0/task:1", start=90, end=96, received_micros=1, received=1),
    ]


def test_local_sessions_are_told_apart_by_their_files(tmp_path: Path) -> None:
    model(tmp_path, [node("x", "A")])
    files = [tmp_path / "one", tmp_path / "two"]
    for start, file in enumerate(files, start=1):
        file.write_bytes(run_metadata({CPU: [ran("x", start, 10)]}))
    hosts = read_model(Sources(graph=tmp_path / "graph.pb", run_metadata={0: files})).hosts
    assert [(each.host, each.start, each.end) for each in hosts] == [("file 1", 1, 11), ("file 2", 2, 12)]


def test_a_host_without_times_is_left_out(tmp_path: Path) -> None:
    records = {CPU: [ran("x", 0, 10)], STREAMS: [ran("x", 0, 3)]}
    assert model(tmp_path, [node("x", "A")], {0: run_metadata(records)}).hosts == []
