"""`%%tfperf` in IPython, in this process: its errors, which are one line; `test_notebook.py` has what it shows."""

from __future__ import annotations

import atexit
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import CapturedIO, capture_output
from traitlets.config import Config

import tfperf

Run = Callable[[str], tuple[CapturedIO, BaseException | None]]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)  # IPython warns if it is that of another Python.
    shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "tfperf")
    yield shell
    InteractiveShell.clear_instance()
    # At the end of Python each shell would look for garbage among all that the other tests left.
    atexit.unregister(shell._atexit_once)


@pytest.fixture
def run(shell: InteractiveShell) -> Run:
    def run_cell(cell: str) -> tuple[CapturedIO, BaseException | None]:
        with capture_output() as captured:
            result = shell.run_cell(cell)
        return captured, result.error_before_exec or result.error_in_exec

    return run_cell


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("%%tfperf --nonsense\n1", "unrecognized arguments: --nonsense"),
        ("%%tfperf -s nonsense\n1", "invalid choice: 'nonsense'"),
        ("%%tfperf --as 1a\n1", "argument --as"),
        ("%%tfperf 'a\n1", "No closing quotation"),
        ("%%tfperf\nimport asyncio\nawait asyncio.sleep(0)", "await outside of a function"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(cell: str, words: str, run: Run) -> None:
    captured, error = run(cell)
    assert type(error).__name__ == "UsageError"
    (line,) = captured.stderr.strip().splitlines()
    assert words in line


def test_code_that_is_none_is_a_syntax_error_as_anywhere(run: Run) -> None:
    assert isinstance(run("%%tfperf\nx = (")[1], SyntaxError)


def test_without_tensorflow_it_says_so_in_one_line(
    run: Run, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    monkeypatch.delitem(sys.modules, "jax", raising=False)  # other tests may have imported it
    captured, error = run("%%tfperf\nran = True")
    assert type(error).__name__ == "UsageError"
    (line,) = captured.stderr.strip().splitlines()
    assert "TensorFlow" in line
    assert "ran" not in shell.user_ns


def test_ipython_is_imported_by_its_host_only(samples: Path) -> None:
    code = (
        "import sys, tfperf\n"
        "a = tfperf.load(sys.argv[1])\n"
        "a._repr_html_(), a['steps'].table, repr(a), dir(tfperf), tfperf.load_ipython_extension\n"
        "print([name for name in ('IPython', 'matplotlib', 'tensorflow') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(samples / "input_bound")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


def test_names_of_sections_are_completed(shell: InteractiveShell, samples: Path) -> None:
    analysis = tfperf.load(samples / "input_bound", sections=["steps", "ops"])
    shell.user_ns["analysis"] = analysis
    with provisionalcompleter():
        found = {completion.text.strip("\"'[]") for completion in shell.Completer.completions('analysis["o', 11)}
    assert found == {"overview", "ops"}
    assert set(analysis.hosts[0]._ipython_key_completions_()) < set(analysis._ipython_key_completions_())
