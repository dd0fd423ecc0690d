"""Which parts of a profile a flaw touches, and that the page of the diagnosis says the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from builders import event, host, line, plane, read_back, ref, space, trace_of
from places import ROOT

from tfperf.formats.wire import schema
from tfperf.trace.flaw import EVERYTHING, TOUCHES, Flaw, Oddities, Part


def test_a_flaw_touches_what_rests_on_the_same_part() -> None:
    flaw = Flaw("fetches_stop", "no call of tf.data is in the last 4 of 10 steps", "doubtful")
    assert flaw.touches(frozenset({"steps", "input"}))
    assert not flaw.touches(frozenset({"steps", "device"}))
    assert not flaw.touches(frozenset())


def test_a_flaw_that_nothing_is_declared_about_touches_everything() -> None:
    assert all(Flaw("new", "something is odd").touches(frozenset({part})) for part in EVERYTHING)


def test_every_flaw_is_declared_and_on_the_page_with_what_it_touches() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/tfperf/trace").glob("*.py"))
    assert {*re.findall(r"Flaw\(\s*\"(\w+)\"", source)} <= TOUCHES.keys()
    page = (ROOT / "docs/diagnosis.md").read_text(encoding="utf-8").split("## Damaged profiles")[1]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    on_page = {code: row[-1] for row in rows for code in re.findall(r"`(\w+)`", row[0])}
    assert on_page == {code: _words(code) for code in TOUCHES if code != "unsure_steps"}


def _words(code: str) -> str:
    parts = TOUCHES[code]
    return "everything" if parts == EVERYTHING else ", ".join(part for part in get_args(Part) if part in parts)


# --- names without events, and events without names ---


def oddities(tmp_path: Path, name: str, change: Callable[[Any], object]) -> Oddities:
    """Return what is odd about a plane of three events after a change of it; of the names, "work" has the id 1."""
    events = [event("work", 10 * number, 5, step_num=number, graph_type=ref("training")) for number in range(2)]
    made = schema.message_class("XSpace").FromString(space(plane(name, line("python", *events, event("rest", 30, 5)))))
    change(made.planes[0])
    return read_back(tmp_path, made.SerializeToString()).oddities


def exchange(table: Any, one: bytes, other: bytes) -> None:
    """Exchange two names in the table of stats."""
    entries = {entry.value.name: entry.value for entry in table}
    entries[one].name, entries[other].name = other, one


def test_a_plane_whose_names_fit_its_events(tmp_path: Path) -> None:
    for name in ("/host:CPU", "/device:GPU:0", "/device:TPU:0"):
        assert oddities(tmp_path, name, lambda _: None) == Oddities()


def test_names_that_no_event_has(tmp_path: Path) -> None:
    def lose_last(made: Any) -> None:
        del made.lines[0].events[2]

    assert oddities(tmp_path, "/host:CPU", lose_last) == Oddities(unused_names=1)
    assert oddities(tmp_path, "/device:GPU:0", lose_last) == Oddities(unused_names=1)
    assert oddities(tmp_path, "/device:TPU:0", lose_last) == Oddities(), "what runs on a TPU may be listed beforehand"
    lost = oddities(tmp_path, "/host:CPU", lambda made: made.lines[0].ClearField("events"))
    assert lost == Oddities(unused_names=2, unused_stats=("graph_type", "step_num"))


def test_stats_that_nothing_carries(tmp_path: Path) -> None:
    swapped = oddities(tmp_path, "/host:CPU", lambda made: exchange(made.stat_metadata, b"graph_type", b"training"))
    assert swapped == Oddities(unused_stats=("graph_type",))

    def list_names(*names: bytes) -> Callable[[Any], None]:
        def add(made: Any) -> None:
            for number, name in enumerate(names):
                made.stat_metadata.add(key=90 + number).value.name = name

        return add

    assert oddities(tmp_path, "/host:CPU", list_names(b"of a user", b"group_id", b"step_name")) == Oddities()
    assert oddities(tmp_path, "/host:CPU", list_names(b"tf_function_call")).unused_stats == ("tf_function_call",)
    assert oddities(tmp_path, "/device:TPU:0", list_names(b"tf_function_call")) == Oddities()


def test_stats_of_names_and_of_the_plane_count(tmp_path: Path) -> None:
    made = plane(
        "/host:CPU", line("python", event("work", 0, 5)), stats={"id": 1}, name_stats={"work": {"tracing_count": 1}}
    )
    assert trace_of(tmp_path, made).oddities == Oddities()


def test_stats_whose_ids_are_not_read(tmp_path: Path) -> None:
    def move_key(made: Any) -> None:
        for entry in made.stat_metadata:
            if entry.value.name == b"step_num":
                entry.key += 1 << 14
        for each in made.lines[0].events:
            for stat in each.stats:
                stat.metadata_id += (1 << 14) * (stat.WhichOneof("value") == "int64_value")

    assert oddities(tmp_path, "/host:CPU", move_key) == Oddities()


def test_counts_of_planes_add_up() -> None:
    both = Oddities(1, 2, 3, ("step_num",), 5, 4, ("id",)).plus(Oddities(10, 20, 30, (), 50, 40, ("shape",)))
    assert both == Oddities(11, 22, 33, ("step_num",), 55, 44, ("id", "shape"))


def pool_oddities(tmp_path: Path, numbers: Sequence[int], begun: int) -> Oddities:
    """Return what is odd about tasks that are given to a pool of threads, with these numbers, and begun ones."""
    given = [event("ThreadpoolListener::Record", 10 * place, 0, _p=number) for place, number in enumerate(numbers)]
    starts = [event("ThreadpoolListener::StartRegion", 10 * place + 5, 0, _c=1) for place in range(begun)]
    return trace_of(tmp_path, host(*given, *starts)).oddities


@pytest.mark.parametrize(
    ("lost", "count", "missing"),
    [
        (range(0), 400, 0),
        (range(10), 400, 0),  # what came first is another capture
        (range(100, 102), 400, 2),
        (range(100, 110), 400, 10),
        (range(100, 300), 400, 200),
        (range(0, 400, 4), 400, 99),
        (range(380, 400, 2), 400, 0),  # while the profiler stops, it leaves one thread after the other
    ],
)
def test_tasks_whose_numbers_are_missing(tmp_path: Path, lost: range, count: int, missing: int) -> None:
    numbers = [1 + number for number in range(count) if number not in lost]
    odd = pool_oddities(tmp_path, numbers, len(numbers))
    assert (odd.tasks, odd.lost_tasks, odd.begun_tasks) == (len(numbers), missing, len(numbers))
    expected = () if missing <= 2 else ("doubtful",) if missing == 10 else ("unsound",)
    assert tuple(flaw.level for flaw in odd.flaws(9) if flaw.code == "lost_tasks") == expected


def test_tasks_that_never_begin(tmp_path: Path) -> None:
    for begun, expected in ((100, []), (84, []), (83, ["unrun_tasks"])):
        found = [*pool_oddities(tmp_path, range(1, 101), begun).flaws(9)]
        assert [flaw.code for flaw in found] == expected
    assert found[0].text.startswith("17 of 100 thread pool tasks never start")


def test_numbers_that_are_no_row(tmp_path: Path) -> None:
    assert pool_oddities(tmp_path, range(7919, 100 * 7919, 7919), 99).lost_tasks == 0
