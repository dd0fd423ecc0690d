"""What stands in for the fast decoder gives what it gives, on samples and on real traces of others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ptars
import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from places import ROOT, SHARED
from protobytes import field

from tfperf.base.errors import TraceFormatError
from tfperf.formats.wire import schema
from tfperf.formats.wire.decoder import record_batch
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.read import read_host

SAMPLES = sorted((ROOT / "sample_traces").rglob("*.xplane.pb"))
OTHERS = sorted((SHARED / "traces").glob("*/"))
"""Test input that is not part of the project, a folder for each kind of job."""


@pytest.fixture(scope="module", autouse=True)
def decoder_name() -> None:
    """These tests choose themselves."""


def some_of(folder: Path) -> list[Path]:
    """The smallest and the largest profile of a folder, whatever lies deeper in it."""
    profiles = sorted(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_size)
    return sorted({profiles[0], profiles[-1]}) if profiles else []


PROFILES = [*SAMPLES, *(path for folder in OTHERS for path in some_of(folder))]


def assert_same(one: object, other: object, where: str) -> None:
    """Compare values field by field, arrays by type and bits."""
    assert type(one) is type(other), where
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        assert one.dtype == other.dtype, where
        assert one.tobytes() == other.tobytes(), where
    elif isinstance(one, dict) and isinstance(other, dict):
        assert list(one) == list(other), where
        for key in one:
            assert_same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, tuple) and isinstance(other, tuple) and hasattr(one, "_fields"):
        for name in one._fields:
            assert_same(getattr(one, name), getattr(other, name), f"{where}.{name}")
    elif hasattr(one, "__struct_fields__"):
        for name in one.__struct_fields__:
            assert_same(getattr(one, name), getattr(other, name), f"{where}.{name}")
    else:
        assert one == other, where


def read_with(decoder: str, path: Path, *, everything: bool) -> HostTrace | str:
    """Return the trace, or why it cannot be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFPERF_DECODER", decoder)
        try:
            return read_host(path, everything=everything)
        except TraceFormatError as error:
            return str(error)


@pytest.mark.parametrize("everything", [False, True], ids=["wanted stats", "all stats"])
@pytest.mark.parametrize("path", PROFILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_trace_is_the_same_with_both_decoders(path: Path, everything: bool) -> None:
    fast, slow = (read_with(decoder, path, everything=everything) for decoder in ("ptars", "protobuf"))
    assert_same(fast, slow, "trace")


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
