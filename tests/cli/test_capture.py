"""`tfperf capture`: its options, what is wrong usage, and capture_report. Jobs are asked in tests/capture."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from builders import event, host, space
from capture.double import response, serving
from msgspec.structs import replace
from places import ROOT
from printed import Run

from tfperf.base.errors import Reason
from tfperf.capture.outcomes import Captured
from tfperf.cli.options import DURATION, SIZE, step_range
from tfperf.live.sampling import capture_report
from tfperf.report.render import FORMATS, render


def test_durations() -> None:
    seconds = {"2s": 2, "500ms": 0.5, "1.5m": 90, "2 min": 120, ".5s": 0.5, "1h": 3600, "100us": 1e-4, "3S": 3}
    assert {text: DURATION.convert(text, None, None) for text in seconds} == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "-1s", "0s", "2 fortnights", "1e3s", "nan s", "²s", "1s 2s"])
def test_what_is_not_a_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"use 2s, 500ms or 1\.5m"):
        DURATION.convert(text, None, None)
    with pytest.raises(click.BadParameter, match="'2' has no unit: use 2s or 2ms"):
        DURATION.convert("2", None, None)


def test_sizes() -> None:
    assert SIZE.convert("1.5GB", None, None) == 1.5e9
    assert SIZE.convert("2mib", None, None) == 2 << 20
    with pytest.raises(click.BadParameter, match="500MB"):
        SIZE.convert("500", None, None)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        *(("3..5", (3, 5)), ("7", (7, 7)), ("0..0", (0, 0)), (" 3..5 ", (3, 5))),
        *(("3..", (3, None)), ("..5", (None, 5))),
        *(("-5..-3", (-5, -3)), ("..-0", (None, 0)), ("007", (7, 7)), ("0" * 5000, (0, 0))),
        (f"{-(1 << 63)}..{(1 << 63) - 1}", (-(1 << 63), (1 << 63) - 1)),
    ],
)
def test_a_range_of_steps_has_its_ends(text: str, steps: tuple[int | None, int | None]) -> None:
    assert step_range(text) == steps


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(("5..3", "use 3..5"), ("", "use 3..5"), ("..", "or 3"), ("--1..3", "or 3"), ("3-5", "or 3"), ("²", "or 3")),
        *(("- 1", "or 3"), ("-3..-5", "use -5..-3")),
        *((f"{number}..", f"{number} is not the number of a step") for number in (1 << 63, -(1 << 63) - 1)),
        ("9" * 5000, "99999999 is not the number of a step"),
    ],
)
def test_what_is_not_a_range_of_steps(text: str, words: str) -> None:
    with pytest.raises(click.BadParameter, match=re.escape(words)):
        step_range(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "0"], "--port"),
        (["--worker", "nowhere"], "HOST:PORT"),
        (["--port", "1", "--host-tracer-level", "4"], "--host-tracer-level"),
        (["--port", "1", "--format", "xml"], "--format"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, run_tfperf: Run) -> None:
    done = run_tfperf("capture", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


XSPACE = space(host(event("a/b:MatMul", 0, 5), event("a/b:MatMul", 9, 5)))
TRACE = Path("/l/plugins/profile/r/w0_1.xplane.pb")
CAPTURED = (
    Captured(worker="w0:1", path=TRACE, size_bytes=5000, event_count=70, overhead_percent=3.21),
    Captured(worker="w1:1", reason="busy", message="w1:1 is already being profiled\x1b[31m"),
)


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_shows_who_gave_what(format_name: str) -> None:
    report = capture_report(TRACE.parent, CAPTURED, {TRACE: 12})
    text = render(report, format_name)
    assert format_name == "csv" or "\x1b" not in text, "CSV is for programs, and holds what there is"
    for part in ("w0:1", "w1:1", "busy", "12"):
        assert part in text


def test_people_see_no_column_that_is_empty_for_all_workers() -> None:
    fine = (CAPTURED[0], replace(CAPTURED[0], worker="w1:1", overhead_percent=None))
    shown = render(capture_report(TRACE.parent, fine), "table")
    assert ("Overhead" in shown, "Reason" in shown) == (True, False)
    assert "Reason" in render(capture_report(TRACE.parent, CAPTURED), "table")
    table = json.loads(render(capture_report(TRACE.parent, fine), "json"))["sections"]["capture"]["tables"]["captured"]
    assert [row["reason"] for row in table["rows"]] == ["", ""]


def test_the_json_has_the_fixed_keys() -> None:
    document = json.loads(render(capture_report(Path("/r"), CAPTURED, {}), "json"))
    assert document["summary"] == {
        "workers": 2,
        "captured": 1,
        "reason": "busy",
        "message": "w1:1 is already being profiled\x1b[31m",
        "event_count": 70,
        "captured_steps": None,
        "start_spread_ms": None,
    }
    nothing = json.loads(render(capture_report(Path("/r"), CAPTURED[1:], {}), "json"))
    assert (nothing["source"]["folder"], nothing["summary"]["captured_steps"]) == (None, None)


def test_the_page_lists_every_reason() -> None:
    page = (ROOT / "docs/capture.md").read_text(encoding="utf-8").split("<!-- reasons -->")[1]
    rows, inside = page.split("Captures inside a job")
    documented = re.findall(r"^\| `(\w+)`", rows, re.MULTILINE) + re.findall(r"`(\w+)`", inside.split("\n\n")[0])
    assert sorted(documented) == sorted(get_args(Reason))


def test_the_request_is_sent_before_anything_heavy_is_imported() -> None:
    script = "import sys; import tfperf.cli.capture, tfperf.live.sampling; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not {"numpy", "pandas", "pyarrow", "ptars", "rich", "tensorflow"} & set(done.stdout.split())


_RUN = """
import sys
from tfperf.cli import main
main(sys.argv[1:], standalone_mode=False)
print(*sys.modules, sep="\\n", file=sys.stderr)
"""
_FIVE_STEPS = space(
    host(
        *(event("train", 10 * number, 9, step_num=number, _r=1) for number in range(5)),
        *(event(f"{op}:{op}", 10 * number, 1) for number, op in enumerate(("MatMul", "Add", "Relu"))),
    )
)
_ANALYSIS = ("tfperf.analysis.load", "tfperf.sections", "tfperf.trace")


@pytest.mark.parametrize("analyze", [False, True])
def test_only_analyze_imports_the_analysis_and_counts_steps(analyze: bool, tmp_path: Path) -> None:
    with serving({"Profile": lambda request, context: response(_FIVE_STEPS)}) as port:
        arguments = ["capture", "--port", str(port), "--format", "json", *(["--analyze"] if analyze else [])]
        done = subprocess.run(
            [sys.executable, "-c", _RUN, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
        )
    imported = [name for name in done.stderr.split() if name.startswith(_ANALYSIS)]
    assert bool(imported) == analyze, imported
    document = json.loads(done.stdout)
    (row,) = document["sections"]["capture"]["tables"]["captured"]["rows"]
    assert document["summary"]["captured_steps"] == row.get("step_count") == (5 if analyze else None)
    assert ("step_count" in row) == analyze


def test_top_says_how_many_rows_of_the_analysis_are_shown(tmp_path: Path, run_tfperf: Run) -> None:
    with serving({"Profile": lambda request, context: response(_FIVE_STEPS)}) as port:
        options = ("--analyze", "--top", 2, "--format", "json", "--logdir", tmp_path)
        done = run_tfperf("capture", "--port", port, *options)
    sections = json.loads(done.stdout)["sections"]
    ops = sections["ops"]["tables"]["host_ops"]
    assert (len(ops["rows"]), ops["total_rows"]) == (2, 3)
    assert len(sections["steps"]["tables"]["steps"]["rows"]) == 5, "steps are not ranked"


def test_a_report_that_cannot_be_written_is_said_before_the_job_is_asked(run_tfperf: Run, tmp_path: Path) -> None:
    asked: list[Any] = []

    def profile(request: Any, context: Any) -> bytes:
        asked.append(request)
        return response(XSPACE)

    with serving({"Profile": profile}) as port:
        logs, missing = tmp_path / "logs", tmp_path / "missing" / "report.json"
        done = run_tfperf("capture", "--port", port, "--logdir", logs, "--analyze", "-o", missing)
        assert (done.exit_code, done.stdout, asked, logs.exists()) == (1, "", [], False)
        assert "create it first" in done.stderr
        # In the folder that the command makes, it can be written.
        done = run_tfperf("capture", "--port", port, "--logdir", logs, "--analyze", "-o", logs / "report.json")
        assert (done.exit_code, len(asked)) == (0, 1), done.stderr
        assert json.loads((logs / "report.json").read_text())["summary"]["captured"] == 1


def test_a_report_that_cannot_be_written_in_the_end_is_printed(run_tfperf: Run, tmp_path: Path) -> None:
    report = tmp_path / "report.json"

    def profile(request: Any, context: Any) -> bytes:
        report.mkdir()
        return response(XSPACE)

    with serving({"Profile": profile}) as port:
        done = run_tfperf("capture", "--port", port, "--logdir", tmp_path / "logs", "-o", report)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["summary"]["captured"] == 1
    assert "report.json is a folder; pass a file; printing the report here" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="pseudo-terminals of Linux")
def test_it_counts_down_in_a_terminal(tmp_path: Path) -> None:
    import pty

    with serving({"Profile": lambda request, context: response(XSPACE)}) as port:
        command = [sys.executable, "-m", "tfperf", "capture", "--port", str(port), "--duration", "90s"]
        reader, terminal = pty.openpty()
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=terminal, check=False, timeout=60)
        os.close(terminal)
        shown = os.read(reader, 1 << 16).decode()
        os.close(reader)
    assert done.returncode == 0
    assert re.search(rf"profiling localhost:{port}: \d\d s left", shown)
