"""The example of docs/extending.md, installed into a fresh virtual environment: it shows in all outputs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest
from places import ROOT

SAMPLE = ROOT / "sample_traces" / "input_bound"
PAGE = (ROOT / "docs" / "extending.md").read_text()


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
    where = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    purelib = subprocess.run(where, check=True, capture_output=True, text=True).stdout.strip()
    Path(purelib, "tfperf_of_the_tests.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_path('purelib')}\n")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run([*install, "--target", purelib, str(package)], check=True)
    return python


COMMANDS = (
    "analyze PATH --full",
    "analyze PATH -s threads",
    "analyze PATH -s threads --format markdown",
    "analyze PATH -s threads --format csv",
    "analyze PATH -s threads --format html",
    "analyze PATH --format json",
    "export-csv PATH -o FOLDER",
    "query PATH 'select count(*) > 1 as several from threads' --format csv",
    "query --schema",
    "check PATH --limit 'max(threads.events) > 0'",
    "check PATH --limit 'threads.events[name~nothing] > 0'",
    "check PATH --limit 'sum(threads.events) < 1'",
    "analyze --help",
)
IN_PYTHON = "len(tfperf.load(PATH, sections=['threads'])['threads'])"
_IN_ONE_PROCESS = """
import json, sys
from click.testing import CliRunner
import tfperf
from tfperf.cli import main
sample, commands = sys.argv[1:]
results = [CliRunner().invoke(main, command) for command in json.loads(commands)]
shown = [(result.exit_code, result.stdout, result.stderr) for result in results]
print(json.dumps([*shown, (0, repr(len(tfperf.load(sample, sections=["threads"])["threads"])), "")]))
"""


class Shown(NamedTuple):
    """What a command showed."""

    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `export-csv` makes."""
    return tmp_path_factory.mktemp("exported") / "tables"


@pytest.fixture(scope="module")
def shown(python: Path, exported: Path) -> dict[str, Shown]:
    """What each of `COMMANDS` shows in the environment, and `IN_PYTHON`; one process runs all: its start takes long."""
    values = {"PATH": str(SAMPLE), "FOLDER": str(exported)}
    commands = [[values.get(word, word) for word in shlex.split(line)] for line in COMMANDS]
    command = [str(python), "-c", _IN_ONE_PROCESS, str(SAMPLE), json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""})
    return {line: Shown(*result) for line, result in zip((*COMMANDS, IN_PYTHON), json.loads(done.stdout), strict=True)}


def test_it_is_in_the_report_for_people(shown: dict[str, Shown]) -> None:
    whole = shown["analyze PATH --full"]
    assert whole.code == 0, whole.stderr
    assert "\nThreads\n=======\n" in whole.stdout
    alone = shown["analyze PATH -s threads"]
    assert "Threads by number of events" in alone.stdout
    assert "Step time by category" not in alone.stdout


def test_it_is_in_every_format_and_in_help(shown: dict[str, Shown]) -> None:
    assert "Longest" in shown["analyze PATH -s threads --format markdown"].stdout
    assert "longest_ms" in shown["analyze PATH -s threads --format csv"].stdout
    assert "Longest" in shown["analyze PATH -s threads --format html"].stdout
    assert "threads" in shown["analyze --help"].stdout


def test_it_is_in_json(shown: dict[str, Shown]) -> None:
    document = json.loads(shown["analyze PATH --format json"].stdout)
    table = document["sections"]["threads"]["tables"]["threads"]
    assert document["sections"]["threads"]["facts"]["thread_count"]["value"] == len(table["rows"]) > 1
    assert set(table["rows"][0]) == {"host", "thread", "events", "longest_ms"}


def test_it_is_a_file_of_export_csv(shown: dict[str, Shown], exported: Path) -> None:
    assert shown["export-csv PATH -o FOLDER"].code == 0
    assert (exported / "threads.csv").read_text().startswith("host,thread,events,longest_ms\n")


def test_it_is_a_table_in_sql(shown: dict[str, Shown]) -> None:
    answer = shown["query PATH 'select count(*) > 1 as several from threads' --format csv"]
    assert answer.stdout.splitlines() == ["several", "true"], answer.stderr
    assert "threads" in shown["query --schema"].stdout


def test_limits_can_be_on_it(shown: dict[str, Shown]) -> None:
    assert shown["check PATH --limit 'max(threads.events) > 0'"].code == 0
    assert shown["check PATH --limit 'threads.events[name~nothing] > 0'"].code == 1
    assert shown["check PATH --limit 'sum(threads.events) < 1'"].code == 3


def test_python_has_it(shown: dict[str, Shown]) -> None:
    assert int(shown[IN_PYTHON].stdout) > 1


BROKEN = {
    "import": ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    "type": ("SECTION = 3", "it is int, not a SectionSpec"),
    "name": (block("py").replace('SectionSpec(name="threads"', 'SectionSpec(name="steps"'), "its name is steps"),
    "table": (
        block("py").replace('name="threads",\n    title="Threads by', 'name="kernels",\n    title="x'),
        "already has a table kernels",
    ),
    "analyze": (block("py").replace("trace = host.trace", "trace = host.nothing"), "AttributeError: 'Host' object has"),
    "build": (block("py").replace("table = THREADS", "table = 1 / 0 or THREADS"), "ZeroDivisionError: division by"),
}
"""Packages that cannot be used, and why; a module hides the one that is installed."""
_EACH_A_FORK = """
import importlib, os, pkgutil, sys
import tfperf.analysis.load, tfperf.sections
from tfperf.__main__ import run
for module in pkgutil.walk_packages(tfperf.sections.__path__, "tfperf.sections."):
    importlib.import_module(module.name)
sample, *folders = sys.argv[1:]
for folder in folders:
    if not (child := os.fork()):
        sys.path.insert(0, folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT), number)
        sys.argv = ["tfperf", "analyze", sample, "--format", "json"]
        run()
        sys.exit()
    with open(f"{folder}/code", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""


@pytest.fixture(scope="module")
def broken(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what is shown beside each of `BROKEN`; processes that share the start of Python."""
    base = tmp_path_factory.mktemp("broken")
    for name, (source, _) in BROKEN.items():
        (base / name).mkdir()
        (base / name / "acme_threads.py").write_text(source)
    command = [str(python), "-c", _EACH_A_FORK, str(SAMPLE), *(str(base / name) for name in BROKEN)]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": ""})
    return base


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_named_in_one_line_and_omitted(broken: Path, name: str) -> None:
    code, stdout, stderr = ((broken / name / stream).read_text() for stream in ("code", "stdout", "stderr"))
    assert code == "0", stderr
    lines = [line for line in stderr.splitlines() if line.startswith("section threads is omitted: ")]
    assert len(lines) == 1
    assert BROKEN[name][1] in lines[0]
    assert "threads" not in json.loads(stdout)["sections"]
    assert "steps" in json.loads(stdout)["sections"]
