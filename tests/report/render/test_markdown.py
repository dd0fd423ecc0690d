"""The Markdown report beside the text expected of it."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfperf.report.model import Column, Fact, Finding, GroupedBars, Report, Section, StepChart, Table
from tfperf.report.render import RenderOptions, render
from tfperf.report.render.markdown import escape


def test_a_whole_report() -> None:
    columns = (
        Column("name", "Operation", str),
        Column("self_ms", "Self time", float, "ms"),
        Column("us", "Us", float, "us", level="data"),
    )
    data: dict[str, list[Any]] = {"name": ["a|b", "conv_1"], "self_ms": [412.345, None], "us": [1, 2]}
    section = Section(
        "overview",
        "Overview",
        findings=(
            Finding("input", "problem", "Waits for input.", "prefetch"),
            Finding("x", "info", "All <well>.", causes=("idle",), cause_titles=("idle",)),
        ),
        facts=(Fact("step", "Average step", 15.94, "ms", "over 2 steps"),),
        charts=(StepChart("Steps", ("7", "8"), {"Input": [10.0, 5.0]}, ("", "partial")),),
        tables=(Table("ops", "Operations", columns, data, total_rows=37, note="Inner time only."),),
        notes=("No device.",),
    )
    report = Report({"logdir": "/data"}, {}, (section, Section("memory", "Memory")))
    assert render(report, "markdown", RenderOptions(width=40)) == dedent(
        r"""
        ## Overview

        - **Problem:** Waits for input.
          - Try: prefetch
        - **Info:** All \<well\>.
          - See: idle in -s diagnosis

        | Fact         | Value                  |
        |:-------------|:-----------------------|
        | Average step | 15.9 ms (over 2 steps) |

        ### Steps

        ```text
        step                         ms
           7 |IIIIIIIIIIIIIIIIIII  10.0
           8 |IIIIIIIIII           5.00  partial
        I Input
        ```

        ### Operations

        | Operation   |   Self time (ms) |
        |:------------|-----------------:|
        | a\|b        |              412 |
        | conv\_1     |                - |

        showing 2 of 37; --top 37 shows all

        Inner time only.

        Note: No device.

        ## Memory

        Nothing to show.

        ## Source

        | Fact   | Value   |
        |:-------|:--------|
        | Logdir | /data   |
        """
    ).lstrip("\n")


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("a|b", r"a\|b"),
        ("`code`", r"\`code\`"),
        ("</script>", r"\</script\>"),
        ("*a* _b_ ~c~", r"\*a\* \_b\_ \~c\~"),
        ("[x](y)", r"\[x\](y)"),
        ("C:\\temp", r"C:\\temp"),
        ("a\nb", r"a\\nb"),
        ("\x1b[31m", r"\\x1b\[31m"),
        ("&amp; #1 $x$", r"\&amp; \#1 \$x\$"),
        ("@team a@b.c 1 @ 2", "@<!-- -->team a@<!-- -->b.c 1 @ 2"),
        ("see https://evil.example/x", "see https:<!-- -->//evil.example/x"),
        ("www.evil.example", "www.<!-- -->evil.example"),
        ("https://www.tensorflow.org/guide", "https://www.tensorflow.org/guide"),
        ("https://www.tensorflow.org.evil.example/", "https:<!-- -->//www.tensorflow.org.evil.example/"),
    ],
)
def test_names_are_shown_as_they_are(name: str, written: str) -> None:
    assert escape(name) == written


def test_backticks_in_a_label_do_not_end_the_chart() -> None:
    chart = StepChart("Steps", ("```",), {"Input": [1.0]}, ("````",))
    text = render(Report({}, {}, (Section("s", "S", charts=(chart,)),)), "markdown")
    assert text.count("`````text\n") == 1
    assert text.endswith("\n`````\n")


def test_an_empty_report_and_an_empty_table_say_so() -> None:
    assert render(Report({}, {}), "markdown") == "This report has no sections.\n"
    table = Table("t", "Kernels", (Column("n", "N", str),), {"n": []}, total_rows=0, note="No device was traced.")
    text = render(Report({}, {}, (Section("s", "S", tables=(table,)),)), "markdown")
    assert text == "## S\n\n### Kernels\n\nNo rows.\n\nNo device was traced.\n"


def test_bars_in_groups() -> None:
    chart = GroupedBars("Categories", "ms", ("Input",), {"before": (10.0,), "after": (5.0,)})
    text = render(Report({}, {}, (Section("s", "S", charts=(chart,)),)), "markdown", RenderOptions(width=40))
    assert text == (
        "## S\n\n### Categories\n\n```text\n"
        "Input, before ████████████████████  10.0\n"
        "        after ██████████            5.00\n```\n"
    )


# --- what fits into a comment ---


def report_of(name: str, rows: int, tables: int = 1, findings: int = 1) -> Report:
    """Return a report with a verdict, and tables of which the last is half as long."""
    columns = (Column("name", name, str), Column("ms", "Time", float, "ms"))
    sizes = [*[rows] * (tables - 1), (rows + 1) // 2]
    held = [
        Table(f"t{at}", f"Table {at}", columns, {"name": [name] * size, "ms": [1.0] * size}, size)
        for at, size in enumerate(sizes)
    ]
    verdict = Finding("v", "problem", "The verdict.")
    more = tuple(Finding("f", "hint", f"{at} {name}", name) for at in range(findings))
    return Report(
        {"run": name},
        {},
        (
            Section(
                "s", "S", findings=(verdict, *more), facts=(Fact("f", name, 1.0, "ms"),), charts=(), tables=tuple(held)
            ),
        ),
    )


def test_what_fits_is_not_cut() -> None:
    text = render(report_of("name", 100), "markdown")
    assert "was cut" not in text
    assert text.count("| name") == 50 + 1 + 2


def test_of_what_is_too_long_the_longest_tables_lose_rows() -> None:
    text = render(report_of("name/of/an/op" * 4, 1_500, tables=2), "markdown")
    assert 30_000 < len(text.encode()) < 65_536
    assert "showing 375 of 1,500; --top 1500 shows all" in text
    assert "showing 375 of 750; --top 750 shows all" in text
    assert "Table 1" in text
    assert "| Run" in text
    assert text.rstrip().endswith("-o report.html, or --format json.")


def test_a_long_name_loses_its_middle_before_tables_lose_rows() -> None:
    text = render(report_of("begin" + "x" * 100_000 + "end", 4), "markdown")
    assert len(text) < 10_000
    assert "beginxxx" in text
    assert "xxxend" in text
    assert text.count("…") >= 6


def test_where_there_is_no_room_at_all_the_verdict_stays() -> None:
    text = render(report_of("日本語" * 60, 50, tables=40, findings=400), "markdown")
    assert text.startswith("## S\n\n- **Problem:** The verdict.\n- **Hint:** 0 ")
    assert 50_000 < len(text.encode()) < 65_536
    assert "this report was cut" in text


@given(st.text(st.characters()), st.integers(1, 30_000), st.integers(0, 200), st.integers(1, 9), st.integers(0, 150))
@settings(max_examples=min(10, settings().max_examples))
def test_a_report_always_fits_into_a_comment(name: str, times: int, rows: int, tables: int, findings: int) -> None:
    longest = max(1, 150_000 // (1 + rows * tables + findings))
    text = render(report_of((name * times)[:longest], rows, tables, findings), "markdown")
    assert len(text) <= len(text.encode()) < 65_536
    assert text.startswith("## S\n\n- **Problem:** The verdict.")
