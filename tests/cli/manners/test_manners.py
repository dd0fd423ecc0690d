"""Output manners: every row of the table, in this process or in a terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import logdir_of
from cli.manners.cases import IN_PROCESS, IN_TERMINAL, Case
from click.testing import CliRunner
from forks import IMPORTS
from places import SAMPLES
from synthetic_gpu import synthetic_gpu

import tfperf
from tfperf.cli import main
from tfperf.report.render import RenderOptions, render
from tfperf.report.render.text_table import cells

pexpect = pytest.importorskip("pexpect", reason="there is no pseudo-terminal")

WIDTHS = (40, 60, 72, 80, 100, 132, 200)


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two logdirs, odd files, `tfperf` as a program, and a pager that says what it got."""
    folder = tmp_path_factory.mktemp("manners")
    shutil.copytree(SAMPLES / "input_bound", folder / "logs")
    shutil.copytree(SAMPLES / "input_fixed", folder / "fixed")
    for name, day in (("logs", 21), ("fixed", 22)):
        (run,) = folder.glob(f"{name}/plugins/profile/*")
        shutil.copytree(run, folder / "both" / "plugins" / "profile" / f"2026_11_{day}_12_00_00")
    (folder / "empty").mkdir()
    (folder / "events" / "train").mkdir(parents=True)
    (folder / "events" / "train" / "events.out.tfevents.1").write_bytes(b"\0")
    trace = next(folder.glob("logs/plugins/profile/*/*.xplane.pb"))
    (folder / "cut.xplane.pb").write_bytes(trace.read_bytes()[:20_000])
    (folder / "empty.xplane.pb").touch()
    (folder / "text.xplane.pb").write_text("hello world\n")
    (folder / "old.txt").write_text("old\n")
    (folder / "bad.toml").write_text('[check]\nmax-inputbound = "10%"\n')
    programs = {
        "tfperf": f"#!{sys.executable}\nfrom tfperf.__main__ import run\nrun()\n",
        # What ends something long, such as a script, has no pager.
        "show.py": (
            "import sys, tfperf\n"
            "from tfperf.cli import options\n"
            "getattr(options, sys.argv[1])(tfperf.load('logs').report(), 'table', None, force=False)\n"
        ),
        "quick.py": "print('the script')\n",
        "pager": "#!/bin/sh\nread first\necho pager $1 got $first\ncat > /dev/null\n",
    }
    for name, code in programs.items():
        (folder / name).write_text(code)
        (folder / name).chmod(0o755)
    return folder


def name_of(case: Case) -> str:
    return f"{case.typed} [{case.columns}]" if case.columns != 80 else case.typed or "nothing"


def matches(first: str, line: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, first.split("*"))), line) is not None


@pytest.mark.usefixtures("asked_here")
@pytest.mark.parametrize("case", IN_PROCESS, ids=name_of)
def test_in_this_process(case: Case, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    words, environment = shlex.split(case.typed), {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, environment[name] = words.pop(0).partition("=")
    words = [str(next(Path().glob(word))) if word.endswith("/*") else word for word in words]
    result = CliRunner().invoke(main, words, env=environment)
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    lines = result.stdout.splitlines() or errors or result.stderr.splitlines() or [""]
    assert result.exit_code == case.code, result.output
    assert matches(case.first, lines[0]), lines[0]
    assert len(errors) == (case.code in (1, 2) and not result.stdout and bool(words)), errors


NEEDS_BASH = re.compile("[|;<>]|PYTHON|LINES|^tfperf run ")
"""What needs a process of its own: pipes, what counts when Python starts, a script that is run."""
TOGETHER = [case for case in IN_TERMINAL if not (case.keys or NEEDS_BASH.search(case.typed))]
ALONE = [case for case in IN_TERMINAL if case not in TOGETHER]
_EACH_A_FORK = f"""
import json, os, shlex, sys
{IMPORTS}
for typed in json.loads(sys.argv[1]):
    if not (child := os.fork()):
        words = shlex.split(typed)
        while "=" in words[0]:
            name, _, os.environ[name] = words.pop(0).partition("=")
        sys.argv = words
        run()
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print("\x1c", code, "\x1d", sep="", end="", flush=True)
"""
"""A terminal in which commands are typed."""


def in_terminal(workplace: Path, command: list[str], columns: int = 80) -> Any:
    """Start a command in a terminal."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(workplace), str(Path(sys.executable).parent), os.environ["PATH"])),
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
    }
    options = {"cwd": workplace, "env": environment, "dimensions": (40, columns), "timeout": 300, "encoding": "utf-8"}
    return pexpect.spawn(command[0], command[1:], **options)


def assert_seen(case: Case, screen: str, code: int) -> None:
    assert code == case.code, screen
    # On a loaded machine, a progress bar comes first; it is removed in the end.
    screen = screen.rpartition("\x1b[?25h\x1b[1A\x1b[2K")[2]
    assert matches(case.first, screen.split("\n")[0]), screen
    assert "Traceback" not in screen
    assert "Exception ignored" not in screen
    assert r"\u" not in screen


@pytest.fixture(scope="module")
def screens(workplace: Path) -> dict[Case, tuple[str, int]]:
    """What each case of `TOGETHER` shows, and its exit code."""
    seen = {}
    for columns in {case.columns for case in TOGETHER}:
        cases = [case for case in TOGETHER if case.columns == columns]
        command = [sys.executable, "-c", _EACH_A_FORK, json.dumps([case.typed for case in cases])]
        child = in_terminal(workplace, command, columns)
        child.expect(pexpect.EOF)
        shown = child.before.replace("\r", "").split("\x1d")[:-1]
        for case, part in zip(cases, shown, strict=True):
            screen, _, code = part.rpartition("\x1c")
            seen[case] = screen, int(code)
    return seen


@pytest.mark.parametrize("case", TOGETHER, ids=name_of)
def test_in_a_terminal(case: Case, screens: dict[Case, tuple[str, int]]) -> None:
    assert_seen(case, *screens[case])


@pytest.mark.parametrize("case", ALONE, ids=name_of)
def test_in_a_terminal_with_a_shell(case: Case, workplace: Path) -> None:
    child = in_terminal(workplace, ["bash", "--norc", "-c", f"set -o pipefail; {case.typed}"], case.columns)
    before = ""
    if case.keys:
        child.expect_exact(case.waits_for)
        before = child.before + child.after
        # When Python itself starts, nobody can catch Ctrl-C.
        child.expect(pexpect.TIMEOUT, timeout=2)
        child.send(case.keys)
    child.expect(pexpect.EOF)
    child.close()
    screen = (before + child.before).replace("\r", "")
    assert_seen(case, screen, child.exitstatus)
    if case.code == 130:
        assert screen.rstrip("\n").split("\n")[1:] == ["^C", "Interrupted"]


def test_ctrl_c_while_the_program_is_loaded_is_one_line() -> None:
    """Nothing can be sent at just that moment, so the import of a module is where Ctrl-C comes."""
    code = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'tfperf.cli': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from tfperf.__main__ import run\n"
        "run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted\n")


def test_a_closed_stderr_changes_nothing(workplace: Path) -> None:
    """Notes have no reader, and the exit code stays."""
    line = "tfperf export-csv logs -o unheard 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}"
    environment = {**os.environ, "PATH": f"{workplace}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", line], check=False, cwd=workplace, env=environment, timeout=60)
    assert done.returncode == 0
    assert len(list((workplace / "unheard").iterdir())) > 20


@pytest.mark.parametrize("sample", ["input_bound", "retracing", "custom_loop", "gpu"])
def test_no_line_is_wider_than_the_window_and_no_number_is_cut(sample: str, tmp_path: Path) -> None:
    path = SAMPLES / sample if sample != "gpu" else logdir_of(tmp_path, a=synthetic_gpu())
    report = tfperf.load(path).report()
    whole = numbers(render(report, "table", RenderOptions(width=200, view="sections")))
    assert len(whole) > 50
    for width in WIDTHS:
        for interactive in (False, True):
            options = RenderOptions(width=width, view="sections", interactive=interactive)
            text = render(report, "table", options)
            unbroken = re.compile(r"  docs: https://|tfperf analyze ")  # addresses and commands, to copy
            assert max(cells(line) for line in text.splitlines() if not unbroken.search(line)) <= width
            missing = whole - numbers(text)
            assert not missing, (width, missing)


def numbers(text: str) -> set[str]:
    """Return the numbers of cells: those with spaces around, a digit behind the point, and no letters.

    A sentence may have a line that starts with a number and an `if`, or `only if`.
    """
    return set(re.findall(r"(?<=  )\d[\d,]*\.\d+(?= (?!(?:only )?if )|$)", text, re.MULTILINE))


def test_files_have_no_colours_and_no_terminal_width(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workplace)
    environment = {"COLUMNS": "200", "FORCE_COLOR": "1"}
    options = ["--color", "always", "-q", "-o", "plain.txt"]
    assert CliRunner().invoke(main, ["analyze", "logs", *options], env=environment).exit_code == 0
    text = (workplace / "plain.txt").read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
