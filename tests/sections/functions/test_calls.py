from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, ref, trace_of

from tfperf.analyzers import functions


def test_calls_are_counted_by_mode_with_self_time(tmp_path: Path) -> None:
    """train: traced 100 us with a helper of 40 inside, then 20 us not traced."""
    made = host(
        event("train", 0, 100, tf_function_call=ref("traced-nonXla"), tracing_count=2),
        event("helper", 10, 40, tf_function_call=ref("traced-nonXla"), tracing_count=1),
        event("train", 200, 20, tf_function_call=ref("notTraced-nonXla"), tracing_count=2),
    )
    train, helper = functions.analyze(trace_of(tmp_path, made)).functions
    assert (train.name, train.calls, train.tracing_count, train.xla) == (
        "train",
        {"notTraced": 1, "traced": 1},
        2,
        False,
    )
    assert train.total_self_ps == 80_000_000
    assert train.expensive_percent == pytest.approx(75.0)
    assert (helper.name, helper.expensive_percent) == ("helper", 100.0)


def test_compiled_and_eager_calls(tmp_path: Path) -> None:
    made = host(
        event("f", 0, 10, tf_function_call="notTraced-xla"), event("g", 20, 30, tf_function_call="eager"),
        event("g", 60, 10, tf_function_call="concrete"),
    )  # fmt: skip
    g, f = functions.analyze(trace_of(tmp_path, made)).functions
    assert f.xla
    assert g.expensive_percent == pytest.approx(75.0)


def test_hosts_are_added_up(tmp_path: Path) -> None:
    one = functions.analyze(
        trace_of(tmp_path, host(event("f", 0, 10, tf_function_call="traced-nonXla", tracing_count=3)))
    )
    both = functions.combine([one, one]).functions
    assert [(row.name, row.call_count, row.tracing_count) for row in both] == [("f", 2, 3)]


def test_no_functions(tmp_path: Path) -> None:
    assert functions.analyze(trace_of(tmp_path, host(event("A:A", 0, 1)))).functions == ()
