"""Graphs over time: what each cell shows, the scales, and the axes."""

from __future__ import annotations

import pytest
from live.views import NOW_S, worker

from tfperf.live.board import Point, WorkerView
from tfperf.live.graphs import by_cell, cause_graph, scale_ms, step_graph
from tfperf.live.verdict import Mark
from tfperf.report.palette import ROLES, Role
from tfperf.report.render.text_table import plain_text


def of(*steps: float | None, kinds: str = "", **fields: object) -> WorkerView:
    """Return a worker with a sample every ten seconds, the last one now."""
    start_s = NOW_S - 10 * len(steps)
    points = [
        Point(start_s + 10 * place, step, {"e": "eval"}.get(kinds[place : place + 1], "train"), SHARES)
        for place, step in enumerate(steps)
    ]
    return worker(history=tuple(points), **fields)  # type: ignore[arg-type]


SHARES: tuple[tuple[Role, float], ...] = (("compute", 50.0), ("input", 50.0))


def lines_of(view: WorkerView, width: int = 20, height: int = 4, *, interactive: bool = False) -> list[str]:
    return [plain_text(each) for each in step_graph(view, NOW_S, width, height, interactive=interactive)]


def test_a_cell_has_the_longest_step_of_its_time_or_the_one_before() -> None:
    view = of(10.0, 30.0, 20.0, None, 40.0, 50.0)
    assert [each and each.step_ms for each in by_cell(view, NOW_S, 3)] == [30.0, 20.0, 50.0]
    assert [each and each.step_ms for each in by_cell(of(10.0), NOW_S, 6)] == [None] * 5 + [10.0]


def test_step_times_as_columns_from_zero() -> None:
    assert lines_of(of(10.0, 20.0, 30.0, 40.0, None, 20.0, kinds="tttttt")) == [
        "step ms",
        "  40.0 |      ##",
        "       |    ####",
        "       |  ######  ##",
        "     0 |########  ##",
        "        -1 min - now",
    ]


def test_one_slow_step_does_not_flatten_the_others() -> None:
    lines = lines_of(of(*[10.0] * 10, 900.0, 10.0), width=32)
    assert lines[0] == "step ms, ^ to 900"
    assert lines[1].startswith("  10.0 |")
    assert lines[1].count("^") == 2


@pytest.mark.parametrize(("values", "top"), [([7.0], 8.0), ([10.0], 10.0), ([1.01] * 9 + [99.0], 1.5), ([0.034], 0.04)])
def test_scales_are_round(values: list[float], top: float) -> None:
    assert scale_ms(values) == pytest.approx(top)


def test_kinds_of_steps_are_named_and_the_mark_is_on_the_axis() -> None:
    view = of(*[10.0] * 6, kinds="tteett", mark=Mark(NOW_S - 30, "train", 10.0))
    lines = lines_of(view, width=40)
    assert lines[0] == "step ms, t train, e eval"
    assert lines[-1].split() == ["kind", "t" * 10 + "e" * 11 + "t" * 11]
    assert lines[-2].index("b") == 8 + 16


def test_causes_as_columns_in_the_colours_of_the_palette() -> None:
    lines = cause_graph(of(10.0), NOW_S, 18, 4)
    assert [plain_text(each) for each in lines] == [
        "step by cause in %",
        "   100 |        II",
        "       |        II",
        "       |        CC",
        "     0 |        CC",
        "        -1 min now",
    ]
    assert lines[1][-1].style == f"{ROLES['input'].ink} on {ROLES['input'].colour}"


def test_nothing_known_is_no_graph() -> None:
    assert step_graph(worker(history=()), NOW_S, 40, 5, interactive=True) == []
    assert cause_graph(worker(history=(Point(NOW_S),)), NOW_S, 40, 5) == []
