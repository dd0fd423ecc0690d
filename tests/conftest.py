"""What several test files share: the sample traces, the command line in process, and gold files."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings
from places import ROOT, SAMPLES

from tfperf.cli import main

TESTS = ROOT / "tests"
_WITH_JOBS = ("keras_callback", "local", "remote", "script_run", "server")
NEEDS = {"browser": ("browser/*.py",), "tensorflow": tuple(f"capture/test_{name}.py" for name in _WITH_JOBS)}
"""Markers of whole files, which `make quick` leaves out; where only some tests of a file need it, they say so."""
SHARED_BY_FILES = (
    "jobs: dict[str, Job]",
    "from real_runs import",
    "s3: WebServer",
    "run_tensorflow",
    "open_page: Open",
)
"""What is started or analyzed once for all tests of a worker: one worker runs the files that have it."""

# A test must not fail because the machine is busy.
settings.register_profile("tfperf", deadline=None, max_examples=15)
settings.register_profile("quick", deadline=None, max_examples=8)
settings.load_profile("tfperf")

# Python would go through all that pytest imported and collected again and again, which takes a tenth of the time.
gc.freeze()
gc.set_threshold(100_000, 20, 100)

# What a developer or a CI system prefers is no part of what tests expect.
for _name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PAGER", "CI", "LESS"):
    os.environ.pop(_name, None)

# After a fork, gRPC starts its threads again in the child. They write into a terminal that a test starts.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# A shell gives its background jobs ignored signals, `nohup` gives SIGHUP, and what they start inherits that.
for _number, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-gold",
        action="store_true",
        help="write gold files and generated parts of pages, then read the diff; other tests do not run",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return one worker more than there are processors, since jobs also wait; a fifth would take too much memory."""
    return min((os.cpu_count() or 1) + 1, 4)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their file, before pytest chooses by `-m`; with --update-gold, keep those that have a gold file."""
    marker_of = {
        path: marker for marker, patterns in NEEDS.items() for pattern in patterns for path in TESTS.glob(pattern)
    }
    for item in items:
        if item.path in marker_of:
            item.add_marker(marker_of[item.path])
    # What takes long starts first, so that no worker is left with it in the end.
    slow = {marker: {item.path for item in items if item.get_closest_marker(marker)} for marker in NEEDS}
    items.sort(key=lambda item: (item.path not in slow["tensorflow"], item.path not in slow["browser"]))
    if config.getoption("--update-gold"):
        others = [item for item in items if "compare_gold" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if "compare_gold" in getattr(item, "fixturenames", ())]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a worker a whole file at a time, and files that share jobs or analyses together."""
    from xdist.scheduler import LoadFileScheduling

    @cache
    def scope_of(file: str) -> str:
        text = (config.rootpath / file).read_text(encoding="utf-8")
        return next((shared for shared in SHARED_BY_FILES if shared in text), file)

    class FilesTogether(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(str(super()._split_scope(nodeid)))

    return FilesTogether(config, log)


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def samples() -> Path:
    """The folder with the logdirs of this project."""
    return SAMPLES


@pytest.fixture
def run_tfperf() -> Callable[..., Result]:
    """Run the command line in this process: `run_tfperf("analyze", path)`."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let queries be answered in this process, which takes a fraction of the time."""
    from export.query.asking import ThisProcess

    monkeypatch.setattr("tfperf.export.query.apart.WorkerProcess", ThisProcess)


@pytest.fixture
def compare_gold(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a file, byte by byte; with --update-gold, write the file instead."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-gold"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert text == path.read_bytes().decode(), f"{path.name} is out of date; `make docs` rewrites it"

    return compare
