"""The Markdown report beside the text expected of it."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from tfperf.render import RenderOptions, render
from tfperf.render.markdown import escape
from tfperf.reports.model import Column, Fact, Finding, Report, Section, StepChart, Table


def test_a_whole_report() -> None:
    columns = (
        Column("name", "Operation"),
        Column("self_ms", "Self time", "ms"),
        Column("us", "Us", "us", compact=False),
    )
    data: dict[str, list[Any]] = {"name": ["a|b", "conv_1"], "self_ms": [412.345, None], "us": [1, 2]}
    section = Section(
        "overview",
        "Overview",
        findings=(
            Finding("input", "problem", "Waits for input.", "prefetch"),
            Finding("x", "info", "All <well>."),
        ),
        facts=(Fact("step", "Average step", 15.94, "ms", "over 2 steps"),),
        charts=(StepChart("Steps", ("7", "8"), {"Input": [10.0, 5.0]}, ("", "partial")),),
        tables=(Table("ops", "Operations", columns, data, total_rows=37, note="Inner time only."),),
        notes=("No device.",),
    )
    report = Report({"logdir": "/data"}, {}, (section, Section("memory", "Memory")))
    assert render(report, "markdown", RenderOptions(width=40)) == dedent(
        r"""
        | Fact   | Value   |
        |:-------|:--------|
        | Logdir | /data   |

        ## Overview

        - **Problem:** Waits for input.
          - Try: prefetch
        - **Info:** All \<well\>.

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
        | a\|b        |            412.3 |
        | conv\_1     |                - |

        showing 2 of 37; --top 37 shows all

        Inner time only.

        Note: No device.

        ## Memory

        Nothing to show.
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
    table = Table("t", "Kernels", (Column("n", "N"),), {"n": []}, total_rows=0, note="No device was traced.")
    text = render(Report({}, {}, (Section("s", "S", tables=(table,)),)), "markdown")
    assert text == "## S\n\n### Kernels\n\nNo rows.\n\nNo device was traced.\n"
