from __future__ import annotations

from pathlib import Path

from builders import event, host, ref, results_of, trace_of

from tfperf.sections.functions.tables import EAGER_OPS, TABLES, TF_FUNCTIONS


def test_every_column_that_is_declared_is_there(tmp_path: Path) -> None:
    thread = host(
        event("train", 0, 100, tf_function_call=ref("traced-nonXla"), tracing_count=1),
        event("EagerExecute", 600, 20, is_func=0, eager_op=ref("Sin")),
    )
    results = results_of(trace_of(tmp_path, thread), sections=["functions"])
    for table in TABLES:
        data = table.data(results)
        assert data is not None
        for column in table.columns:
            (value,) = data[column.key]
            assert isinstance(value, column.dtype), column.key


def test_without_calls_there_are_no_tables(tmp_path: Path) -> None:
    results = results_of(trace_of(tmp_path, host(event("A:A", 0, 1))), sections=["functions"])
    assert (TF_FUNCTIONS.data(results), EAGER_OPS.data(results)) == (None, None)
