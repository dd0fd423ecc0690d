"""What `make quick` leaves out is what it says, and no more; what shares something runs in one worker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NEEDS, SHARE_ANALYSES, SHARE_JOBS, TESTS


@pytest.mark.parametrize("pattern", [pattern for patterns in NEEDS.values() for pattern in patterns])
def test_files_that_need_something_are_there(pattern: str) -> None:
    assert list(TESTS.glob(pattern))


def test_marked_files_are_left_out_and_the_others_are_not(root: Path) -> None:
    files = ["tests/capture/test_local.py", "tests/capture/test_address.py", "tests/sections/ops/test_xla_ops.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not tensorflow", "-p", "no:xdist", *files]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    assert {line.split("::")[0] for line in done.stdout.splitlines() if "::" in line} == {files[1]}


def test_files_that_use_the_shared_jobs_run_in_one_worker(root: Path) -> None:
    using = [
        path for path in TESTS.glob("capture/test_*.py") if "jobs: dict[str, Job]" in path.read_text(encoding="utf-8")
    ]
    assert {str(path.relative_to(root)) for path in using} == SHARE_JOBS


def test_files_that_use_the_shared_analyses_run_in_one_worker(root: Path) -> None:
    using = [path for path in TESTS.rglob("test_*.py") if "from real_runs import" in path.read_text(encoding="utf-8")]
    assert {str(path.relative_to(root)) for path in using} - {"tests/test_conftest.py"} == SHARE_ANALYSES
