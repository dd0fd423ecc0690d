"""What `make quick` leaves out is what it says, and no more; what shares something runs in one worker."""

from __future__ import annotations

from pathlib import Path

from conftest import SHARE_ANALYSES, SHARE_JOBS, TESTS


def test_files_that_use_the_shared_jobs_run_in_one_worker(root: Path) -> None:
    using = [
        path for path in TESTS.glob("capture/test_*.py") if "jobs: dict[str, Job]" in path.read_text(encoding="utf-8")
    ]
    assert {str(path.relative_to(root)) for path in using} == SHARE_JOBS


def test_files_that_use_the_shared_analyses_run_in_one_worker(root: Path) -> None:
    using = [path for path in TESTS.rglob("test_*.py") if "from real_runs import" in path.read_text(encoding="utf-8")]
    assert {str(path.relative_to(root)) for path in using} - {"tests/test_conftest.py"} == SHARE_ANALYSES
