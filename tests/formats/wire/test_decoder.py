"""Which decoder reads a profile, and what is said where the fast one cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from warnings import catch_warnings

import numpy as np
import ptars
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from places import ROOT, SHARED
from protobytes import field

from tfperf.base.errors import TfperfError, TfperfWarning, TraceFormatError
from tfperf.formats.wire import decoder, schema
from tfperf.formats.wire.decoder import record_batch
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VERSIONS = ("0.0.1", "0.0.24", "0.0.25", "0.0.26", "0.0.100", "0.1.0", "0.10.25", "1.0.25", "0.0.25.post1", "")


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """As in a process that has decoded nothing yet."""
    decoder._to_columns.cache_clear()
    yield
    decoder._to_columns.cache_clear()


@pytest.fixture
def sample(samples: Path) -> Path:
    return next(samples.glob("retracing/**/*.xplane.pb"))


@pytest.fixture
def odd_ptars(tmp_path: Path) -> Path:
    """A folder of modules, in which `ptars` is of a later version than any that was tried."""
    (tmp_path / "ptars.py").write_text("__version__ = '0.1.0'")
    return tmp_path


def test_known_versions_are_those_that_the_project_asks_for(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (asked,) = [Requirement(line) for line in project["dependencies"] if line.startswith("ptars")]
    known = [version for version in VERSIONS if decoder.is_known(version)]
    assert known == ["0.0.25", "0.0.26", "0.0.100"]
    assert [version for version in VERSIONS[:-2] if version in asked.specifier] == known
    assert str(asked) in decoder._INSTALL or all(str(part) in decoder._INSTALL for part in asked.specifier)


def test_a_decoder_is_asked_for_by_name(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPERF_DECODER", "fast")
    with pytest.raises(TfperfError, match="TFPERF_DECODER is 'fast': set it to ptars or protobuf"):
        read_host(sample)


def test_without_ptars_reading_is_slow_and_that_is_said_once(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPERF_DECODER", "")
    expected = read_host(sample)
    decoder._to_columns.cache_clear()
    monkeypatch.setitem(sys.modules, "ptars", None)
    with pytest.warns(TfperfWarning, match="reading profiles is slow: ptars cannot be used") as said:
        again = [read_host(sample), read_host(sample)][1]
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    assert "pip install 'ptars>=0.0.25,<0.1'" in str(said[0].message)
    assert (again.duration_ps == expected.duration_ps).all()


def test_ptars_that_was_asked_for_is_not_replaced_in_silence(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPERF_DECODER", "ptars")
    monkeypatch.setitem(sys.modules, "ptars", None)
    with pytest.raises(TfperfError, match="TFPERF_DECODER is ptars, but ptars cannot be used"):
        read_host(sample)


def test_ptars_that_decodes_otherwise_is_not_used(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(ptars.HandlerPool):
        """As if a later version took another message for the one that is asked for."""

        def get_for_message(self, descriptor: object) -> object:
            return super().get_for_message(schema.descriptor("Stat"))

    monkeypatch.setenv("TFPERF_DECODER", "")
    monkeypatch.setattr(ptars, "HandlerPool", Odd)
    with pytest.warns(TfperfWarning, match="decodes differently from protobuf"):
        assert read_host(sample).event_count > 0


def test_protobuf_that_was_asked_for_is_used_in_silence(sample: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFPERF_DECODER", "protobuf")
    monkeypatch.setitem(sys.modules, "ptars", None)
    with catch_warnings(record=True) as said:
        assert read_host(sample).event_count > 0
    assert said == []


def test_the_command_line_says_it_in_one_line(sample: Path, odd_ptars: Path, root: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{odd_ptars}{os.pathsep}{root / 'src'}", "TFPERF_DECODER": ""}
    program = [sys.executable, "-m", "tfperf", "analyze", str(sample), "--format", "json"]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["diagnosis"]
    assert done.stderr.startswith("Warning: reading profiles is slow: ptars cannot be used (version 0.1.0 ")
    assert done.stderr.count("\n") == 1


SAMPLES = sorted((ROOT / "sample_traces").rglob("*.xplane.pb"))
OTHERS = sorted((SHARED / "traces").glob("*/"))
"""Test input that is not part of the project, a folder for each kind of job."""


def some_of(folder: Path) -> list[Path]:
    """The smallest and the largest profile of a folder, whatever lies deeper in it."""
    profiles = sorted(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_size)
    return sorted({profiles[0], profiles[-1]}) if profiles else []


PROFILES = [*SAMPLES, *(path for folder in OTHERS for path in some_of(folder))]


def plain(value: Any) -> Any:
    """A value as nested tuples, arrays with their type and bits."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.tobytes()
    if isinstance(value, dict):
        return tuple((key, plain(each)) for key, each in value.items())
    if isinstance(value, tuple):
        return type(value), *map(plain, value)
    names = getattr(value, "__struct_fields__", None)
    return (type(value), *((name, plain(getattr(value, name))) for name in names)) if names else value


def read_with(decoder: str, path: Path, *, everything: bool) -> HostTrace | str:
    """Return the trace, or why it cannot be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFPERF_DECODER", decoder)
        try:
            return read_host(path, everything=everything)
        except TraceFormatError as error:
            return str(error)


@pytest.mark.parametrize(
    ("path", "everything"),
    [*((path, True) for path in PROFILES), *((path, False) for path in SAMPLES)],
    ids=lambda value: f"{value.parent.name}/{value.name}" if isinstance(value, Path) else f"all stats: {value}",
)
def test_a_trace_is_the_same_with_both_decoders(path: Path, everything: bool) -> None:
    fast, slow = (read_with(decoder, path, everything=everything) for decoder in ("ptars", "protobuf"))
    for name in getattr(fast, "__struct_fields__", ()):
        assert plain(getattr(fast, name)) == plain(getattr(slow, name)), name
    assert plain(fast) == plain(slow)


MESSAGES = ("Lines", "Line", "Event", "PlaneHeader", "Stat")


values = st.sampled_from([0, 1, 5, -1, 1 << 63, b"", b"x", b"\xff" * 3]) | st.binary(max_size=3)
serialized = st.recursive(
    st.just(b""),
    lambda inner: st.lists(st.builds(field, st.integers(1, 11), values | inner), max_size=4).map(b"".join),
    max_leaves=6,
)


@settings(derandomize=True)
@given(data=st.lists(serialized, max_size=4), message=st.sampled_from(MESSAGES))
def test_columns_are_the_same_for_all_that_protobuf_accepts(data: list[bytes], message: str) -> None:
    payloads = pa.array(data, pa.binary())
    try:
        slow = record_batch(message, payloads)
    except DecodeError:
        return
    pool = ptars.HandlerPool([schema.descriptor(message).file])
    fast = pool.get_for_message(schema.descriptor(message)).array_to_record_batch(payloads)
    slow.validate(full=True)
    assert fast.schema.equals(slow.schema)
    assert repr(fast.to_pylist()) == repr(slow.to_pylist())
