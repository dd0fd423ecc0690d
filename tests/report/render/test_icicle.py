"""A flame graph in letters."""

from __future__ import annotations

from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.model import FlameChart
from tfperf.report.render.charts import icicle_lines
from tfperf.report.render.text_table import cells, plain_text

MS = FlameScale(unit="ms", divisor=1000, separator="/")


def lines_of(
    stacks: dict[tuple[str, ...], int], *, width: int = 80, interactive: bool = False, most: int = 99
) -> list[str]:
    chart = flame_chart(flame_tree(stacks), "t", MS, most=most)
    return [plain_text(line).rstrip() for line in icicle_lines(chart, width, interactive=interactive)]


def test_the_biggest_stand_first_and_are_indented() -> None:
    assert lines_of({("m", "dense"): 50_000, ("m", "conv"): 25_000, ("loss",): 25_000}) == [
        " share   ms",
        "100.0%  100  ################  all",
        " 75.0% 75.0  ############        m",
        " 50.0% 50.0  ########              dense",
        " 25.0% 25.0  ####                  conv",
        " 25.0% 25.0  ####                loss",
    ]


def test_a_box_with_nothing_but_one_other_shares_its_row() -> None:
    assert lines_of({("m", "dense", "MatMul"): 9000, ("loss",): 1000})[2:] == [
        " 90.0% 9.00  ##############      m/dense/MatMul",
        " 10.0% 1.00  ##                  loss",
    ]


def test_what_is_below_one_percent_is_cut_and_its_sum_is_said() -> None:
    """995 of 1,000 ms are of `large`; 3 and 2 ms are cut, of which the second does not even travel."""
    stacks: dict[tuple[str, ...], int] = {("large",): 995_000, ("small",): 3000, ("smaller",): 2000}
    assert lines_of(stacks)[-1] == "Omitted: 2 rows below 1%, 5.00 ms in total (0.5%)."
    assert lines_of(stacks, most=3)[-1] == "Omitted: 2 rows below 1%, 5.00 ms in total (0.5%)."
    assert "Omitted" not in lines_of({("large",): 1000})[-1]


def test_what_is_cut_inside_a_box_counts_too() -> None:
    stacks = {("m",): 500_000, ("m", "large"): 496_000, ("m", "small"): 4000}
    assert lines_of(stacks)[-1] == "Omitted: 1 row below 1%, 4.00 ms in total (0.4%)."


def test_lines_are_never_wider_than_the_window() -> None:
    deep = {tuple(f"a_rather_long_scope_{n}{'x' * (n % 2)}" for n in range(depth)): 1000 for depth in range(1, 40)}
    for width in (60, 80, 120):
        for interactive in (False, True):
            assert max(map(cells, lines_of(deep, width=width, interactive=interactive))) <= width


def test_names_are_safe() -> None:
    assert lines_of({("a\x1b[31m\n",): 1000})[-1].endswith(r"a\x1b[31m\n")


def test_nothing_is_said_to_be_nothing() -> None:
    assert lines_of({}) == ["nothing to show"]
    empty = FlameChart(title="t", unit="ms", names=(), labels=(), depths=(), starts=(), widths=(), own=())
    assert [plain_text(line) for line in icicle_lines(empty, 80, interactive=False)] == ["nothing to show"]
