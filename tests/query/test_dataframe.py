"""SQL from Python: DataFrames."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, logdir_of, space, u64

import tfperf
from tfperf.query.engine import QueryError, sql
from tfperf.query.sources import source_of


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    counted = host(event("a", 0, 1, n=2**62 + 1), event("b", 1, 1), event("c", 2, 1, n=u64(2**64 - 1)))
    return logdir_of(tmp_path, a=space(counted), b=space(host(event("d", 0, 1))))


def test_the_frame_has_the_columns_of_the_query(logdir: Path) -> None:
    frame = sql(logdir, "select name, duration_us, event from events order by event")
    assert frame["name"].tolist() == ["a", "b", "c", "d"]
    assert [str(kind) for kind in frame.dtypes[1:]] == ["float64", "int64"]


def test_integers_stay_exact_where_some_are_missing(logdir: Path) -> None:
    query = "select e.name, int_value from events e left join stats using (event) where e.name {} order by 1"
    small = sql(logdir, query.format("< 'c'"))["int_value"]
    assert (str(small.dtype), small[0]) == ("Int64", 2**62 + 1)
    large = sql(logdir, query.format("< 'd'"))["int_value"]
    assert large.tolist() == [2**62 + 1, None, 2**64 - 1]


def test_no_rows_keep_their_columns(logdir: Path) -> None:
    frame = sql(logdir, "select name, event from events where false")
    assert (list(frame.columns), len(frame)) == (["name", "event"], 0)


def test_hosts_are_chosen(logdir: Path) -> None:
    assert sql(logdir, "select name from events", hosts=["b"])["name"].tolist() == ["d"]


def test_an_analysis_is_used_as_it_is(logdir: Path) -> None:
    analysis = tfperf.load(logdir, step_marker="a", hosts=["a"])
    assert source_of(analysis).analyze(["steps"]) is analysis
    assert sql(analysis, "select count(*) as n from host_steps")["n"].tolist() == [len(analysis["steps"].steps)]


def test_sections_that_an_analysis_lacks_are_analyzed(tmp_path: Path) -> None:
    steps = [event("train", 1000 * number, 1000, step_num=number) for number in range(3)]
    analysis = tfperf.load(logdir_of(tmp_path, a=space(host(*steps))), sections=["steps"])
    assert "environment" not in analysis.sections
    assert sql(analysis, "select count(*) as n from environment")["n"].tolist() == [1]


def test_a_newer_run_does_not_change_the_source(logdir: Path) -> None:
    source = source_of(logdir)
    newer = logdir / "plugins" / "profile" / "2027_01_01_00_00_00"
    newer.mkdir()
    (newer / "z.xplane.pb").write_bytes(space(host(event("z", 0, 1))))
    assert source.analyze(["steps"]).run == source.run


def test_mistakes_are_errors_of_tfperf(logdir: Path) -> None:
    with pytest.raises(QueryError):
        sql(logdir, "select nothing from events")
    assert issubclass(QueryError, tfperf.TfperfError)
