"""`tfperf completion`: scripts for shells, and what a real bash makes of one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from printed import Run

_COMPLETE = """
source ./completion.sh
# Bash binds the function when a line is read; here it is called as bash would.
COMP_WORDS=({words}) COMP_CWORD={current}
compopt() {{ IFS=" "; echo "compopt $*"; }}
_tfperf_completion tfperf "${{COMP_WORDS[COMP_CWORD]}}" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p tfperf
"""


@pytest.fixture(scope="module")
def shell_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `tfperf` as a program, and the script."""
    folder = tmp_path_factory.mktemp("shell")
    program = folder / "tfperf"
    program.write_text(f"#!{sys.executable}\nfrom tfperf.__main__ import run\nrun()\n")
    program.chmod(0o755)
    script = subprocess.run([program, "completion", "bash"], check=True, capture_output=True, text=True, timeout=60)
    (folder / "completion.sh").write_text(script.stdout)
    return folder


def complete(folder: Path, *words: str) -> list[str]:
    """Return what bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in ("tfperf", *words))
    program = _COMPLETE.format(words=quoted, current=len(words))
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    bash = ["bash", "--norc", "-c", program]
    done = subprocess.run(bash, check=True, capture_output=True, text=True, timeout=60, cwd=folder, env=environment)
    assert done.stderr == ""
    *offered, binding = done.stdout.splitlines()
    assert binding == "complete -o nosort -F _tfperf_completion tfperf"
    return [word for word in offered if word]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("e",), ["export-csv", "export-parquet", "explain"]),
        (("analyze", "--sec"), ["--section"]),
        (("analyze", "--color", "a"), ["auto", "always"]),
        (("analyze", "-s", "k"), ["kernels"]),
        (("analyze", "logs", "--section", "host_"), ["host_threads"]),
        (("analyze", "--format", "ma"), ["markdown"]),
        (("check", "--max-inp"), ["--max-input-bound", "--max-input-cost"]),
        (("check", "logs", "--fail-on", "input_"), ["input_wait", "input_copy", "input_contention", "input_in_step"]),
        (("explain", "output_c"), ["output_copy"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("analyze", "lo"), ["compopt -o default"]),
        (("nothing", "z"), []),
    ],
)
def test_bash_completes(words: tuple[str, ...], offered: list[str], shell_folder: Path) -> None:
    assert complete(shell_folder, *words) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_tab_completes_at_a_prompt(shell_folder: Path) -> None:
    pexpect = pytest.importorskip("pexpect", reason="there is no pseudo-terminal")
    path = f"{shell_folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "TERM": "dumb", "PS1": "> "}
    bash = ["--norc", "--noprofile", "-i"]
    child = pexpect.spawn("bash", bash, cwd=shell_folder, env=environment, encoding="utf-8", timeout=30)
    child.sendline("source ./completion.sh; echo rea''dy")
    child.expect_exact("ready")
    child.send("tfperf ana\t")
    child.expect_exact("tfperf analyze ")
    child.send("-s kern\t")
    child.expect_exact("-s kernels ")
    child.send("--no-p\t")
    child.expect_exact("--no-pager ")
    child.close(force=True)


@pytest.mark.parametrize(("shell", "said"), [("zsh", "#compdef tfperf"), ("fish", "function _tfperf_completion")])
def test_scripts_for_other_shells(shell: str, said: str, run_tfperf: Run) -> None:
    result = run_tfperf("completion", shell)
    assert result.exit_code == 0
    assert result.stdout.startswith(said)
    assert f"_TFPERF_COMPLETE={shell}_complete" in result.stdout
