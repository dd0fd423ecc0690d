"""The four checkers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from places import SHARED
from tfprof_builders import CPU, GPU, STREAMS, graph, model, node, ran, run_metadata

from tfperf.models.tfprof.advise import CHECKERS, advise_report, checker_of
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.sources import Sources, read_model
from tfperf.report.model import Finding, Report
from tfperf.report.render import FORMATS, render

REFERENCE = SHARED / "tfprof"
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


def test_some_checkers(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "A")])
    assert [*codes(advise_report(of, checkers=("Job", "OperationChecker")))] == ["operation", "job"]


@pytest.mark.parametrize(
    ("text", "name"), [("job", "Job"), ("expensive-operation", "ExpensiveOperation"), ("JobChecker", "Job")]
)
def test_names_of_checkers(text: str, name: str) -> None:
    assert checker_of(text) == name
    assert name in CHECKERS


def test_an_unknown_checker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'Jobs' is not a checker: use some of AcceleratorUtilization, "):
        advise_report(model(tmp_path, [node("a", "A")]), checkers=("Jobs",))


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
    assert f"computes for {kernel}.0% of step 0" in found.text
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
    assert (found.severity, found.text) == ("hint", "1 batch norm of single ops: net/BatchNorm")
    fused = model(tmp_path, [node("net/BatchNorm/FusedBatchNormV3", "FusedBatchNormV3")])
    assert codes(advise_report(fused, checkers=["Operation"])) == {"operation": ["nothing_found"]}


def test_the_op_that_takes_most_and_what_really_runs(tmp_path: Path) -> None:
    """The runtime puts MatMul, BiasAdd and Relu together under the name of the last (D9)."""
    records = [ran("r", 1, 60, timeline_label=b"r = _FusedMatMul(x, w, b)"), ran("s", 1, 40)]
    of = model(tmp_path, [node("r", "Relu"), node("s", "Sum")], {0: run_metadata({CPU: records})})
    found = finding(advise_report(of), "expensive_op")
    assert (found.severity, found.text) == (
        "hint",
        "Relu takes 60.0% of the time of all ops; what runs there is _FusedMatMul",
    )
    assert found.action == "tfperf tfprof scope --account-type-regexes Relu --order-by micros shows where"


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
    apart = finding(report, "hosts_apart")
    assert apart.text == (
        "hosts end a step 0.300 ms apart (median), of 1.30 ms; /job:worker/replica:0/task:1 is last in 2 of 2 steps"
    )
    received = finding(report, "much_received").text
    assert received.startswith("/job:worker/replica:0/task:0 is in RecvTensor for 0.400 ms of a step of 1.00 ms")
    (table,) = report.tables()
    assert [*table.data["late_ms"]] == [0.0, 0.3]
    assert [*table.data["received_ms"]] == [0.4, 0.0]
    assert ("never published" in report.sections[0].notes[0], "clocks" in report.sections[0].notes[1]) == (True, True)


def test_hosts_that_end_together(tmp_path: Path) -> None:
    report = advise_report(workers(tmp_path, late=20, received=0), checkers=["Job"])
    assert [finding.text for finding in report.sections[0].findings] == ["the hosts of this job end together"]


def test_long_and_odd_names_are_shown_safely(tmp_path: Path) -> None:
    name = "BatchNorm\x1b[31m\n" + "x" * 5000
    report = advise_report(model(tmp_path, [node(f"{name}/Rsqrt", "Rsqrt\n")]))
    assert "\x1b" not in render(report, "table")
    assert max(map(len, render(report, "table").splitlines())) <= 100


@pytest.mark.parametrize("format_name", [name for name in FORMATS if name != "table"])
def test_every_format_has_every_checker(tmp_path: Path, format_name: str) -> None:
    text = render(advise_report(on_gpu(tmp_path, 60)), format_name)
    assert "conv" in text.lower()
    if format_name == "json":
        assert [*json.loads(text)["sections"]] == NAMES


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
