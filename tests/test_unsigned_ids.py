"""Ids of programs are numbers up to 2^64 - 1: every output shows them so, though an int64 keeps their bits."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from builders import event, line, logdir_of, plane, space, u64
from click.testing import CliRunner
from jax_builders import GRADIENT, call, program

import tfperf
from tfperf.cli import main
from tfperf.formats.wire.event_columns import signed, unsigned

pytestmark = pytest.mark.usefixtures("asked_here")
LARGEST, LARGE = (1 << 64) - 1, 12190760917235803885


def profile() -> bytes:
    """Two programs, whose ids are in names of runs, in a stat of ops, and once in a stat, once the key of the program.

    A profiler that has the id for a key wraps it to a negative number.
    """
    runs = [event(f"jit_{name}({key})", at, 10, run_id=at) for name, key, at in (("f", LARGEST, 20), ("g", LARGE, 40))]
    ops = [event("%fusion.1", 20, 10), event("%fusion.2", 40, 10)]
    of_ops = {
        "%fusion.1": {"program_id": u64(LARGEST), "symbol_id": u64(LARGE), "hlo_category": "loop fusion"},
        "%fusion.2": {"program_id": u64(LARGE), "hlo_category": "loop fusion"},
    }
    chip = plane("/device:TPU:0", line("XLA Modules", *runs, id=2), line("XLA Ops", *ops, id=3), name_stats=of_ops)
    known = {
        f"jit_{name}({key})": {"Hlo Proto": program(f"jit_{name}", GRADIENT), "program_id": u64(key)}
        for name, key in (("f", LARGEST), ("g", LARGE))
    }
    host = plane("/host:CPU", line("python", *call("f", 10, 5), *call("g", 16, 4)))
    return space(chip, host, plane("/host:metadata", name_stats=known))


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    return logdir_of(tmp_path, vm=profile())


def run(*arguments: str | Path) -> str:
    done = CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def ids_in(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"(?<![\d.])-?\d{17,}(?![\d.])", text)}


def test_the_bits_of_an_id_are_kept() -> None:
    for number in (0, 7, (1 << 63) - 1, 1 << 63, LARGE, LARGEST):
        assert -(1 << 63) <= signed(number) < 1 << 63
        assert unsigned(signed(number)) == number


def test_reports_tables_and_queries_show_ids_without_a_sign(logdir: Path, tmp_path: Path) -> None:
    document = json.loads(run("analyze", logdir, "--format", "json"))
    for table in ("hlo_ops", "hlo_modules"):
        rows = document["sections"]["xla"]["tables"][table]["rows"]
        assert {row["program_id"] for row in rows} == {LARGE, LARGEST}
    run("export-csv", logdir, "-o", tmp_path / "csv")
    assert ids_in((tmp_path / "csv" / "hlo_modules.csv").read_text()) == {LARGE, LARGEST}
    assert ids_in(run("query", logdir, "SELECT program_id FROM hlo_modules")) == {LARGE, LARGEST}
    assert ids_in(run("query", logdir, "SELECT name, int_value FROM name_stats")) == {LARGE, LARGEST}
    run("export-parquet", logdir, "-o", tmp_path / "dataset")
    assert ids_in(run("query", tmp_path / "dataset", "SELECT program_id FROM hlo_ops")) == {LARGE, LARGEST}
    run("timeline", logdir, "-o", tmp_path / "timeline.json")
    assert ids_in((tmp_path / "timeline.json").read_text()) == {LARGE, LARGEST}


def test_frames_hold_ids_exactly(logdir: Path) -> None:
    analysis = tfperf.load(logdir)
    assert set(analysis["xla"].table["program_id"]) == {LARGE, LARGEST}
    for query in ("SELECT program_id FROM hlo_modules", "SELECT program_id FROM hlo_ops UNION ALL SELECT NULL"):
        assert set(tfperf.sql(logdir, query)["program_id"].dropna()) == {LARGE, LARGEST}
