"""What several test files share: the sample traces, the command line in process, and gold files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

from tfperf.cli import main

ROOT = Path(__file__).parents[1]

settings.register_profile("no deadline", deadline=None)  # a loaded machine is slow, not wrong
settings.load_profile("no deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-gold", action="store_true", help="write gold files and generated parts of pages, then read the diff"
    )


@pytest.fixture
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def samples() -> Path:
    """The folder with the logdirs of this project."""
    return ROOT / "sample_traces"


@pytest.fixture
def run_tfperf() -> Callable[..., Result]:
    """Run the command line in this process: `run_tfperf("analyze", path)`."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def compare_gold(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a file, byte by byte; with --update-gold, write the file instead."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-gold"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert text == path.read_bytes().decode(), f"{path.name} is out of date; `make docs` rewrites it"

    return compare
