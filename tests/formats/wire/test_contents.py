"""What a trace holds, by counting."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, host, line, plane, space
from protobytes import field, written

from tfperf.analysis.load import load
from tfperf.formats.wire import planes
from tfperf.formats.wire.contents import look_into

pytestmark = pytest.mark.usefixtures("decoder_name")


def test_events_are_counted_by_plane(tmp_path: Path) -> None:
    data = space(
        host(event("a", 0, 1), event("b", 1, 1)),
        plane("/device:GPU:0", line("s", event("k", 0, 1), id=1), line("t", event("k", 2, 1), id=2)),
        plane("Task Environment"),
    )
    contents_of_file = look_into(written(tmp_path, data + field(2, b"no CUPTI") + field(3, b"careful")))
    assert contents_of_file.event_count == 4
    assert contents_of_file.events_by_plane == {"/host:CPU": 2, "/device:GPU:0": 2, "Task Environment": 0}
    assert contents_of_file.event_names >= {"a", "b", "k"}
    assert (contents_of_file.errors, contents_of_file.warnings) == (("no CUPTI",), ("careful",))
    assert not contents_of_file.has_python_frames


def test_python_frames_are_seen(tmp_path: Path) -> None:
    assert look_into(written(tmp_path, space(host(event("$train.py:3 step", 0, 1))))).has_python_frames


def test_a_large_line_is_counted_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, space(host(*[event(f"op{n % 7}", n, 1) for n in range(2000)])))
    monkeypatch.setattr(planes, "BATCH_BYTES", 999)
    assert look_into(file).event_count == 2000


def test_as_many_as_an_analysis_counts(samples: Path) -> None:
    for logdir in sorted(path for path in samples.iterdir() if (path / "plugins").is_dir()):
        (analysed,) = load(logdir, sections=["environment"]).hosts
        (file,) = logdir.rglob("*.xplane.pb*")
        assert look_into(file).event_count == analysed["environment"].event_count > 0
