from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.example_runs import host_of, ranking_of, run_of

import tfperf
from tfperf.judge.run_summary import (
    RANKING_NAMES,
    RankedEntry,
    Ranking,
    RunSummary,
    as_compared,
    baseline_text,
    choose_per,
    read_baseline,
)
from tfperf.judge.summarize import short_name, summarize_run

names = st.text(max_size=300).map(short_name)
numbers = st.none() | st.floats(0, 1e12)
rankings = st.lists(st.builds(RankedEntry, names, names, numbers, numbers, numbers), max_size=4).map(
    lambda entries: ranking_of(*entries)
)
hosts = st.builds(
    lambda name, step_ms, percent: host_of(
        step_ms, name, step_count=len(step_ms) + 1, category_ms={"input": percent}, input_percent=percent
    ),
    names,
    st.lists(st.floats(1e-6, 1e9), max_size=5),
    numbers,
)
runs = st.builds(
    lambda label, some_hosts, kernels: run_of(label=label, hosts=some_hosts, rankings={"kernels": kernels}),
    names,
    st.lists(hosts, min_size=1, max_size=3),
    rankings,
)


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "base.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@given(runs)
@settings(max_examples=min(60, settings().max_examples))
def test_any_run_survives_the_file(tmp_path_factory: pytest.TempPathFactory, run: RunSummary) -> None:
    assert read_baseline(written(tmp_path_factory.mktemp("trip"), baseline_text(run))) == run


@pytest.mark.parametrize("story", ["input_bound", "input_fixed", "custom_loop", "retracing"])
def test_the_samples_are_small_and_read_back(samples: Path, tmp_path: Path, story: str) -> None:
    run = summarize_run(tfperf.load(samples / story), story)
    text = baseline_text(run)
    assert len(text) < 50_000
    assert read_baseline(written(tmp_path, text)) == run


def test_huge_names_and_lists_stay_below_a_megabyte(tmp_path: Path) -> None:
    odd = [f"{n}" + "\x01" * 250 for n in range(200)]
    ranking = Ranking(tuple(RankedEntry(short_name(name), short_name(name), 1.0) for name in odd), 5000)
    run = run_of(rankings=dict.fromkeys(("device_ops", "host_ops", "kernels"), ranking))
    text = baseline_text(run)
    assert len(text.encode()) < 1_000_000
    kept = read_baseline(written(tmp_path, text)).ranking("kernels")
    assert (kept.total_rows, kept.rows) == (5000, ranking.rows[: len(kept.rows)])
    assert len(kept.rows) >= 50


def document(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(baseline_text(run_of(rankings={"kernels": ranking_of(("gemm", 1.0))})))
    return {**values, **changes}


def host_with(**changes: Any) -> dict[str, Any]:
    return {"hosts": [{**document()["hosts"][0], **changes}]}


def refused(path: Path) -> str:
    with pytest.raises(tfperf.TraceFormatError) as caught:
        read_baseline(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is not a valid baseline: ")
    assert message.endswith("; create one with tfperf analyze LOGDIR --save-baseline FILE")
    assert message.isprintable()
    return message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "tfperf report"}, "its kind is not 'tfperf baseline'"),
        ({"format": 2}, "its format is not 1"),
        ({"label": 3}, "Expected `str`, got `int` - at `$.label`"),
        ({"label": "x" * 201}, "Expected `str` of length <= 200 - at `$.label`"),
        ({"hosts": {}}, "Expected `array`, got `object` - at `$.hosts`"),
        ({"host_count": 0}, "`host_count` is 0, but there are 1 hosts"),
        ({"skip_first": -1}, "Expected `int` >= 0 - at `$.skip_first`"),
        ({"skip_first": True}, "Expected `int`, got `bool` - at `$.skip_first`"),
        ({"skip_first": 10**400}, "`$.skip_first`"),
        ({"rankings": {"kernels": {"rows": [{"name": "a"}]}}}, "field `detail` - at `$.rankings.kernels.rows[0]`"),
        (host_with(step_ms=[1.0, None]), "Expected `float`, got `null` - at `$.hosts[0].step_ms[1]`"),
        (host_with(step_ms=[1.0, float("nan")]), "JSON is malformed: invalid character (byte "),
        (host_with(step_ms=[1.0, 1e300]), "Expected `float` <= 2000000000.0 - at `$.hosts[0].step_ms[1]`"),
        (host_with(step_ms=[1.0, -1.0]), "Expected `float` > 0.0 - at `$.hosts[0].step_ms[1]`"),
        (host_with(step_count=1), "`step_count` is 1, but there are 50 step times - at `$.hosts[0]`"),
        (host_with(category_ms={"input": "much"}), "got `str` - at `$.hosts[0].category_ms[...]`"),
    ],
)
def test_a_damaged_file_says_where_and_what_is_expected(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert message in refused(written(tmp_path, json.dumps(document(**changes))))


ADDED = {"doubt", "examples_per_step", "steps", "tensorflow_version", "wall_step_ms"}
"""Keys that baselines of earlier versions do not have."""


def test_a_baseline_without_what_was_added_later_is_read(tmp_path: Path) -> None:
    values = {key: value for key, value in document().items() if key not in ADDED}
    values["hosts"] = [
        {key: value for key, value in host.items() if key not in ("cpu_model", "cores")} for host in values["hosts"]
    ]
    run = read_baseline(written(tmp_path, json.dumps(values)))
    assert (run.examples_per_step, run.tensorflow_version, run.hosts[0].cores) == (None, "", None)


@pytest.mark.parametrize("key", sorted(document().keys() - {"kind", "format"} - ADDED))
def test_every_other_key_is_needed(tmp_path: Path, key: str) -> None:
    values = document()
    del values[key]
    assert f"Object missing required field `{key}`" in refused(written(tmp_path, json.dumps(values)))


NO_BASELINES = {
    "empty": b"",
    "binary": b"\x00\xff",
    "list": b"[]",
    "null": b"null",
    "text": b'"tfperf baseline"',
    "cut": b"{",
    "deep list": b"[" * 100_000,
    "deep": b'{"kind":' * 100_000,
    "long number": b"9" * 10_000,
    "not utf-8": b'{"kind": "\xed\xa0\x80"}',
    "large": b" " * 5_000_000,
}


@pytest.mark.parametrize("data", NO_BASELINES.values(), ids=NO_BASELINES)
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    refused(written(tmp_path, data))


@pytest.mark.parametrize("path", ["none.json", "", "a\0b"])
def test_what_is_not_there_cannot_be_read(tmp_path: Path, path: str) -> None:
    with pytest.raises(tfperf.TraceNotFoundError, match="cannot read the baseline"):
        read_baseline(tmp_path / path)


def test_a_byte_order_mark_and_unknown_keys_do_no_harm(tmp_path: Path) -> None:
    values = document(comment="kept by hand", rankings={"later": {"rows": [], "total_rows": 0}})
    assert read_baseline(written(tmp_path, b"\xef\xbb\xbf" + json.dumps(values).encode())) == run_of()


def test_every_ranking_is_in_the_file() -> None:
    assert tuple(document()["rankings"]) == RANKING_NAMES


@pytest.mark.parametrize(
    ("examples", "per"),
    [
        ([100, 200], "example"),
        ([100, 100], "step"),
        ([None, 200], "step"),
        ([None, None], "step"),
        ([100, 100, 200], "example"),
        ([100, 200, None], "step"),
    ],
)
def test_examples_are_compared_where_all_runs_know_them_and_they_differ(examples: list[int | None], per: str) -> None:
    assert choose_per([run_of(examples_per_step=count) for count in examples]) == per


def test_times_become_those_of_a_thousand_examples() -> None:
    rankings = {
        "host_ops": ranking_of(RankedEntry("MatMul", "MatMul", 2.0, 3.0, 7.0)),
        "copies": ranking_of(("H2D", None)),
    }
    run = run_of(hosts=[host_of((10.0, 20.0))], rankings=rankings, examples_per_step=250)
    compared = as_compared(run, "example")
    (host,) = compared.hosts
    assert host.step_ms == (40.0, 80.0)
    assert (host.category_ms["input"], host.category_ms["output"]) == (30.0, None)
    assert compared.ranking("host_ops").rows == (RankedEntry("MatMul", "MatMul", 8.0, 12.0, 7.0),)
    assert compared.ranking("copies").rows[0].ms is None
    assert as_compared(run, "step") is run
