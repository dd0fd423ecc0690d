"""Tables of ops; and reports whose names try to be markup, commands or too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfperf.report.flame_tree import FlameScale, flame_chart, flame_tree
from tfperf.report.model import (
    BarChart,
    Chart,
    Column,
    Fact,
    Finding,
    GroupedBars,
    Report,
    Section,
    Sparkline,
    StepChart,
    Table,
)

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"' onfocus='alert(1)' autofocus='",
    "<!--",
    "&lt;b&gt;",
    "{{ policy }}{% raw %} ${x} {x|y}",
    "javascript:alert(1)",
    "\u202egnp.exe\u200f",
    "\x1b[31mred\x1b[0m\x00",
    "\udc80\ud800",
    "[bold] [/]",
    "a|b ``` * _ ~ #",
    "two\nlines\r\tand a tab",
    "",
    " ",
    "日本語/" * 100,
    "日本語" * 50_000,
    "x" * 100_000,
]


OPS = (
    Column("name", "Name", str),
    Column("self_ms", "Self", float, "ms"),
    Column("size", "Size", int, "bytes", level="data"),
)


def ops_table(names: Sequence[Any], times: Sequence[Any], sizes: Sequence[Any] = ()) -> Table:
    data = {"name": names, "self_ms": times, "size": sizes or [None] * len(names)}
    return Table("ops", "Ops", OPS, data, len(names))


def section_of(name: str, value: Any = 1.5) -> Section:
    """Return a section that has one text in every place where a text can be."""
    columns = (
        Column("name", name, str, depth_key="depth", meaning=name),
        Column("value", name, float, "ms"),
        Column("other", "Other", str),
    )
    data: dict[str, list[Any]] = {
        "name": [f"{name}{row or ''}" for row in range(12)],
        "value": [value] * 12,
        "other": [value] * 12,
        "depth": [0, 1] * 6,
    }
    charts: tuple[Chart, ...] = (
        StepChart(name, (name, "2"), {name: [2.0, 1.0], "Input": [1.0, 1.0]}, (name, "")),
        GroupedBars(name, "ms", (name,), {name: (1.0,)}),
        Sparkline(title=name, times=(0.0, 1.0), values=(1.0, 2.0), low=1.0, high=2.0),
        BarChart(name, "%", (name,), (1.0,)),
        flame_chart(flame_tree({(name, name): 3}), name, FlameScale(unit="ms", divisor=1, separator="/"), most=9),
    )
    return Section(
        name,
        name,
        findings=(Finding(name, "problem", name, name), Finding(name, "info", name, name)),
        facts=(Fact(name, name, name, note=name), Fact("value", name, value, "%", name)),
        charts=charts,
        tables=(Table(name, name, columns, data, 99, note=name, bar_key="value"),),
        notes=(name,),
    )


def report_of(name: str, value: Any = 1.5) -> Report:
    """Return a report that has one text in every place where a text can be."""
    return Report({name: name, "list": [name] * 9}, {name: name}, (section_of(name, value),))
