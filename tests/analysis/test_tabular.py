"""One rule for tables: whatever the profile holds, `.table` has the declared columns, and what is unknown is NA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from builders import event, host, logdir_of, plane, space
from places import ROOT, TRACES
from real_runs import analysis_of

import tfperf
from tfperf.analysis.registry import OURS, HasTable, find_section
from tfperf.report.model import Column

RUNS = [
    min(traces).parent
    for folder in sorted([*(ROOT / "sample_traces").iterdir(), *TRACES.glob("*")])
    if folder.name != "corrupt_tpu" and (traces := [*folder.rglob("*.xplane.pb")])
]
"""One run of each folder of traces."""
WITH_TABLE: list[str] = [name for name in OURS if find_section(name).tables]
"""All sections but the one that only has sentences."""
DTYPES = {int: "Int64", float: "Float64", bool: "boolean", str: "string"}


def home_of(analysis: tfperf.Analysis, section: str) -> tuple[str, tuple[Column, ...]]:
    name = analysis[section].home[1]
    return name, next(table.columns for table in find_section(section).tables if table.name == name)


@pytest.mark.parametrize("logdir", RUNS, ids=lambda path: "-".join(path.parts[-5:]))
@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
def test_tables_hold_what_is_declared(logdir: Path, attribution: Any) -> None:
    analysis = analysis_of(logdir, attribution)
    for section in WITH_TABLE:
        frame = analysis[section].table
        name, columns = home_of(analysis, section)
        assert sorted(frame) == sorted(column.key for column in columns), section
        assert {column.key: str(frame[column.key].dtype) for column in columns} == {
            column.key: "UInt64" if column.is_id else DTYPES[column.dtype] for column in columns
        }
        levels = {column.key: ("brief", "full", "data").index(column.level) for column in columns}
        assert [levels[key] for key in frame] == sorted(levels.values())
        data = analysis.table(name)
        assert len(frame) == (len(data[columns[0].key]) if data else 0), section
        for key, values in (data or {}).items():
            same_or_unknown = [pd.isna(mine) or mine == theirs for mine, theirs in zip(frame[key], values, strict=True)]
            assert all(same_or_unknown), (section, key)


@pytest.mark.parametrize("logdir", RUNS, ids=lambda path: "-".join(path.parts[-5:]))
def test_what_is_unknown_is_never_zero(logdir: Path) -> None:
    analysis = analysis_of(logdir)
    if not len(analysis["steps"].steps):
        assert analysis["overview"].table.empty
        return
    unknown = analysis["steps"].unknown
    steps, categories = analysis["steps"].table, analysis["overview"].table
    assert all(steps[f"{key}_ms"].isna().all() for key in unknown)
    for key in unknown - {"input_wait", "host_to_device"}:
        row = categories[categories["category"] == key.replace("_", " ").capitalize()]
        assert row[["average_ms", "standard_deviation_ms", "percent"]].isna().all(axis=None)


def test_nested_results_have_tables_too(samples: Path) -> None:
    analysis = tfperf.load(samples / "input_bound")
    ops, functions, overview = analysis["ops"], analysis["functions"], analysis["overview"]
    assert [key for key in ops.device.table if key != "device_mean_ms"] == list(ops.host.table)
    assert (len(ops.device.table), len(ops.host.table)) == (0, len(ops.host))
    assert functions.eager.table["calls"].dtype == "Int64"
    assert [len(kind.table) for kind in overview.by_kind] == [9]
    assert isinstance(analysis["environment"], HasTable)
    assert analysis["environment"].table["host"].tolist() == [host.host for host in analysis.hosts]


def test_a_host_without_devices_has_the_tables_of_devices(tmp_path: Path) -> None:
    job = space(plane("/device:GPU:0"), host(event("train", 0, 10, step_num=0)))
    analysis = tfperf.load(logdir_of(tmp_path, a=job))
    for results in (analysis, analysis.hosts[0]):
        assert results["kernels"].table.columns[0] == "rank"
        assert results["idle"].table.empty
    assert repr(analysis["kernels"]) == "<Kernels: 0 rows of the table kernels>"
