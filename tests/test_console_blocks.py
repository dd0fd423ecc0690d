"""Every `console` block of a page is typed: commands that need a job, or files of an earlier day.

`tests/test_docs.py` runs the other languages, and `tests/test_tutorial.py` the tutorial. Here the files and jobs that a
page speaks of are made first. Durations are shortened, and names of machines become this one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, logdir_of, space
from capture.double import response, serving
from capture.serving_job import ServingJob
from jax_builders import three_steps
from job_environment import PROFILER_ALONE, job_environment, without_tensorflow
from places import ROOT
from shared_runs import make_program
from test_docs import PAGES, follow, shell

from tfperf.analysis.parallel.worker_pool import WorkerProcess
from tfperf.cli import main
from tfperf.cli.run import command as run_command

SHORTER = {
    "--duration 2s": "--duration 500ms",
    "--duration 5s": "--duration 1s",
    "--on-slow-step 50ms": "--on-slow-step 1us",
    # Two runs, which `shared_runs.py` does once. Here click reads the options as they stand; capture/test_script_run.py
    # has steps, profiles by time, and Keras.
    "-o report.html train.py": "train.py",
    "train.py --epochs 3": "train.py",
    "--steps 50..59 train.py": "train.py",
    "--after 30s --duration 500ms train.py": "train.py",
    "--host-tracer-level 3 train.py": "train.py",
    "--profiler-option gpu_max_activity_api_events=4000000 train.py": "train.py",
    "--profiler-option tpu_trace_mode=TRACE_COMPUTE train.py": "train.py",
    "--stop-after-profile train.py": "--python-trace --stop-after-profile train.py",
    "--python-trace --steps 20..29 train.py": "--python-trace --stop-after-profile train.py",
}
HERE = {
    "https://host/logs/plugins/profile/run/vm.xplane.pb": "logs",
    "/data/team/logs /data/nightly": "logs logs_after",
    "s3://bucket/reports/": "",
    "s3://bucket/": "",
    "gs://bucket/": "",
    "tfperf xla logs": "tfperf xla sample_traces/gpu_transformer",
    "--op fusion.3": "--op gemm_fusion_dot.65",
    "--program jit_step": "--program jit_train",
    'tfperf query logs "select layer': 'tfperf query sample_traces/gpu_transformer "select layer',
}
"""Addresses of profiles and reports, which `tests/storage` reads and writes at servers of its own, as paths; and names
of XLA programs and ops, as in a sample."""
_CLUSTER = {"worker": ["127.0.0.1:2222"]}
_FENCE = re.compile(r"^ *```console\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_TRAIN = """
import time
import tensorflow as tf
import tfperf

for number in range(80):
    with tfperf.step(number):
        time.sleep(0.001)
"""


def console_blocks() -> list[Any]:
    """Return the commands of each block, without the output that some show."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text if page.name != "tutorial.md" else ""):
            lines = [line.strip() for line in match[1].splitlines()]
            typed = [line[2:] for line in lines if line.startswith("$ ")] or lines
            name = f"{page.name}:{text[: match.start()].count(chr(10)) + 1}"
            needs_job = any(line.startswith(("tfperf run", "tfperf capture", "tfperf top")) for line in typed)
            marks = [pytest.mark.tensorflow, without_tensorflow] if needs_job else []
            found.append(pytest.param(typed, id=name, marks=marks))
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the pages speak of: profiles, baselines, and a script that trains."""
    folder = tmp_path_factory.mktemp("made")
    starts_us = [1000 * number + 10 * (number % 3) for number in range(120)]
    marks = [event("train", start, 900, step_num=number) for number, start in enumerate(starts_us)]
    logdir_of(folder, a=space(host(*marks)))
    shutil.copytree(ROOT / "sample_traces", folder / "sample_traces")
    shutil.copytree(ROOT / "sample_traces" / "input_bound", folder / "logs_before")
    shutil.copytree(folder / "logs", folder / "logs_after")
    (run,) = (folder / "logs" / "plugins" / "profile").iterdir()
    shutil.copytree(run, run.with_name("an_earlier_run"))
    for name in ("baseline", "monday", "tuesday"):
        code, _, stderr = follow(f"tfperf analyze logs --save-baseline {name}.json -s overview", folder)
        assert code == 0, stderr
    (folder / "train.py").write_text(_TRAIN)
    (folder / "cluster.json").write_text(json.dumps(_CLUSTER))
    (folder / "peaks.toml").write_text("[[device]]\nname = 'ours'\nteraflops = {fp32 = 1.0}\n")
    return folder


@pytest.fixture
def workplace(tmp_path: Path, made: Path) -> Path:
    """A copy of that folder."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


@pytest.fixture
def of_xla(workplace: Path) -> None:
    """Let the profile be one of JAX."""
    shutil.rmtree(workplace / "logs")
    logdir_of(workplace, a=three_steps())


@pytest.fixture(scope="module")
def job() -> Iterator[ServingJob]:
    """A job, which has nothing to do yet."""
    with tempfile.TemporaryFile("w") as errors:
        job = ServingJob(errors)
        try:
            yield job
        finally:
            job.close()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `tfperf` that does once what several pages say."""
    return make_program(tmp_path_factory)


@pytest.fixture
def ports(job: ServingJob) -> Iterator[tuple[int, int]]:
    """The ports of a job at work, and of a double of one: where several are asked, what they do is not the point."""
    trace = space(host(*(event("train", 1000 * number, 900, step_num=number) for number in range(5))))
    job.work()
    with serving({"Profile": lambda request, context: response(trace)}) as port:
        yield job.port, port
    job.work(False)


@pytest.fixture(scope="module")
def analyst() -> Iterator[WorkerProcess]:
    """The process in which `tfperf top` analyzes, which takes a second to start; it stays when a command ends."""
    process = WorkerProcess()
    end, ask_to_end = process.end, process.ask_to_end
    process.end = process.ask_to_end = lambda: None  # type: ignore[method-assign]
    yield process
    ask_to_end()
    end()


@pytest.mark.usefixtures("asked_here")
@pytest.mark.parametrize("lines", console_blocks())
def test_what_a_page_tells_you_to_type_works(lines: list[str], workplace: Path, request: pytest.FixtureRequest) -> None:
    if any("hlo_ops" in line for line in lines):
        request.getfixturevalue("of_xla")
    for line in lines:
        if line.startswith("make "):
            assert re.search(rf"^{line.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
        elif line.startswith(("tfperf ", ".venv/bin/tfperf ", "git diff ")):
            code, stdout, stderr = typed(line, workplace, request)
            # Whether a real job is slower than another one, nobody knows here.
            is_compared = "--baseline" in line and any(before.startswith("tfperf run") for before in lines)
            assert code in ((0, 1, 3) if is_compared else (0,)), f"{line}\n{stdout}{stderr}"
            assert "Traceback" not in stderr, f"{line}\n{stdout}{stderr}"
        elif extra := re.match(r"pip install 'tfperf\[(\w+)\]'", line):
            assert re.search(rf"^{extra[1]} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE), line
        else:
            assert line == ". .venv/bin/activate", f"nobody runs {line!r}"


def typed(line: str, folder: Path, request: pytest.FixtureRequest) -> tuple[int, str, str]:
    """Run a line as it stands, but sooner, and with the jobs of this test."""
    if line.startswith("tfperf run"):
        run_command.make_context("tfperf run", shlex.split(line, comments=True)[2:], **main.context_settings)
    line = as_here(line)
    if line.startswith("git "):
        return follow(line, ROOT)
    if "--save-baseline baseline.json" in line:
        (folder / "baseline.json").unlink()
    if line.startswith("tfperf run"):
        shutil.rmtree(folder / "logs", ignore_errors=True)
    if line.startswith("tfperf top"):
        line = of_jobs_here(ending_soon(line), folder, *request.getfixturevalue("ports"))
    if line.startswith("tfperf capture"):
        line = of_jobs_here(line, folder, *request.getfixturevalue("ports"))
        if "--continuous" in line:
            return until_ctrl_c(line, folder)
    if not line.startswith("tfperf run "):
        with pytest.MonkeyPatch.context() as patch:
            if line.startswith("tfperf top"):
                analyst = request.getfixturevalue("analyst")
                patch.setattr("tfperf.live.watcher.WorkerProcess", lambda: analyst)
            patch.setenv("TF_CONFIG", json.dumps({"cluster": _CLUSTER}))  # For --cluster-spec.
            return follow(line, folder)
    program: Path = request.getfixturevalue("program")
    path = os.pathsep.join([str(program), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = shell(line, folder, **job_environment(PROFILER_ALONE, keras=False) | {"PATH": path})
    return done.returncode, done.stdout, done.stderr


def as_here(line: str) -> str:
    """Return a line that takes less time, with the logdirs and programs of this test."""
    for long, short in SHORTER.items():
        line = line.replace(long, short)
    for address, path in HERE.items():
        line = line.replace(address, path)
    if line.startswith("tfperf capture") and "--duration" not in line:
        line = line.replace("tfperf capture", "tfperf capture --duration 500ms")
    return line.removeprefix(".venv/bin/").replace(" NAME", " overview")


def of_jobs_here(line: str, folder: Path, first: int, second: int) -> str:
    """Return a capture of the jobs that listen on two ports here."""
    line = line.replace("w0:6009", f"127.0.0.1:{first}").replace("w1:6009", f"127.0.0.1:{second}")
    line = line.replace("--port 6009", f"--port {first}")
    (folder / "hosts.txt").write_text(f"127.0.0.1:{first}\n127.0.0.1:{second}\n")
    if "--port" not in line and "--worker" not in line:  # Other tests have servers here too.
        line = re.sub("^tfperf (capture|top)", rf"\g<0> --port {first}", line)
    return line


def ending_soon(line: str) -> str:
    """Return a line that takes one sample, where the page's goes on; without a terminal there is no screen."""
    if "--format jsonl" in line:
        return line.replace("--format jsonl", "--format jsonl --samples 1")
    if "--metrics-port" in line:
        return f"{line} --format jsonl --samples 1"
    return line if "--once" in line else line.replace("tfperf top", "tfperf top --once")


def until_ctrl_c(line: str, folder: Path) -> tuple[int, str, str]:
    """Run a command that goes on until Ctrl-C, which comes when it has written its first trace."""
    shutil.rmtree(folder / "logs", ignore_errors=True)
    running = subprocess.Popen(
        [sys.executable, "-m", *line.partition("  #")[0].split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 100
    while running.poll() is None and time.monotonic() < until and not [*folder.rglob("logs/**/*.xplane.pb")]:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    stdout, stderr = running.communicate(timeout=100)
    return running.returncode, stdout, stderr


def test_make_demo_is_what_ci_runs_first() -> None:
    assert re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)[0] == "demo"
