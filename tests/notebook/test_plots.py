"""Pictures of results: what is drawn, and what is said where there is nothing to draw."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from builders import event, host, line, logdir_of, plane, space

import tfperf
from tfperf.base.units import PS_PER_MS
from tfperf.notebook.values import COLOURS
from tfperf.trace.steps.categories import CATEGORY_TITLES, WITH_COPIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text


@pytest.fixture(autouse=True)
def drawn_nowhere() -> Iterator[None]:
    """Draw into memory, and close all figures."""
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
    """Return what is written beside and inside the axes, laid out."""
    ax.figure.canvas.draw()
    legend = ax.get_legend()
    of_legend = legend.get_texts() if legend else []
    labels = [*ax.get_xticklabels(), *ax.get_yticklabels(), ax.title, ax.xaxis.label, ax.yaxis.label]
    return [text for text in (*labels, *ax.texts, *of_legend) if text.get_text() and text.get_visible()]


def colliding(ax: Axes) -> list[tuple[str, str]]:
    """Return the pairs of texts that lie on each other."""
    texts = texts_of(ax)
    boxes = [text.get_window_extent() for text in texts]
    pairs = ((i, j) for i in range(len(texts)) for j in range(i))
    return [(texts[i].get_text(), texts[j].get_text()) for i, j in pairs if boxes[i].overlaps(boxes[j])]


@pytest.mark.parametrize("section", ["steps", "overview", "memory"])
@pytest.mark.parametrize("sample", ["input_bound", "input_fixed", "custom_loop", "retracing"])
def test_pictures_have_units_and_nothing_lies_on_another(sample: str, section: str, samples: Path) -> None:
    result = tfperf.load(samples / sample)[section]
    if section == "memory" and not result.allocators:
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
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["All others", "Host compute", "Input"]
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
    assert ax.get_title() == "The 10 kernels with most time, of 12"
    assert ax.texts[0].get_text().endswith("%, 1x")
    assert len(on_gpu["kernels"].plot(top=3).get_yticks()) == 3
    assert on_gpu["kernels"].plot(top=20).get_title() == "Kernels by time"
    assert colliding(ax) == []


def test_a_name_is_neither_a_formula_nor_endless(tmp_path: Path) -> None:
    kernel = event("$\\frac{$" + "x" * 100, 0, 10)
    gpu = plane("/device:GPU:0", line("Stream #1", kernel, id=1))
    analysis = tfperf.load(logdir_of(tmp_path, a=space(host(event("f", 0, 5)), gpu)))
    ax = analysis["kernels"].plot()
    assert colliding(ax) == []
    assert len(ax.get_yticklabels()[0].get_text()) < 60


def test_memory_says_peak_and_capacity(analysis: tfperf.Analysis) -> None:
    ax = analysis["memory"].plot()
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["mklcpu: peak 1.08 MB of 25.3 GB"]
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
    light = dict(re.findall(r"--([\w-]+): light-dark\((#\w+),", (static / "page.css").read_text("utf-8")))
    variables = dict(re.findall(r'"([\w ]+)": "([\w-]+)"', (static / "charts.js").read_text("utf-8")))
    assert {key: light[variables[CATEGORY_TITLES[key].lower()]] for key in WITH_COPIES} == COLOURS


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ("steps", "no steps"),
        ("overview", "no step time was measured"),
        ("kernels", "no device ran a kernel"),
        ("memory", "no allocator recorded anything"),
    ],
)
def test_where_there_is_nothing_to_draw_it_says_why(section: str, reason: str, tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    analysis = tfperf.load(logdir_of(tmp_path, a=space(host(event("A:A", 0, 5)))))
    with pytest.raises(tfperf.TfperfError, match=f"nothing to plot: {reason}"):
        analysis[section].plot()
    assert plt.get_fignums() == []


def test_no_rows_are_no_picture(on_gpu: tfperf.Analysis) -> None:
    with pytest.raises(tfperf.TfperfError, match="name 1 or more"):
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
    assert done.stdout.strip() == 'pictures need matplotlib: pip install "tfperf[plot]"'
