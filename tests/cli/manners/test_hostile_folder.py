"""No module of the current folder is imported, whatever its name, by any command that starts a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders import host, logdir_of, marks, space
from capture.conftest import free_port
from live.fake_jobs import fake_job, gives, steps_trace

NAMES = ("enum", "json", "numpy", "pickle", "re", "sitecustomize", "struct", "tfperf", "warnings")


CLUSTER = """
import sys, time
from distributed import LocalCluster
LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, scheduler_port=int(sys.argv[1]), dashboard_address=None
)
time.sleep(600)
"""
"""A scheduler and a worker, in one process."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current folder: its modules leave a mark and end whoever imports them; and programs in a folder beside it."""
    for name in NAMES:
        code = f"open({str(tmp_path / 'marks')!r}, 'a').write({name!r})\nraise SystemExit(9)\n"
        (tmp_path / "here" / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "here" / f"{name}.py").write_text(code)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "installed.py").write_text("from tfperf.__main__ import run\nrun()\n")
    (tmp_path / "bin" / "cluster.py").write_text(CLUSTER)
    (tmp_path / "bin" / "quick.py").write_text("print('the script')\n")
    return tmp_path / "here"


def command(folder: Path, program: str, *arguments: object) -> Sequence[str]:
    """Return the command line that runs a program of the other folder, as a console script is run."""
    return [sys.executable, str(folder.parent / "bin" / f"{program}.py"), *map(str, arguments)]


def output(folder: Path, *arguments: object) -> str:
    """Return what tfperf prints, and check that it imported nothing from the folder."""
    done = subprocess.run(
        command(folder, "installed", *arguments), cwd=folder, capture_output=True, text=True, check=False
    )
    assert not (folder.parent / "marks").exists(), (folder.parent / "marks").read_text()
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    steps = space(host(*marks(4)))
    return logdir_of(tmp_path, a=steps, b=steps)


def test_workers_of_analyze_and_check(folder: Path, logdir: Path) -> None:
    assert "  a, b\n" in output(folder, "analyze", logdir, "--jobs", 2)
    assert "step_time" in output(folder, "check", logdir, "--jobs", 2, "--limit", "step_time < 1s")


def test_the_process_of_top(folder: Path) -> None:
    with fake_job(gives(steps_trace(2000))) as job:
        assert " 2.00 " in output(folder, "top", "--port", job.port, "--once", "--duration", "10ms")


def test_the_process_of_run(folder: Path) -> None:
    assert "the script" in output(folder, "run", folder.parent / "bin" / "quick.py")


def test_a_query(folder: Path, logdir: Path) -> None:
    pytest.importorskip("duckdb")
    assert "8" in output(folder, "query", logdir, "select count(*) from events")


def test_tasks_of_a_cluster(folder: Path, logdir: Path) -> None:
    pytest.importorskip("distributed")
    port = free_port()
    cluster = subprocess.Popen(command(folder, "cluster", port), cwd=folder)
    try:
        assert "  a, b\n" in output(folder, "analyze", logdir, "--cluster", f"tcp://127.0.0.1:{port}")
    finally:
        cluster.kill()
        cluster.wait()


def test_python_m_removes_the_folder_before_it_imports_more(folder: Path) -> None:
    for name in {*NAMES} - {"json", "numpy"}:  # Python itself imports some of the others for `-m`.
        (folder / f"{name}.py").unlink()
    done = subprocess.run([sys.executable, "-m", "tfperf", "explain"], cwd=folder, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (folder.parent / "marks").exists()
