"""`tfperf top`: wrong usage, and what it says where there is nothing to watch. Jobs are watched in tests/top."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from printed import Run


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("--once --samples 3", "--once cannot be used with --format, --samples"),
        ("--once --metrics-port 9123", "--once cannot be used with --format, --samples"),
        ("--once --interval 0s", "'0s' is zero"),
        ("--once --interval 600ms", "--duration 0.5s is more than half of --interval 0.6s"),
        ("--once --samples 0", "0 is not in the range"),
        ("--format xml", "'xml' is not one of 'screen', 'jsonl'"),
        ("--once --workers ,", "',' has no workers"),
        ("--once --workers a:1,a:1", "workers are listed twice; list each worker once: a:1"),
        ("--once --workers a:1 --worker b:1", "--worker cannot be used with --workers"),
        ("--once --port 70000", "70000 is not in the range"),
    ],
)
def test_wrong_usage(typed: str, says: str, run_tfperf: Run) -> None:
    done = run_tfperf("top", *typed.split())
    assert done.exit_code == 2
    assert says in done.stderr.replace("\n", " ")
    assert done.stdout == ""


def test_several_that_are_not_there(run_tfperf: Run) -> None:
    done = run_tfperf("top", "--workers", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--once")
    assert done.exit_code == 1
    assert done.stderr.rstrip().endswith("(and 2 more workers without traces)")


def test_a_dumb_terminal_gets_no_screen(tmp_path: Path) -> None:
    pexpect = pytest.importorskip("pexpect", reason="there is no pseudo-terminal")
    command = [sys.executable, "-m", "tfperf", "top", "--port", "1"]
    environment = {**os.environ, "TERM": "dumb"}
    child = pexpect.spawn(command[0], command[1:], env=environment, timeout=60, encoding="utf-8", cwd=tmp_path)
    child.expect_exact("the live view requires a terminal")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2


def test_without_textual_there_is_no_live_view_and_the_message_says_how_to_install_it(
    run_tfperf: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfperf.cli.top.can_be_redrawn", lambda: True)
    monkeypatch.setattr("tfperf.cli.top.find_spec", lambda name: None)
    done = run_tfperf("top", "--port", "1")
    assert done.exit_code == 2
    assert "pip install 'tfperf[top]'" in done.stderr.replace("\n", " ")
    done = run_tfperf("top", "--port", "1", "--once")
    assert done.exit_code == 1
    assert "Textual" not in done.stderr


def test_help_imports_neither_grpc_nor_what_draws() -> None:
    code = (
        "import sys\nfrom tfperf.cli import main\nmain(['top', '--help'], standalone_mode=False)\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(done.stderr.split())
    assert "tfperf.cli.top" in modules, "or this test looks at the wrong process"
    assert not {"numpy", "grpc", "google.protobuf", "rich", "textual", "tfperf.live.top", "http.server"} & modules
