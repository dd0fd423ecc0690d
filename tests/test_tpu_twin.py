"""What tfperf says of a twin of a real TPU profile: three calls of a Pallas matmul, each waited for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import logdir_of
from click.testing import CliRunner
from tpu_twin import HOSTNAME, PROGRAM_ID, RUNS_US, tpu_twin

from tfperf.cli import main


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return logdir_of(tmp_path_factory.mktemp("twin"), tpu=tpu_twin())


@pytest.fixture(scope="module")
def document(twin: Path) -> Any:
    return json.loads(run(twin, "analyze", "--format", "json")[0])


def run(twin: Path, *words: str) -> tuple[str, int]:
    done = CliRunner().invoke(main, [*words, str(twin)])
    return done.stdout, done.exit_code


def text(twin: Path, *options: str) -> str:
    """Return a report on one line, so that no phrase is broken."""
    return " ".join(run(twin, "analyze", "--color", "never", *options)[0].split())


def rows(document: Any, section: str, table: str) -> list[Any]:
    found: list[Any] = document["sections"][section]["tables"][table]["rows"]
    return found


def test_the_device_computes_for_its_runs(document: Any) -> None:
    steps = rows(document, "steps", "steps")
    assert [row["device_compute_ms"] for row in steps] == pytest.approx([each / 1e3 for each in RUNS_US], abs=1e-4)


def test_the_program_is_known(document: Any) -> None:
    """N6, N10."""
    (program,) = rows(document, "xla", "hlo_modules")
    assert (program["module"], program["program_id"], program["runs"]) == ("jit_matmul_optimized", PROGRAM_ID, 3)


def test_versions_and_host_are_those_of_the_file(twin: Path, document: Any) -> None:
    """N16."""
    report = text(twin, "-s", "environment")
    for words in (HOSTNAME, "0.10.0"):
        assert words in report, words


def test_the_profiler_itself_is_no_program(twin: Path) -> None:
    """`stop_trace` takes 600 of 682 ms."""
    for words in ("start_trace", "stop_trace"):
        assert words not in text(twin)
