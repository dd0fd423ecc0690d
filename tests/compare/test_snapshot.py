from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, logdir_of, space
from compare.made import gpu_job, job, part_of, run_of, taken
from hypothesis import given, settings
from hypothesis import strategies as st

import tfperf
from tfperf.compare.model import Entry, HostSnapshot, Part, Snapshot
from tfperf.compare.snapshot import LONGEST_NAME, MOST_STEPS, kept_name, read_snapshot, snapshot_text, take


def entries(part: Part) -> dict[str, tuple[float | None, float | None]]:
    """Name: (ms per step, count per step)"""
    return {own.name: (own.ms, own.count) for own in part.rows}


def test_what_a_run_came_to(tmp_path: Path) -> None:
    """Ten steps of 100 us: 30 us waiting for input, 70 us host compute."""
    found = taken(tmp_path, a=job())
    own = found.hosts[0]
    assert (found.label, found.run, found.attribution) == ("run", "2026_01_01_00_00_00", "corrected")
    assert (found.step_source, found.step_confidence, found.host_count) == ("markers", "high", 1)
    assert (own.host, own.step_ms, own.step_count) == ("a", (0.1,) * 10, 10)
    assert (own.category_ms["input"], own.category_ms["host_compute"]) == (0.03, 0.07)
    assert (own.input_percent, own.input_class) == (30.0, "high")
    assert (own.device_type, own.device_count, own.half_precision_percent) == ("CPU", 0, None)


def test_what_no_device_recorded_is_not_known(tmp_path: Path) -> None:
    category = taken(tmp_path, a=job()).hosts[0].category_ms
    assert [key for key, value in category.items() if value is None] == [
        "output", "kernel_launch", "device_collectives", "device_to_device", "device_compute", "host_to_device",
    ]  # fmt: skip


def test_what_no_fetch_shows_is_not_known(tmp_path: Path) -> None:
    events = [event("train", 100 * n, 100, step_num=n) for n in range(5)]
    own = taken(tmp_path, a=space(host(*events))).hosts[0]
    assert (own.category_ms["input"], own.category_ms["input_wait"], own.input_percent) == (None, None, None)


def test_parts_are_per_step(tmp_path: Path) -> None:
    """Of the 300 us that a step waits, Map works for 200 and BatchV2 for the other 100."""
    found = taken(tmp_path, a=job(wait=300, step=1000))
    assert entries(found.part("host_ops"))["MatMul"] == (0.7, 1.0)
    stages = {own.detail: (own.ms, own.element_ms) for own in found.part("stages").rows}
    assert stages == {"Map": (0.2, 0.2), "BatchV2": (0.1, 0.1), "Root": (0.0, 0.0)}
    assert found.part("device_ops") == Part((), 0)


def test_a_longer_capture_has_the_same_figures(tmp_path: Path) -> None:
    short, long = taken(tmp_path, "short", a=job(steps=10)), taken(tmp_path, "long", a=job(steps=40))
    for part in ("host_ops", "stages"):
        assert entries(short.part(part)) == entries(long.part(part))


def test_the_parts_of_a_device(tmp_path: Path) -> None:
    found = taken(tmp_path, a=gpu_job())
    assert entries(found.part("kernels")) == {"gemm": (0.04, 1.0)}
    assert entries(found.part("copies")) == {"H2D": (0.01, 1.0)}
    assert sum(own.ms or 0.0 for own in found.part("idle").rows) == pytest.approx(0.05)
    assert (found.hosts[0].device_type, found.hosts[0].device_count) == ("GPU", 1)


def test_first_steps_can_be_left_out(tmp_path: Path) -> None:
    assert [len(taken(tmp_path, f"skip{n}", n, a=job()).hosts[0].step_ms) for n in (0, 3, 10, 99)] == [10, 7, 0, 0]


def test_without_steps_there_is_nothing_per_step(tmp_path: Path) -> None:
    found = taken(tmp_path, a=space(host(event("MatMul:MatMul", 0, 10))))
    assert (found.hosts[0].step_ms, found.hosts[0].category_ms, found.parts) == ((), {}, {})
    assert (found.step_source, found.batches_per_step, found.hosts[0].input_class) == ("none", None, "unknown")


def test_every_host_is_kept(tmp_path: Path) -> None:
    found = taken(tmp_path, a=job(), b=job(wait=10, step=200))
    assert [(own.host, own.step_ms[0], own.input_percent) for own in found.hosts] == [("a", 0.1, 30.0), ("b", 0.2, 5.0)]
    assert entries(found.part("host_ops"))["MatMul"] == (0.13, 1.0)


def test_no_folder_of_the_machine_is_kept(tmp_path: Path) -> None:
    trace = tfperf.load(logdir_of(tmp_path, a=job()))
    text = snapshot_text(take(trace, str(tmp_path / "secret place" / "nightly")))
    assert '"label": "nightly"' in text
    assert str(tmp_path) not in text
    assert "secret place" not in text


# --- the file ---

texts = st.text(max_size=300)
numbers = st.none() | st.floats(0, 1e12)
parts = st.lists(st.builds(Entry, texts, texts, numbers, numbers, numbers), max_size=4).map(lambda own: part_of(*own))
hosts = st.builds(
    lambda name, times, percent: HostSnapshot(
        name, tuple(times), len(times) + 1, {}, percent, "none", "GPU", name, 2, None
    ),
    texts, st.lists(st.floats(1e-6, 1e9), max_size=5), numbers,
)  # fmt: skip
runs = st.builds(
    lambda label, some, found: run_of(label=label, hosts=some, parts={"kernels": found}),
    texts, st.lists(hosts, min_size=1, max_size=3), parts,
)  # fmt: skip


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "base.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@given(runs)
@settings(max_examples=60, deadline=None)
def test_any_run_survives_the_file(tmp_path_factory: pytest.TempPathFactory, run: Snapshot) -> None:
    """Names are cut and repaired on the way in, as `take` does; a second trip changes nothing."""
    folder = tmp_path_factory.mktemp("trip")
    once = read_snapshot(written(folder, snapshot_text(_repaired(run))))
    assert once.hosts == _repaired(run).hosts
    assert read_snapshot(written(folder, snapshot_text(once))) == once


def _repaired(run: Snapshot) -> Snapshot:
    def entry(own: Entry) -> Entry:
        return replace(own, name=kept_name(own.name), detail=kept_name(own.detail))

    some = tuple(replace(own, host=kept_name(own.host), device_model=kept_name(own.device_model)) for own in run.hosts)
    found = {key: Part(tuple(map(entry, part.rows)), part.total_rows) for key, part in run.parts.items()}
    return replace(run, label=kept_name(run.label), hosts=some, parts=found)


@pytest.mark.parametrize("job_bytes", [job(), gpu_job()], ids=["cpu", "gpu"])
def test_what_was_taken_is_read_back(tmp_path: Path, job_bytes: bytes) -> None:
    found = taken(tmp_path, a=job_bytes)
    assert read_snapshot(written(tmp_path, snapshot_text(found))) == found


@pytest.mark.parametrize("story", ["input_bound", "input_fixed", "custom_loop", "retracing"])
def test_the_samples_are_small_and_read_back(samples: Path, tmp_path: Path, story: str) -> None:
    found = take(tfperf.load(samples / story), story)
    text = snapshot_text(found)
    assert len(text) < 50_000
    assert read_snapshot(written(tmp_path, text)) == found


def test_huge_names_and_tables_stay_below_a_megabyte() -> None:
    names = [f"{n}" + "\x01" * 250 for n in range(200)]
    part = Part(tuple(Entry(kept_name(name), kept_name(name), 1.0) for name in names), 5000)
    run = run_of(parts=dict.fromkeys(("device_ops", "host_ops", "kernels"), part))
    text = snapshot_text(run)
    assert len(text.encode()) < 1_000_000
    assert json.loads(text)["parts"]["kernels"]["total_rows"] == 5000


def test_long_tables_are_cut_to_the_largest(tmp_path: Path) -> None:
    events = [event("train", 1000 * n, 1000, step_num=n) for n in range(5)]
    events += [event(f"op{n}:Op", n, 0.5 + n / 1000) for n in range(300)]
    found = taken(tmp_path, a=space(host(*events))).part("host_ops")
    assert (len(found.rows), found.total_rows, found.is_cut) == (200, 300, True)
    assert [own.name for own in found.rows[:2]] == ["op299", "op298"]


def test_many_steps_are_cut_and_counted(tmp_path: Path) -> None:
    events = [event("train", 10 * n, 10, step_num=n) for n in range(MOST_STEPS + 5)]
    own = taken(tmp_path, a=space(host(*events))).hosts[0]
    assert (len(own.step_ms), own.step_count) == (MOST_STEPS, MOST_STEPS + 5)


def test_long_names_that_differ_still_differ() -> None:
    one, other = (kept_name("x" * 300 + middle + "y" * 300) for middle in "ab")
    assert one != other
    assert len(one) == len(other) == LONGEST_NAME
    assert kept_name("short \udc80") == "short \ufffd"


# --- files that are none ---


def document(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(snapshot_text(run_of(parts={"kernels": part_of(("gemm", 1.0))})))
    return {**found, **changes}


def host_with(**changes: Any) -> dict[str, Any]:
    return {"hosts": [{**document()["hosts"][0], **changes}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "tfperf report"}, "its kind is not 'tfperf baseline'"),
        ({"kind": ["tfperf baseline"]}, "its kind is not"),
        ({"format": 2}, "its format is not 1"),
        ({"format": None}, "its format is not 1"),
        ({"label": 3}, "label is not text"),
        ({"hosts": {}}, "hosts is not a list"),
        ({"hosts": [3]}, r"hosts\[0\] is not a list or an object"),
        ({"host_count": 0}, "more hosts than it counts"),
        ({"skip_first": -1}, "skip_first is not a whole number"),
        ({"skip_first": True}, "skip_first is not a whole number"),
        ({"skip_first": 1.5}, "skip_first is not a whole number"),
        ({"skip_first": 10**400}, "skip_first is not a whole number"),
        ({"parts": {"kernels": {"rows": []}}}, "parts.kernels has no total_rows"),
        ({"parts": {"\x1b[31m": 3}}, r"parts\.\.\.\. is not"),
        (host_with(step_ms=[1.0, "2"]), r"hosts\[0\].step_ms\[1\] is not a number"),
        (host_with(step_ms=[1.0, None]), r"hosts\[0\].step_ms\[1\] is not a number"),
        (host_with(step_ms=[1.0, float("nan")]), r"hosts\[0\].step_ms\[1\] is not a number"),
        (host_with(step_ms=[1.0, float("inf")]), r"hosts\[0\].step_ms\[1\] is not a number"),
        (host_with(step_ms=[1.0, 1e300]), r"hosts\[0\].step_ms\[1\] is not a number"),
        (host_with(step_ms=[1.0, -1.0]), r"hosts\[0\].step_ms\[1\] is not a number"),
        (host_with(step_ms=[1.0, 0]), "not all above 0"),
        (host_with(step_count=1), "more than it counts"),
        (host_with(category_ms={"input": "much"}), r"hosts\[0\].category_ms.input is not a number"),
        (host_with(device_count="8"), r"hosts\[0\].device_count is not a whole number"),
    ],
)
def test_a_damaged_file_says_where(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = written(tmp_path, json.dumps(document(**changes)))
    with pytest.raises(tfperf.TraceFormatError, match=message) as caught:
        read_snapshot(path)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "--save-baseline" in str(caught.value)


@pytest.mark.parametrize("key", sorted(document().keys() - {"kind", "format"}))
def test_every_key_is_needed(tmp_path: Path, key: str) -> None:
    found = document()
    del found[key]
    with pytest.raises(tfperf.TraceFormatError, match=f"it has no {key}"):
        read_snapshot(written(tmp_path, json.dumps(found)))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\xff", b"[]", b"3", b"null", b'"tfperf baseline"', b"{", b"[" * 100_000, b"9" * 10_000,
     b" " * 5_000_000],
    ids=["empty", "binary", "list", "number", "null", "text", "cut", "deep", "long number", "large"],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(tfperf.TraceFormatError, match="is no baseline that tfperf can read"):
        read_snapshot(written(tmp_path, data))


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(tfperf.TraceNotFoundError, match="cannot read the baseline"):
        read_snapshot(tmp_path / "none.json")
    with pytest.raises(tfperf.TraceNotFoundError, match="cannot read the baseline"):
        read_snapshot(tmp_path)
    with pytest.raises(tfperf.TraceNotFoundError, match="cannot read the baseline"):
        read_snapshot(Path("a\0b"))


def test_a_byte_order_mark_and_unknown_keys_do_no_harm(tmp_path: Path) -> None:
    found = document(comment="kept by hand", parts={"later": {"rows": [], "total_rows": 0}})
    read = read_snapshot(written(tmp_path, b"\xef\xbb\xbf" + json.dumps(found).encode()))
    assert read == run_of()
