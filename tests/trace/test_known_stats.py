"""Which stats are read, and where."""

from __future__ import annotations

from typing import get_args

import pytest

from tfperf.trace import known_stats
from tfperf.trace.host_trace import PlaneKind
from tfperf.trace.known_stats import KNOWN, wanted_stats


@pytest.mark.parametrize("name", [name for name, value in vars(known_stats).items() if isinstance(value, frozenset)])
def test_every_set_holds_known_names(name: str) -> None:
    assert getattr(known_stats, name) <= KNOWN.keys()


def test_a_stat_is_read_where_it_means_something() -> None:
    asked = frozenset({"shape", "kernel_details", "buffer_limit", "allocator_name", "mine"})
    host, gpu = (wanted_stats(kind, asked) for kind in get_args(PlaneKind)[:2])
    assert host.types == {"shape": "text", "buffer_limit": "number", "allocator_name": "text", "mine": "guess"}
    assert gpu.types == {"shape": "text", "kernel_details": "text", "mine": "guess"}
    assert host.only_on["buffer_limit"](["Iterator::Root", "MatMul"]).tolist() == [True, False]
    assert gpu.only_on == {}


def test_what_links_runs_of_a_tpu_is_read_on_all_its_events_and_on_no_gpu() -> None:
    host, gpu, tpu = (wanted_stats(kind, known_stats.TPU) for kind in get_args(PlaneKind)[:3])
    assert tpu.types.keys() == known_stats.TPU - {"device_ordinal"}
    assert host.types.keys() == known_stats.TPU - {"device_offset_ps", "device_duration_ps", "queue_id", "flow"}
    assert host.only_on.keys() == {"device_ordinal"}
    assert gpu.types == {}
