"""What is imported: nothing heavy before it is needed, only the sections that are asked for, and never in a circle."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

IN_A_REPORT = {
    "duckdb", "grpc", "jinja2", "keras", "pandas", "pyarrow.compute", "rich", "tabulate", "tensorflow",
    "tfperf.capture.client", "tfperf.live", "tfperf.models.linter.engine",
}  # fmt: skip
"""Modules that `tfperf analyze` of a small profile into a file does not load: it takes half a second."""
AT_HELP = IN_A_REPORT | {
    "google.protobuf", "http.server", "json", "numpy", "pickle", "ptars", "pyarrow", "subprocess",
    "tfperf.analysis", "tfperf.capture.machine", "tfperf.formats.wire.contents", "tfperf.report.render.values",
    "tfperf.trace.read",
}  # fmt: skip
"""Modules that `tfperf --help` does not load, which takes 0.15 s. It imports the module of every command.

These are the reasons for imports inside functions; besides, TensorFlow is imported where a job is profiled, and
`pytest_plugin.py`, which every run of pytest loads, imports pytest and the standard library only.
"""
_RUN = """
import sys
from tfperf.cli import main
for command in " ".join(sys.argv[1:]).split(";"):
    main(command.split(), standalone_mode=False)
print(*sys.modules, sep="\\n", file=sys.stderr)
"""

_ENTERED = """
import sys
entered = set()

def profile(frame, event, _):
    # Bodies of modules and classes, and what they call, are imports: a module is entered when a function of it runs.
    if event == "call" and frame.f_code.co_flags & 2 and frame.f_back and frame.f_back.f_code.co_name != "<module>":
        if not frame.f_code.co_name.startswith("<"):
            entered.add(frame.f_globals.get("__name__", ""))

from tfperf.cli import main
sys.setprofile(profile)
main(sys.argv[1:], standalone_mode=False)
sys.setprofile(None)
print(*sorted(name for name in entered if name.startswith("tfperf")), file=sys.stderr)
"""


def imported_by(*arguments: str | Path) -> set[str]:
    """Return the modules that a process has after these commands; `;` stands between two of them."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stderr.split())


def test_help_imports_nothing_heavy() -> None:
    loaded = imported_by("--help")
    assert "tfperf.cli.tfprof" in loaded, "or this test looks at the wrong process"
    assert not AT_HELP & loaded


def test_a_report_imports_what_it_needs(samples: Path, tmp_path: Path) -> None:
    files = [tmp_path / f"report.{suffix}" for suffix in ("txt", "json", "csv")]
    commands = [("analyze", samples / "input_bound", "-o", file) for file in files]
    loaded = imported_by(*(word for command in commands for word in (*command, ";")), "--version")
    assert {"numpy", "pyarrow"} <= loaded, "or this test looks at the wrong process"
    assert not IN_A_REPORT & loaded
    assert all(file.exists() for file in files)


def test_datasets_and_sql_import_no_pandas(samples: Path, tmp_path: Path) -> None:
    """Arrow imports it for its own conversions, which takes longer than most queries."""
    sample, dataset = samples / "input_bound", tmp_path / "dataset"
    asked = ("query", sample, "select/**/max(name)/**/from/**/events,steps,host_files")
    assert not {"duckdb", "numpy", "pandas", "pyarrow"} & imported_by(*asked, ";", *asked, "--format", "csv")
    code = (
        "import sys; from tfperf.cli import main; main(sys.argv[3:], standalone_mode=False); "
        "from tfperf.export.query.engine import *; begin(*sys.argv[1:3], QueryLimits(), {}); "
        "check(); read(); fetch(); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, str(sample), asked[2], "export-parquet", str(sample), "-o", str(dataset)]
    found = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert {"duckdb", "pyarrow.parquet"} <= found
    assert "pandas" not in found


def test_sections_select_what_is_imported(samples: Path, tmp_path: Path) -> None:
    imported = imported_by("analyze", samples / "input_bound", "-s", "steps", "-o", tmp_path / "report.txt")
    assert {name.split(".")[2] for name in imported if name.startswith("tfperf.sections.")} == {"steps", "overview"}


def test_one_section_enters_few_modules(samples: Path) -> None:
    command = [sys.executable, "-c", _ENTERED, "analyze", str(samples / "input_bound"), "-s", "steps"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    entered = done.stderr.split()
    assert {"tfperf.analysis.load", "tfperf.formats.wire.planes", "tfperf.trace.steps.breakdown"} <= set(entered)
    assert len(entered) <= 41, entered


def test_no_module_imports_itself_by_way_of_others() -> None:
    # Function-level imports count too: grimp reads the whole file.
    graph = grimp.build_graph("tfperf", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100, "or this test looks at the wrong package"
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
