"""The example of docs/extending.md, installed into a fresh virtual environment: it shows in all outputs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
SAMPLE = PROJECT / "sample_traces" / "input_bound"
PAGE = (PROJECT / "docs" / "extending.md").read_text()


def block(language: str) -> str:
    """Return the first code block of a language on the page."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found, language
    return found[1]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the package of the example."""
    folder = tmp_path_factory.mktemp("extending")
    package = folder / "acme-threads"
    package.mkdir()
    (package / "pyproject.toml").write_text(block("toml"))
    (package / "acme_threads.py").write_text(block("py"))
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin" / "python"
    # tfperf, what it needs and what builds packages are those of this environment: to install them would take minutes.
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    Path(purelib, "tfperf_of_the_tests.pth").write_text(f"{PROJECT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-build-isolation", str(package)], check=True)
    return python


def tfperf(python: Path, *arguments: object, modules: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in the environment; modules in the folder `modules` hide those that are installed."""
    environment = {**os.environ, "PYTHONPATH": modules}
    command = [str(python), "-m", "tfperf", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_it_is_in_the_report_for_people(python: Path) -> None:
    whole = tfperf(python, "analyze", SAMPLE, "--full")
    assert whole.returncode == 0, whole.stderr
    assert "\nThreads\n=======\n" in whole.stdout
    alone = tfperf(python, "analyze", SAMPLE, "-s", "threads")
    assert "Threads by number of events" in alone.stdout
    assert "Where a step's time goes" not in alone.stdout


@pytest.mark.parametrize("format_name", ["markdown", "csv", "html"])
def test_it_is_in_every_format(python: Path, format_name: str) -> None:
    assert "Longest" in (shown := tfperf(python, "analyze", SAMPLE, "--format", format_name).stdout) or (
        "longest_ms" in shown
    )


def test_it_is_in_json(python: Path) -> None:
    document = json.loads(tfperf(python, "analyze", SAMPLE, "--format", "json").stdout)
    table = document["sections"]["threads"]["tables"]["threads"]
    assert document["sections"]["threads"]["facts"]["thread_count"]["value"] == len(table["rows"]) > 1
    assert set(table["rows"][0]) == {"host", "thread", "events", "longest_ms"}


def test_it_is_a_file_of_export_csv(python: Path, tmp_path: Path) -> None:
    assert tfperf(python, "export-csv", SAMPLE, "-o", tmp_path / "tables").returncode == 0
    assert (tmp_path / "tables" / "threads.csv").read_text().startswith("host,thread,events,longest_ms\n")


def test_it_is_a_table_in_sql(python: Path) -> None:
    answer = tfperf(python, "query", SAMPLE, "select count(*) > 1 as several from threads", "--format", "csv")
    assert answer.stdout.splitlines() == ["several", "true"], answer.stderr
    assert "threads" in tfperf(python, "query", "--schema").stdout


def test_limits_can_be_on_it(python: Path) -> None:
    assert tfperf(python, "check", SAMPLE, "--limit", "max(threads.events) > 0").returncode == 0
    assert tfperf(python, "check", SAMPLE, "--limit", "threads.events[name~nothing] > 0").returncode == 1
    assert tfperf(python, "check", SAMPLE, "--limit", "sum(threads.events) < 1").returncode == 3


def test_python_has_it(python: Path) -> None:
    program = f"import tfperf; print(len(tfperf.load({str(SAMPLE)!r}, sections=['threads'])['threads']))"
    shown = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout
    assert int(shown) > 1


def test_help_lists_it(python: Path) -> None:
    assert "threads" in tfperf(python, "analyze", "--help").stdout


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("SECTION = 3", "it is int, not a SectionSpec"),
        (block("py").replace('SectionSpec(name="threads"', 'SectionSpec(name="steps"'), "it calls"),
        (block("py").replace('name="threads",\n    title="Threads by', 'name="kernels",\n    title="x'), "a table"),
        (block("py").replace("trace = host.trace", "trace = host.nothing"), "AttributeError: 'Host' object has no"),
        (block("py").replace("table = THREADS", "table = 1 / 0 or THREADS"), "ZeroDivisionError: division by zero"),
    ],
    ids=["import", "type", "name", "table", "analyze", "build"],
)
def test_a_broken_one_is_named_in_one_line_and_omitted(python: Path, tmp_path: Path, source: str, reason: str) -> None:
    (tmp_path / "acme_threads.py").write_text(source)
    result = tfperf(python, "analyze", SAMPLE, "--format", "json", modules=str(tmp_path))
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("section threads is omitted: ")]
    assert len(lines) == 1
    assert reason in lines[0]
    assert "threads" not in json.loads(result.stdout)["sections"]
    assert "steps" in json.loads(result.stdout)["sections"]
