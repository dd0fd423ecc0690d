"""What `make quick` leaves out is what it says, and no more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import NEEDS, TESTS


@pytest.mark.parametrize("pattern", [pattern for patterns in NEEDS.values() for pattern in patterns])
def test_files_that_need_something_are_there(pattern: str) -> None:
    assert list(TESTS.glob(pattern))


def test_marked_files_are_left_out_and_the_others_are_not(root: Path) -> None:
    files = ["tests/capture/test_local.py", "tests/capture/test_address.py", "tests/sections/ops/test_xla_ops.py"]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not tensorflow", "-p", "no:xdist", *files]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    assert {line.split("::")[0] for line in done.stdout.splitlines() if "::" in line} == {files[1]}
