"""`tfperf export-csv`, `export-parquet` and `anonymize`."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from builders import event, host, logdir_of, space
from printed import Run
from synthetic_gpu import synthetic_gpu

CATEGORIES = [
    "compilation_ms",
    "output_ms",
    "input_ms",
    "kernel_launch_ms",
    "host_compute_ms",
    "device_collectives_ms",
    "device_to_device_ms",
    "device_compute_ms",
    "all_others_ms",
]
PROMISED = ["step", "step_name", "step_time_ms", *CATEGORIES, "input_wait_ms", "host_to_device_ms"]


def export(path: Path, folder: Path, run_tfperf: Run) -> dict[str, list[dict[str, str]]]:
    """Export, and read every file back."""
    result = run_tfperf("export-csv", path, "-o", folder)
    assert (result.exit_code, result.stdout) == (0, "")
    found = {}
    for file in folder.iterdir():
        assert file.name in result.stderr
        with file.open(newline="", encoding="utf-8") as text:
            found[file.stem] = list(csv.DictReader(text, strict=True))
    return found


@pytest.mark.parametrize("sample", ["input_bound", "input_fixed", "custom_loop", "retracing"])
def test_one_file_per_table(sample: str, samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    found = export(samples / sample, tmp_path / "new" / "tables", run_tfperf)
    document = json.loads(run_tfperf("analyze", samples / sample, "--format", "json").stdout)
    assert found.keys() == {table for section in document["sections"].values() for table in section["tables"]}


@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
def test_steps_have_the_promised_columns(attribution: str, samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    run_tfperf("export-csv", samples / "custom_loop", "-o", tmp_path, "--attribution", attribution)
    with (tmp_path / "steps.csv").open(newline="") as file:
        header = next(csv.reader(file))
    assert [column for column in PROMISED if column not in header] == []


@pytest.mark.parametrize("sample", ["input_bound", "custom_loop", "gpu"])
def test_categories_add_up_to_the_step(sample: str, samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    path = logdir_of(tmp_path, a=synthetic_gpu()) if sample == "gpu" else samples / sample
    rows = export(path, tmp_path / "tables", run_tfperf)["steps"]
    assert rows
    for row in rows:
        assert sum(float(row[column] or 0) for column in CATEGORIES) == pytest.approx(
            float(row["step_time_ms"]), abs=1e-6
        )
        parts = float(row["input_wait_ms"]) + float(row["host_to_device_ms"])
        assert float(row["input_ms"]) == pytest.approx(parts, abs=1e-9)


def test_numbers_are_raw_and_lines_end_as_the_rfc_says(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    run_tfperf("export-csv", samples / "input_bound", "-o", tmp_path)
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        assert data.endswith(b"\r\n")
        assert data.count(b"\n") == data.count(b"\r\n")
    with (tmp_path / "host_ops.csv").open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert sum(float(row["self_percent"]) for row in rows) == pytest.approx(100)
    assert [int(row["rank"]) for row in rows] == list(range(1, len(rows) + 1)), "whole, not the top ten"


def test_files_are_replaced_only_with_force(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    path = samples / "input_bound"
    (tmp_path / "steps.csv").write_text("mine")
    refused = run_tfperf("export-csv", path, "-o", tmp_path)
    assert refused.exit_code == 1
    assert "steps.csv" in refused.stderr
    assert "--force" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["steps.csv"], "all or nothing"
    assert run_tfperf("export-csv", path, "-o", tmp_path, "--force").exit_code == 0
    assert (tmp_path / "steps.csv").read_text().startswith("step,")


def test_a_trace_without_steps_has_no_step_file(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, a=space(host(event("MatMul:MatMul", 0, 10))))
    found = export(logdir, tmp_path / "tables", run_tfperf)
    assert {"host_ops", "op_types", "op_scopes", "op_layers", "environment"} <= found.keys()
    assert not {"steps", "categories", "steps_by_host"} & found.keys()


def test_it_says_what_it_wrote_and_keeps_what_is_there(
    run_tfperf: Run, samples: Path, tmp_path: Path, asked_here: None
) -> None:
    target = tmp_path / "dataset"
    done = run_tfperf("export-parquet", samples / "input_bound", "-o", target)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("wrote 8,980 events and ")
    again = run_tfperf("export-parquet", samples / "input_bound", "-o", target)
    assert again.exit_code == 1
    assert "pass --force to replace it" in again.stderr
    assert run_tfperf("export-parquet", samples / "input_bound", "-o", target, "--force").exit_code == 0
    asked = run_tfperf("query", target, "select count(*) as n from events", "--format", "csv")
    assert asked.stdout.split() == ["n", "8980"]
    assert run_tfperf("query", target, "--schema").exit_code == 0


def test_it_says_what_it_wrote_and_that_people_should_look(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    result = run_tfperf("anonymize", samples / "input_bound", "-o", tmp_path / "copy")
    assert result.exit_code == 0
    first, second = result.stderr.splitlines()
    assert first.startswith(f"wrote 1 host to {tmp_path / 'copy' / 'plugins' / 'profile'}")
    assert "; replaced 14 words in names" in first
    assert second.startswith("check it before you share it")
    assert run_tfperf("analyze", tmp_path / "copy").exit_code == 0
    arguments = ("anonymize", samples / "input_bound", "-o", tmp_path / "copy")
    assert (run_tfperf(*arguments).exit_code, run_tfperf(*arguments, "--force").exit_code) == (1, 0)


def test_the_default_folder_is_new(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_tfperf: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("2026_11_21_12_00_00-csv", "2026_11_21_12_00_00-csv-2"):
        assert f" to {name}: " in run_tfperf("export-csv", samples / "retracing").stderr
        assert (tmp_path / name / "steps.csv").exists()
