from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import Plane, logdir_of, plane, results_of, rows_of, space, trace_of
from click.testing import Result
from synthetic_tpu import core_with_work

from tfperf.report.model import LogChart, Section
from tfperf.sections.roofline.section import build

CORE = core_with_work()


def section_of(tmp_path: Path, *planes: Plane) -> Section:
    return build(results_of(trace_of(tmp_path, *planes), sections=["roofline"]))


def test_peaks_say_where_they_come_from(tmp_path: Path) -> None:
    section = section_of(tmp_path, CORE)
    facts = {fact.key: (fact.value, fact.note) for fact in section.facts}
    assert facts["device_model"] == ("TPU v5e", "")
    source = "Cloud TPU documentation; the trace states bf16 100"
    assert facts["peak_flops"] == ("bf16 197, int8 393 TFLOP/s", source)
    assert facts["peak_bandwidth"] == ("819 GB/s", "Cloud TPU documentation")
    assert facts["judged_percent"][0] == 100
    assert facts["bound_compute_percent"][0] == 100
    assert facts["busy_hardware_percent"][0] == 50
    (table,) = section.tables
    assert rows_of(table.data, "precision", "tflops_per_second", "gb_per_second") == [("bf16", 98.5, 123)]


def test_the_page_shows_work_under_the_roof_of_the_device(tmp_path: Path) -> None:
    """The ridge point is 197e12 / 819e9 = 240.5 flop/byte; the instruction has 798.2 and 98.5 TFLOP/s."""
    (chart,) = section_of(tmp_path, CORE).charts
    assert isinstance(chart, LogChart)
    ((name, x, y),) = chart.points
    assert name == "dot.1"
    assert (x, y) == pytest.approx((798.2, 98.5), abs=0.1)
    (roof,) = chart.lines.values()
    assert roof[1] == pytest.approx((240.5, 197), abs=0.1)
    assert roof[0] == pytest.approx((120.3, 98.5), abs=0.1)
    assert roof[2][1] == 197


def test_without_peaks_the_section_asks_for_them(tmp_path: Path) -> None:
    bare = plane("/device:TPU:0", *CORE.lines, name_stats=CORE.name_stats)
    section = section_of(tmp_path, bare)
    assert section.facts == ()
    assert section.charts == ()
    assert "--peaks FILE" in section.notes[0]
    assert section.tables[0].data["compute_percent"] == [None]


def test_a_file_of_peaks_is_taken_by_the_command(tmp_path: Path, run_tfperf: Callable[..., Result]) -> None:
    logs, peaks = logdir_of(tmp_path, a=space(CORE)), tmp_path / "peaks.toml"
    peaks.write_text('[[device]]\nname = "ours"\nteraflops = {bf16 = 200}\n', encoding="utf-8")
    shown = run_tfperf("analyze", logs, "-s", "roofline", "--peaks", peaks)
    assert shown.exit_code == 0
    assert "ours" in shown.stdout
    assert "bf16 200" in shown.stdout
    peaks.write_text('[[device]]\nname = "ours"\nteraflops = {bf16 = "fast"}\n', encoding="utf-8")
    refused = run_tfperf("analyze", logs, "-s", "roofline", "--peaks", peaks)
    assert refused.exit_code == 1
    assert refused.stdout == ""
    assert "peaks.toml is not a table of peaks" in refused.stderr


def test_the_table_of_peaks_is_read_only_where_it_is_needed(samples: Path) -> None:
    code = (
        "import sys; from tfperf.cli import main; main(sys.argv[1:], standalone_mode=False);"
        "print(*(name for name in sys.modules if name.startswith('tfperf.formats.hlo')), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "analyze", str(samples / "input_bound"), "-s", "xla", "-s", "roofline"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ, timeout=60)
    of_names = {f"tfperf.formats.hlo{part}" for part in ("", ".names", ".messages", ".model")}
    assert set(done.stderr.split()) <= of_names, "what reads whole programs"
