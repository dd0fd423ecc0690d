"""The command line starts at once, and analysis never needs TensorFlow: what is imported, in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_RUN = """
import sys
from tfperf.cli import main
main(sys.argv[1:], standalone_mode=False)
print(*sys.modules, sep="\\n", file=sys.stderr)
"""


def imported_by(*arguments: str | Path) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stderr.split())


def test_help_imports_nothing_heavy() -> None:
    heavy = {"numpy", "pandas", "pyarrow", "ptars", "google.protobuf", "rich", "tabulate", "tensorflow"}
    assert not heavy & imported_by("--help")


def test_analyze_imports_neither_tensorflow_nor_pandas(samples: Path, tmp_path: Path) -> None:
    found = imported_by("analyze", samples / "input_bound", "-o", tmp_path / "report.txt")
    assert {"numpy", "pyarrow"} <= found, "or this test looks at the wrong process"
    assert not {"tensorflow", "keras", "pandas", "pyarrow.compute"} & found


@pytest.mark.parametrize("name", ["report.txt", "report.json", "report.csv"])
def test_a_report_in_a_file_imports_no_rich(name: str, samples: Path, tmp_path: Path) -> None:
    modules = imported_by("analyze", samples / "input_bound", "-o", tmp_path / name)
    assert not {"rich", "jinja2", "tabulate", "pandas", "tensorflow"} & modules
