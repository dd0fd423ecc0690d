"""The terminal report beside the text expected of it."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
from rich.style import Style

from tfperf.report.model import Column, Fact, Finding, Report, Section, Segment, SegmentBar, StepChart, Table
from tfperf.report.palette import Colours
from tfperf.report.render import RenderOptions, render

FILTER = "gradient_tape/sequential/conv2d_1/Conv2D/Conv2DBackpropFilter"

COLUMNS = (
    Column("name", "Operation", str),
    Column("count", "Count", int, "count"),
    Column("self_ms", "Self time", float, "ms"),
    Column("share", "Share", float, "%"),
    Column("total_ms", "Total", float, "ms", level="data"),
)

TOP_OPS = Table(
    "top_ops",
    "Operations by self time",
    COLUMNS,
    {
        "name": [FILTER, "MatMul"],
        "count": [1200, 3],
        "self_ms": [412.345, None],
        "share": [62.08, 0.01],
        "total_ms": [1.0, 2.0],
    },
    total_rows=37,
    note="Time inside an operation called by another counts for the inner one.",
)


def shown(*sections: Section, options: RenderOptions | None = None) -> str:
    """Return sections as the terminal shows them."""
    return render(Report({}, {}, sections), "table", options)


def test_a_whole_report() -> None:
    section = Section(
        "overview",
        "Overview",
        findings=(
            Finding("input_bound", "problem", "The job waits for input 63.4% of the time.", "add .prefetch(AUTOTUNE)"),
            Finding(
                "retrace",
                "hint",
                "One step was traced again.",
                causes=("warm_up", "compilation"),
                cause_titles=("warm_up", "compilation"),
            ),
            Finding("steps", "info", "Steps were found by markers."),
        ),
        facts=(Fact("step", "Average step", 15.94, "ms", "over 2 steps"), Fact("n", "Steps", 2, "count")),
        charts=(StepChart("Steps", ("7", "8"), {"Input": [10.0, 5.0], "Output": [2.0, 1.0]}, ("", "partial")),),
        tables=(TOP_OPS,),
        notes=("Device times are not known.",),
    )
    report = Report({"logdir": "/data/logs", "hosts": ["a", "b"]}, {}, (section, Section("memory", "Memory")))
    assert render(report, "table", RenderOptions(width=60)) == dedent(
        """\
        Logdir  /data/logs
        Hosts   a, b

        Overview
        ========
        !! The job waits for input 63.4% of the time.
           try: add .prefetch(AUTOTUNE)
         > One step was traced again.
           see: warm_up or compilation in -s diagnosis
         i Steps were found by markers.

        Average step  15.9 ms  over 2 steps
        Steps         2

        Steps
        step                                             ms
           7 |IIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIIpppppp  12.0
           8 |IIIIIIIIIIIIIIIIIppp                     6.00  partial
        I Input   p Output

        Operations by self time
                                                    Self time  Share
        Operation                            Count       (ms)    (%)
        -----------------------------------  -----  ---------  -----
        gradient_tape/sequential/conv2d_1/   1,200        412   62.1
          Conv2D/Conv2DBackpropFilter
        MatMul                                   3          -   <0.1
        showing 2 of 37; --top 37 shows all
        Time inside an operation called by another counts for the
        inner one.

        note: Device times are not known.

        Memory
        ======
        nothing to show
        """
    )


def test_a_terminal_gets_one_line_per_row_with_both_ends_of_the_name() -> None:
    section = Section("ops", "Ops", tables=(TOP_OPS,))
    lines = shown(section, options=RenderOptions(width=60, interactive=True)).splitlines()
    assert "gradient_ta…2D/Conv2DBackpropFilter  1,200        412   62.1" in lines
    assert "MatMul                                   3          -   <0.1" in lines


def test_names_that_would_look_the_same_when_cut_are_folded() -> None:
    names = [
        "gradients/conv_1/a_long_block/conv/Conv2D/Filter",
        "gradients/conv_2/a_long_block/conv/Conv2D/Filter",
        "gradients/dense/another_block/bias/BiasAddGrad",
    ]
    table = Table(
        "t", "T", (Column("n", "N", str), Column("calls", "Calls", int, "count")), {"n": names, "calls": [1, 2, 3]}, 3
    )
    text = shown(Section("s", "S", tables=(table,)), options=RenderOptions(width=40, interactive=True))
    assert text.splitlines()[5:] == [
        "gradients/conv_1/a_long_block/         1",
        "  conv/Conv2D/Filter",
        "gradients/conv_2/a_long_block/         2",
        "  conv/Conv2D/Filter",
        "gradients/…block/bias/BiasAddGrad      3",
    ]


def test_colour_adds_codes_and_nothing_else() -> None:
    chart = StepChart("Steps", ("7",), {"Input": [10.0]}, ("",))
    finding = Finding("a", "problem", "Slow.", "hurry")
    section = Section(
        "ops",
        "Ops",
        findings=(finding,),
        facts=(Fact("a", "A", 1, "ms", "note"),),
        charts=(chart,),
        tables=(TOP_OPS,),
        notes=("end",),
    )
    coloured = shown(section, options=RenderOptions(colour=True))
    assert "\x1b[1;31m!! \x1b[0mSlow." in coloured
    assert "\x1b[30;41mIIII" in coloured
    without_codes = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in without_codes.splitlines()] == shown(section).splitlines()


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS"])
def test_the_environment_changes_nothing(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    section = Section("ops", "Ops", tables=(TOP_OPS,))
    before = shown(section)
    monkeypatch.setenv(variable, "1")
    assert shown(section) == before


def test_markup_and_emoji_codes_in_names_are_literal() -> None:
    names = ["[bold]x[/bold]", "[/]", ":smile:", "[link=http://a]b[/link]"]
    table = Table("t", "[red]T", (Column("n", "[b]N", str),), {"n": names}, total_rows=4, note="[i]")
    section = Section(
        "s",
        "[u]S",
        findings=(Finding("a", "info", "[/] :boom:"),),
        facts=(Fact("f", "[f]", "[v]"),),
        charts=(),
        tables=(table,),
        notes=("[n]",),
    )
    text = shown(section, options=RenderOptions(colour=True))
    for name in [*names, "[red]T", "[b]N", "[i]", "[u]S", "[/] :boom:", "[f]", "[v]", "[n]"]:
        assert name in text


def test_an_empty_report_and_an_empty_table_say_so() -> None:
    assert render(Report({}, {}), "table") == "This report has no sections.\n"
    table = Table("t", "Kernels", (Column("n", "N", str),), {"n": []}, total_rows=0, note="No device was traced.")
    assert shown(Section("s", "S", tables=(table,))) == "S\n=\nKernels\nno rows\nNo device was traced.\n"


def test_long_facts_keep_their_column() -> None:
    facts = (
        Fact("a", "Source", "/data/" + "x" * 40, note="slow"),
        Fact("b", "A title of more than 34 characters, folded", 1),
        Fact("c", "Time", 2.5, "ms", "short"),
    )
    assert shown(Section("s", "S", facts=facts), options=RenderOptions(width=70)).splitlines()[2:] == [
        "Source                              /data/",
        "                                    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "                                    xxxxxx  slow",
        "A title of more than 34",
        "  characters, folded                1",
        "Time                                2.50 ms  short",
    ]


@pytest.mark.parametrize(
    ("colours", "code"), [("16", "30;41"), ("256", "38;5;16;48;5;173"), ("truecolor", "38;2;0;0;0;48;2;221;124;102")]
)
def test_the_palette_in_each_terminal(colours: Colours, code: str) -> None:
    bar = SegmentBar(
        title="Step", short_title="step", unit="ms", total=2.0,
        segments=(Segment(role="input", title="Waiting", value=2.0, share="100%"),),
    )  # fmt: skip
    section = Section("s", "S", charts=(bar,))
    Style.parse.cache_clear()  # rich keeps the codes of the first number of colors of a process
    assert f"\x1b[{code}mIII" in shown(section, options=RenderOptions(colour=True, colours=colours))


def test_the_hatching_of_a_bar_is_always_explained() -> None:
    titles = ("Copying batches to the device", "Python between calls, which computes,", "Unexplained")
    segments = tuple(Segment(role="copy", title=each, value=2.0, share="33.3%", saved=1.0) for each in titles)
    bar = SegmentBar(title="Step", short_title="step", unit="ms", total=6.0, segments=segments)
    for width in (40, 60, 80):
        lines = shown(Section("s", "S", charts=(bar,)), options=RenderOptions(width=width)).splitlines()
        assert "/ removed by the fix" in lines[-1], width


def test_a_cause_links_to_its_documentation() -> None:
    finding = Finding("slow", "hint", "It is slow.", "use less", url="https://keras.io/a")
    section = Section("s", "S", findings=(finding,), is_lead=True)
    linked = "   \x1b]8;;https://keras.io/a\x1b\\try\x1b]8;;\x1b\\: use less"
    assert linked in shown(section, options=RenderOptions(links=True)).splitlines()
    assert "keras.io" not in shown(section)
    whole = shown(section, options=RenderOptions(view="whole")).splitlines()
    assert whole[-2:] == ["   try: use less", "   docs: https://keras.io/a"]


def test_commands_name_the_profile() -> None:
    section = Section("s", "S", notes=("More: tfperf analyze PATH --full",), is_lead=True)
    report = Report({"folder": "a b/run"}, {}, (section,))
    assert "tfperf analyze 'a b/run' --full" in render(report, "table")
    assert "tfperf analyze logs --run r --full" in render(report, "table", RenderOptions(target="logs --run r"))
