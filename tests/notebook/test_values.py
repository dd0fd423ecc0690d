"""Values as HTML and as pictures."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders import event, host, known, line, logdir_of, plane, space
from printed import missing
from synthetic_tpu import offload_tpu

import tfperf
from tfperf.analysis.registry import AnySection, section_names
from tfperf.base.units import PS_PER_MS
from tfperf.notebook.values import COLOURS, MOST_ROWS, bars_of, cells_of, html_of
from tfperf.report.model import BarChart, Column, Report, SegmentBar, Table, table_of
from tfperf.report.palette import ROLES
from tfperf.report.render import render
from tfperf.trace.steps.categories import CATEGORY_TITLES, WITH_COPIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

HOSTILE = "</table><script>alert(1)</script><img src=x onerror=alert(2)>\u202e$x$\" data-x='"


class Reader(HTMLParser):
    """The tags of an output, and its text without style and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.cells: list[str] = []
        self.text = ""
        self._hidden = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self._hidden = tag in ("script", "style")
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data
            if self.cells and self.tags[-1] != "th":
                self.cells[-1] += data


def numbers(rows: int) -> Table:
    columns = (Column("name", "Name", str), Column("time_ms", "Time", float, "ms"), Column("x", "X", int, level="data"))
    return table_of("t", "Times", columns, {"name": ["a"] * rows, "time_ms": [1.5] * rows, "x": [0] * rows})


def test_an_analysis_shows_headline_bar_and_causes(samples: Path) -> None:
    html = tfperf.load(samples / "input_bound")._repr_html_()
    shown = Reader(html)
    texts = ("19 steps, mean 19.4 ms", "Waiting for input takes 64.4%", "Try:", "Step by cause", "28.5%", "(hatched:")
    assert missing(shown.text, *texts) == []
    assert html.count(f"background:{ROLES['input'].colour}") == 2, "the segment and its legend"
    assert len(html) < 20_000
    assert "More: tfperf" not in shown.text


def test_only_the_overview_shows_where_nothing_else_was_analyzed(samples: Path) -> None:
    shown = Reader(tfperf.load(samples / "input_bound", sections=["overview"])._repr_html_())
    assert "64.4%" in shown.text


def test_damage_stands_first(tmp_path: Path) -> None:
    steps = [event("train", 100 * n, 90, step_num=n) for n in range(5)]
    job = space(host(*steps), host(*steps))
    analysis = tfperf.load(logdir_of(tmp_path, a=job))
    assert analysis.flaws
    shown = Reader(analysis._repr_html_())
    assert "damaged" in shown.text.split("Try:")[0]


def test_tables_have_units_and_raw_numbers_to_sort_by() -> None:
    html = html_of(numbers(2))
    shown = Reader(html)
    assert "Time (ms)" in shown.text
    assert shown.cells[1].strip() == "1.50"
    assert 'data-key="1.5"' in html
    assert "X" not in re.sub("<script.*", "", shown.text)


def test_long_tables_are_cut_and_say_so() -> None:
    long = Reader(html_of(numbers(MOST_ROWS + 1_000)))
    assert long.tags.count("td") == 2 * MOST_ROWS
    assert f"The first {MOST_ROWS} of {MOST_ROWS + 1_000:,} rows; .table has all." in long.text
    assert "rows;" not in Reader(html_of(numbers(MOST_ROWS))).text
    assert "no rows" in Reader(html_of(numbers(0))).text


def test_unknown_has_no_key_to_sort_by() -> None:
    columns = Column("a", "A", float, "ms"), Column("b", "B", bool)
    (row,) = cells_of(table_of("t", "T", columns, {"a": [None], "b": [True]}))
    assert [(cell.text, cell.key) for cell in row] == [("-", None), ("yes", 1)]


def test_bars_are_shares_of_the_longest() -> None:
    bars = bars_of(BarChart("B", "%", ("a", "b", "c"), (50.0, 25.0, None)))
    assert [(bar.text, bar.share) for bar in bars] == [("50.0%", 100.0), ("25.0%", 50.0), ("-", 0.0)]


@pytest.mark.parametrize("name", [name for name in section_names() if name != "gaps"])
def test_every_section_has_html(name: AnySection, samples: Path) -> None:
    analysis = tfperf.load(samples / "retracing", sections=[name])
    result: Any = analysis[name]
    for value in (result, analysis.report([name]), analysis.report([name]).sections[0]):
        assert Reader(value._repr_html_()).tags[0] == "div"


def test_what_has_no_table_shows_its_fields() -> None:
    column = Column("time_ms", "Time", float, "ms", "how long")
    shown = Reader(column._repr_html_())
    assert all(text in shown.text for text in ("Column", "time_ms", "how long"))
    captured = tfperf.Captured(worker="w:1", message="refused")
    assert "w:1" in Reader(captured._repr_html_()).text
    assert "refused" in Reader(tfperf.Sampled(Path("logs"), (captured,))._repr_html_()).text


def test_a_gate_shows_its_limits(samples: Path) -> None:
    shown = Reader(tfperf.check(samples / "input_bound", max_input_bound="10%")._repr_html_())
    assert "FAIL: " in shown.text
    assert "max-input-bound 10%" in shown.text


def test_hostile_names_are_inert(tmp_path: Path) -> None:
    """Nothing that a profile holds becomes a tag or an attribute, in any section."""
    steps = [event("train", 100 * n, 90, step_num=n) for n in range(5)]
    ops = [event(f"{HOSTILE}:{HOSTILE}", 100 * n + 5, 50) for n in range(5)]
    kernels = [event(HOSTILE, 100 * n + 10, 40, tf_op=HOSTILE) for n in range(5)]
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels))
    harmless = tfperf.load(logdir_of(tmp_path / "a", a=space(host(*steps))))
    analysis = tfperf.load(logdir_of(tmp_path / "b", a=space(host(*steps, *ops), gpu)))
    report = analysis.report()
    tags, attributes = set(), set()
    for value in (harmless, harmless.report(), harmless["ops"]):
        tags |= {*Reader(value._repr_html_()).tags}
        attributes |= Reader(value._repr_html_()).attributes
    hostile = [analysis, report, *report.sections, *report.tables(), *(analysis[name] for name in ("ops", "kernels"))]
    found = [Reader(value._repr_html_()) for value in hostile]
    assert any("alert(1)" in shown.text for shown in found)
    assert {tag for shown in found for tag in shown.tags} <= tags | {"br", "small", "code", "details", "summary"}
    assert {name for shown in found for name in shown.attributes} <= attributes | {"data-key", "class", "open", "style"}
    assert all(shown.tags.count("script") == 1 and "\u202e" not in shown.text for shown in found)


@pytest.fixture(autouse=True)
def drawn_nowhere() -> Iterator[None]:
    import matplotlib.pyplot as plt  # which takes long, so not while tests are collected

    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture
def analysis(samples: Path) -> tfperf.Analysis:
    return tfperf.load(samples / "input_bound")


@pytest.fixture
def on_gpu(tmp_path: Path) -> tfperf.Analysis:
    """Two steps, and twelve kernels: k11 runs longest, k0 a moment."""
    steps = [event("train", 1000 * n, 900, step_num=n) for n in range(2)]
    kernels = [event(f"k{n}", 100 * n, 1 + 5 * n) for n in range(12)]
    gpu = plane("/device:GPU:0", line("Stream #1", *kernels, id=1))
    return tfperf.load(logdir_of(tmp_path, a=space(host(*steps), gpu)))


def texts_of(ax: Axes) -> list[Text]:
    ax.figure.canvas.draw()
    legend = ax.get_legend()
    of_legend = legend.get_texts() if legend else []
    labels = [*ax.get_xticklabels(), *ax.get_yticklabels(), ax.title, ax.xaxis.label, ax.yaxis.label]
    return [text for text in (*labels, *ax.texts, *of_legend) if text.get_text() and text.get_visible()]


def colliding(ax: Axes) -> list[tuple[str, str]]:
    texts = texts_of(ax)
    boxes = [text.get_window_extent() for text in texts]
    pairs = ((i, j) for i in range(len(texts)) for j in range(i))
    return [(texts[i].get_text(), texts[j].get_text()) for i, j in pairs if boxes[i].overlaps(boxes[j])]


@pytest.mark.parametrize(
    "section", ["steps", "overview", "memory", "diagnosis", "ops", "tfdata", "input", "wall", "idle", "kernels"]
)
@pytest.mark.parametrize("sample", ["input_bound", "input_fixed", "custom_loop", "retracing"])
def test_pictures_have_units_and_nothing_lies_on_another(sample: str, section: str, samples: Path) -> None:
    result = tfperf.load(samples / sample)[section]
    if not (result.parts if section == "diagnosis" else len(result.table)):
        with pytest.raises(tfperf.TfperfError, match="nothing to plot: the profile has no "):
            result.plot()
        return
    ax = result.plot()
    assert ax.get_title()
    assert "(" in ax.get_xlabel() + ax.get_ylabel()
    assert colliding(ax) == []


def test_steps_are_stacked_up_to_their_time(analysis: tfperf.Analysis) -> None:
    steps = analysis["steps"]
    ax = steps.plot()
    longest_ms = steps.steps.duration_ps.max() / PS_PER_MS
    assert ax.dataLim.y1 == pytest.approx(longest_ms, rel=0.02)
    assert [text.get_text() for text in known(ax.get_legend()).get_texts()] == ["All others", "Host compute", "Input"]
    assert "pale: 1 of 20" in ax.get_xlabel()
    assert "unknown: output, kernel launch" in ax.get_xlabel()


def test_categories_are_named_with_share_and_time(analysis: tfperf.Analysis) -> None:
    ax = analysis["overview"].plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["Input", "Host compute", "All others"]
    assert [text.get_text() for text in ax.texts] == ["64.4% (12.5 ms)", "28.5% (5.52 ms)", "7.1% (1.39 ms)"]
    assert "19.4 ms" in ax.get_title()


def test_the_kernels_with_most_time_stand_on_top(on_gpu: tfperf.Analysis) -> None:
    ax = on_gpu["kernels"].plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == [f"k{n}" for n in range(11, 1, -1)]
    assert ax.get_title() == "The 10 kernels with the most time, of 12"
    assert ax.texts[0].get_text().endswith("%, 1x")
    assert len(on_gpu["kernels"].plot(top=3).get_yticks()) == 3
    assert on_gpu["kernels"].plot(top=20).get_title() == "Kernels by time"
    assert colliding(ax) == []


def test_the_step_is_cut_by_cause_as_on_the_page(analysis: tfperf.Analysis) -> None:
    from matplotlib.colors import to_hex

    ax = analysis["diagnosis"].plot()
    (bar,) = analysis.report(["diagnosis"]).sections[0].charts
    assert isinstance(bar, SegmentBar)
    legend = [text.get_text() for text in known(ax.get_legend()).get_texts()]
    assert legend == [f"{segment.title} {segment.share}" for segment in bar.segments]
    bars: list[Any] = [patch for drawn in ax.containers for patch in drawn]
    hatched = [patch.get_width() for patch in bars if patch.get_hatch()]
    assert hatched == pytest.approx([segment.saved for segment in bar.segments if segment.saved])
    assert sum(patch.get_width() for patch in bars) == pytest.approx(bar.total, rel=0.02)
    colours = {to_hex(patch.get_facecolor()) for patch in bars}
    assert colours == {ROLES[segment.role].colour for segment in bar.segments}


def test_ops_and_stages_have_the_colours_of_their_roles(analysis: tfperf.Analysis) -> None:
    from matplotlib.colors import to_hex

    ops = analysis["ops"].plot(top=2)
    assert [label.get_text() for label in ops.get_yticklabels()] == ["Iterator::Root::BatchV2::Map", "DecodeJpeg"]
    assert [text.get_text() for text in ops.texts] == ["40.8%, 160x", "35.2%, 160x"]
    assert [to_hex(bar.get_facecolor()) for bar in ops.patches] == [ROLES[role].colour for role in ("input", "compute")]
    assert [text.get_text() for text in known(ops.get_legend()).get_texts()] == ["waiting for data", "computing"]
    stages = analysis["tfdata"].plot()
    assert "160x, blocking, limiting" in [text.get_text() for text in stages.texts]
    assert [text.get_text() for text in analysis["wall"].plot().texts] == ["94.1%", "5.1%"]


def test_idle_time_is_drawn_by_host_activity(on_gpu: tfperf.Analysis) -> None:
    ax = on_gpu["idle"].plot()
    assert len(ax.get_yticks()) == len(on_gpu["idle"].ranked)
    assert colliding(ax) == []


def test_a_roofline_has_points_and_peaks(tmp_path: Path) -> None:
    ax = tfperf.load(logdir_of(tmp_path, a=offload_tpu()))["roofline"].plot()
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "Intensity (flop/byte)", "TFLOP/s")
    assert [text.get_text() for text in known(ax.get_legend()).get_texts()] == ["peak of bfloat16"]


def test_a_name_is_neither_a_formula_nor_endless(tmp_path: Path) -> None:
    kernel = event("$\\frac{$" + "x" * 100, 0, 10)
    gpu = plane("/device:GPU:0", line("Stream #1", kernel, id=1))
    analysis = tfperf.load(logdir_of(tmp_path, a=space(host(event("f", 0, 5)), gpu)))
    ax = analysis["kernels"].plot()
    assert colliding(ax) == []
    assert len(ax.get_yticklabels()[0].get_text()) < 60


def test_memory_says_peak_and_capacity(analysis: tfperf.Analysis) -> None:
    ax = analysis["memory"].plot()
    assert [text.get_text() for text in known(ax.get_legend()).get_texts()] == ["mklcpu: peak 1.08 MB of 25.3 GB"]
    assert [label.get_text() for label in ax.get_yticklabels()][:3] == ["0 B", "200 kB", "400 kB"]


def test_axes_of_ones_own_are_used(analysis: tfperf.Analysis) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2)
    assert analysis["overview"].plot(left) is left
    assert analysis["overview"].by_kind[0].plot(ax=right) is right
    assert len(figure.axes) == 2


def test_each_category_has_a_colour_of_its_own_the_one_of_the_page() -> None:
    assert list(COLOURS) == list(WITH_COPIES)
    assert len(set(COLOURS.values())) == len(COLOURS)
    static = files("tfperf.report.render.page") / "static"
    light = dict(re.findall(r"--([\w-]+): (#\w+);", render(Report({}, {}), "html").partition("</style>")[0]))
    variables = dict(re.findall(r'"([\w ]+)": "([\w-]+)"', (static / "charts.js").read_text("utf-8")))
    assert {key: light[variables[CATEGORY_TITLES[key].lower()]] for key in WITH_COPIES} == COLOURS


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("steps", "the profile has no step markers"),
        ("overview", "the step time is unknown"),
        ("kernels", "the profile has no kernels"),
        ("memory", "the profile has no allocator events"),
        ("idle", "the profile has no idle time of a device"),
        ("tfdata", "the profile has no tf.data pipeline"),
        ("input", "the profile has no input ops"),
        ("roofline", "the work of ops or the peaks of the device are unknown"),
        ("diagnosis", "the step time is unknown"),
    ],
)
def test_where_there_is_nothing_to_draw_it_says_why(section: str, reason: str, tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    analysis = tfperf.load(logdir_of(tmp_path, a=space(host(event("A:A", 0, 5)))))
    with pytest.raises(tfperf.TfperfError, match=f"nothing to plot: {reason}"):
        analysis[section].plot()
    assert plt.get_fignums() == []


def test_no_rows_are_no_picture(on_gpu: tfperf.Analysis) -> None:
    with pytest.raises(tfperf.TfperfError, match="top is 0; use 1 or more"):
        on_gpu["kernels"].plot(top=0)


def test_without_matplotlib_an_error_says_what_to_install(samples: Path) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import tfperf\n"
        "try:\n    tfperf.load(sys.argv[1], sections=['steps'])['steps'].plot()\n"
        "except tfperf.TfperfError as error:\n    print(error)"
    )
    command = [sys.executable, "-c", code, str(samples / "input_bound")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == 'plots require matplotlib: pip install "tfperf[plot]"'
