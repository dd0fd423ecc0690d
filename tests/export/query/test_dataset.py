"""Queries over datasets: the same sandbox, with runs and hosts as columns."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from builders import host, logdir_of, marks, space

import tfperf
from tfperf.base.errors import TfperfError, TraceFormatError
from tfperf.export.parquet import write_parquet
from tfperf.export.query.engine import QueryError
from tfperf.export.query.sources import Dataset, is_dataset, partition

pytestmark = pytest.mark.usefixtures("asked_here")
STEPS = space(host(*marks(3)))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    write_parquet(logdir_of(folder / "logs", a=STEPS, b=STEPS), folder / "dataset")
    return folder / "dataset"


def test_a_dataset_answers_as_its_profile(dataset: Path) -> None:
    query = (
        "select run, host, plane, kind, line_name, derived, name, start_ps, duration_ps, self_ps, depth, end_ps, "
        "start_ms, duration_us, duration_ms from events order by host, start_ps"
    )
    of_profile = tfperf.sql(dataset.parent / "logs", query)
    assert tfperf.sql(dataset, query).to_dict() == of_profile.to_dict()
    steps = "select step, step_time_ms, kind from steps"
    assert tfperf.sql(dataset, steps).to_dict() == tfperf.sql(dataset.parent / "logs", steps).to_dict()


def test_its_tables_are_those_of_its_folders(dataset: Path) -> None:
    declared = Dataset(dataset).declared
    assert {"events", "steps", "host_files", "hosts"} <= declared.keys()
    assert all(column.meaning for table in declared.values() for column in table.columns)
    units = {column.name: column.unit for column in declared["events"].columns}
    assert (units["self_ps"], units["duration_ms"]) == ("ps", "ms")
    types = {column.name: column.type for column in declared["events"].columns}
    assert [types[name] for name in ("name", "start_ps", "depth")] == ["VARCHAR", "BIGINT", "INTEGER"]


@pytest.mark.parametrize("query", ["select * from 'events/*.parquet'", "copy events to 'x.csv'", "select 1; select 2"])
def test_a_query_reaches_nothing_else(dataset: Path, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dataset)
    with pytest.raises(QueryError):
        tfperf.sql(dataset, query)


def test_options_of_profiles_are_refused(dataset: Path) -> None:
    with pytest.raises(TfperfError, match="select runs and hosts in the query"):
        tfperf.sql(dataset, "select 1", hosts=["a"])


def test_a_damaged_dataset_is_one_line(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "tfperf_dataset.json").write_text('{"format": 3}')
    (tmp_path / "run=r" / "host=a" / "events").mkdir(parents=True)
    (tmp_path / "run=r" / "host=a" / "events" / "part-0.parquet").write_bytes(b"PAR1 not at all")
    assert is_dataset(tmp_path)
    with pytest.raises(TraceFormatError, match=r"cannot read the table events of the dataset"):
        tfperf.sql(tmp_path, "select * from events")


def test_a_run_that_is_replaced_during_a_query_is_an_error(dataset: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(dataset, tmp_path / "dataset")
    (run,) = copy.glob("run=*")
    opened = Dataset(copy)
    assert "events" in opened.names
    shutil.copytree(run, copy / "run=new")
    opened.check_unchanged()
    run.rename(tmp_path / "old")
    for change in (lambda: None, lambda: (copy / "run=new").rename(run)):
        change()
        with pytest.raises(TfperfError, match=r"run=\S+ was replaced during the query; repeat the query"):
            opened.check_unchanged()


def test_values_are_encoded_in_names_of_folders() -> None:
    assert partition("host", "a/b=c") == "host=a%2Fb%3Dc"
    long = partition("host", "\u00fc" * 100)
    assert len(long) < 250
    assert long != partition("host", "\u00fc" * 101)
