"""The sample traces, damaged at random: a report or one line on stderr, never anything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from places import SAMPLES
from protobytes import damage

from tfperf.cli import main
from tfperf.formats.wire import schema

MOST_EVENTS = 40
VARIANTS = (
    ("--format", "table"), ("--format", "json"), ("--format", "json", "--attribution", "tensorflow"),
)  # fmt: skip

ODD_NUMBERS = [0, 1, -1, 2, 10**6, 10**9, 1 << 31, (1 << 60) - 1, 1 << 60, (1 << 63) - 1, -(1 << 63)]
ODD_TEXTS = [
    b"", b"\xff\xfe", b"\x1b[31m", b"</script>", "日本".encode() * 300, b"train", b"/host:CPU", b"/device:GPU:0",
    b"/device:TPU:0", b"Steps", b"XLA Ops", b"XLA Modules", b"group_id", b"step_num", b"step_name", b"_r", b"_pt",
    b"_p", b"_ct", b"_c", b"id", b"iter_num", b"correlation_id", b"hlo_category", b"FunctionRun", b"Iterator::Root",
    b"IteratorGetNextOp::DoCompute", b"ExecutorState::Process", b"a/b:MatMul",
]  # fmt: skip


def shortened(path: Path) -> bytes:
    """Keep the first events of each thread of a trace: what is small can be tried often."""
    space: Any = schema.message_class("XSpace").FromString(path.read_bytes())
    for plane in space.planes:
        for line in plane.lines:
            del line.events[MOST_EVENTS:]
    data: bytes = space.SerializeToString()
    return data


TRACES = [shortened(path) for path in sorted(SAMPLES.rglob("*.xplane.pb"))]
traces = st.sampled_from(TRACES)


def damaged() -> st.SearchStrategy[bytes]:
    return damage(traces, changes=4, longest=100)


@st.composite
def twisted(draw: st.DrawFn) -> bytes:
    """A valid trace whose names, ids, times and stats are not what they were."""
    space: Any = schema.message_class("XSpace").FromString(draw(traces))
    number, text = st.sampled_from(ODD_NUMBERS), st.sampled_from(ODD_TEXTS)
    for _ in range(draw(st.integers(1, 10))):
        plane = draw(st.sampled_from([plane for plane in space.planes if plane.lines]))
        line = draw(st.sampled_from(list(plane.lines)))
        event = draw(st.sampled_from(list(line.events) or [line.events.add()]))
        stat = draw(st.sampled_from(list(event.stats) or [event.stats.add()]))
        named = draw(st.sampled_from(list(plane.event_metadata) or [plane.event_metadata.add()]))
        known = draw(st.sampled_from(list(plane.stat_metadata) or [plane.stat_metadata.add()]))
        target, name = draw(st.sampled_from([
            (event, "offset_ps"), (event, "duration_ps"), (event, "metadata_id"), (event, "num_occurrences"),
            (line, "id"), (line, "timestamp_ns"), (line, "name"), (plane, "name"), (named.value, "name"),
            (known.value, "name"), (known, "key"), (stat, "metadata_id"), (stat, "int64_value"), (stat, "str_value"),
        ]))  # fmt: skip
        setattr(target, name, draw(text if name in ("name", "str_value") else number))
    data: bytes = space.SerializeToString()
    return data


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "vm.xplane.pb"


def assert_survives(path: Path, data: bytes, variant: tuple[str, ...]) -> None:
    path.write_bytes(data)
    result = CliRunner().invoke(main, ["analyze", str(path), *variant])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if result.exit_code == 0:
        assert result.stdout
        assert result.stderr == ""
    else:
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    if result.stdout and "json" in variant:
        json.loads(result.stdout)


@settings(derandomize=True)
@given(data=damaged(), variant=st.sampled_from(VARIANTS))
def test_damaged_bytes(data: bytes, variant: tuple[str, ...], path: Path) -> None:
    assert_survives(path, data, variant)


@settings(derandomize=True)
@given(data=twisted(), variant=st.sampled_from(VARIANTS))
def test_twisted_contents(data: bytes, variant: tuple[str, ...], path: Path) -> None:
    assert_survives(path, data, variant)
