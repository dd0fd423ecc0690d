"""Pictures of steps as data in the page: small, whole, and safe."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
from msgspec.structs import replace

from tfperf.report.model import (
    BlockName,
    Blocks,
    Finding,
    Lane,
    LaneGroup,
    Links,
    MemoryCurve,
    Report,
    Ribbon,
    Section,
    StepPicture,
)
from tfperf.report.render import RenderOptions, render
from tfperf.report.render.page import render_page
from tfperf.report.render.page.data import MOST_BYTES, picture_data, picture_rows, picture_words

LANE = Lane(title="python", rows=1, busy_percent=75.0)


def blocks(count: int, finest_ns: int = 0, names: int = 1) -> Blocks:
    """Blocks of a microsecond each, one after the other."""
    return Blocks(
        finest_ns=finest_ns,
        row=np.zeros(count, np.int32),
        start_ns=1000 * np.arange(count),
        duration_ns=np.full(count, 1000) + np.arange(count) % 97,
        name=(np.arange(count) % names).astype(np.int32),
        count=np.ones(count, np.int64),
        self_ns=np.full(count, 1000) - np.arange(count) % 89,
        note=np.full(count, -1, np.int32),
    )


def picture(*levels: Blocks, names: tuple[str, ...] = ("op",), **more: Any) -> StepPicture:
    none, rows = np.zeros(0, np.int64), np.zeros(0, np.int32)
    fields: dict[str, Any] = {
        "title": "Train step 3",
        "host": "vm",
        "step": 3,
        "duration_ns": 10_000_000,
        "categories": {"Input": 2_500_000, "Host compute": 7_500_000, "Output": 0},
        "ribbons": (
            Ribbon(
                title="Step by category",
                titles=("Input", "Host compute"),
                category=np.array([0, 1]),
                start_ns=np.array([0, 2_500_000]),
                end_ns=np.array([2_500_000, 10_000_000]),
            ),
        ),
        "groups": (LaneGroup(title="Program", lanes=(LANE,), is_open=True, load=(75, 0)),),
        "levels": levels,
        "names": tuple(BlockName(name, "Host compute", "MatMul", name) for name in names),
        "notes": (),
        "links": Links(kinds=("launches",), kind=none, from_row=rows, from_ns=none, to_row=rows, to_ns=none),
        "memory": (MemoryCurve("cpu", np.array([0, 5]), np.array([10, 20])),),
        "places": {"input_wait": (0, 2_500_000, 2_500_000)},
        **more,
    }
    return StepPicture(**fields)


def unpacked(data: Any) -> Any:
    assert data["kind"] == "picture"
    return json.loads(gzip.decompress(base64.b64decode(data["packed"])))


def test_what_travels() -> None:
    data = unpacked(picture_data(picture(blocks(3))))
    assert data["duration"] == 10_000_000
    assert data["levels"] == [
        {
            "finest": 0,
            "row": [0, 0, 0],
            "start": [0, 1000, 1000],
            "duration": [1000, 1001, 1002],
            "name": [0, 0, 0],
            "count": [1, 1, 1],
            "self": [1000, 999, 998],
            "note": [-1, -1, -1],
        }
    ]
    assert data["names"] == [["op", "Host compute", "MatMul", "op"]]
    assert data["ribbons"][0]["end"] == [2_500_000, 10_000_000]
    assert data["memory"] == [{"title": "cpu", "times": [0, 5], "values": [10, 20]}]


def test_a_picture_that_is_too_large_loses_its_finest_level() -> None:
    rng = np.random.default_rng(1)
    large = replace(blocks(200_000), self_ns=rng.integers(0, 1 << 40, 200_000))
    small = blocks(100, finest_ns=1000)
    data = picture_data(picture(small, large))
    assert len(data["packed"]) <= MOST_BYTES
    assert [level["finest"] for level in unpacked(data)["levels"]] == [1000]
    assert len(unpacked(picture_data(picture(small, blocks(20_000))))["levels"]) == 2


def test_names_that_no_level_shows_do_not_travel() -> None:
    shown = replace(blocks(4, names=2), name=np.array([3, 3, 1, 1], np.int32))
    data = unpacked(picture_data(picture(shown, names=("a", "b", "c", "d"))))
    assert [name for name, *_ in data["names"]] == ["b", "d"]
    assert data["levels"][0]["name"] == [1, 1, 0, 0]


def test_words_and_rows_for_those_who_do_not_see_it() -> None:
    made = picture(blocks(3), remarks=("9 lanes are not drawn.",))
    assert picture_words(made) == "Lanes: Program (1 lane). Memory in use: cpu. 9 lanes are not drawn."
    assert picture_rows(made) == [("Host compute", "7.50 ms", "75.0%"), ("Input", "2.50 ms", "25.0%")]


def report(*pictures: StepPicture) -> Report:
    lead = Section("diagnosis", "Diagnosis", findings=(Finding("input_wait", "problem", "Waits."),), is_lead=True)
    return Report({}, {}, (lead, Section("timeline", "Timeline", charts=pictures)))


def test_a_cause_leads_to_the_picture_in_which_it_costs_most() -> None:
    cheap = picture(blocks(3), places={"input_wait": (0, 2, 3), "compilation": (0, 9, 9)})
    dear = picture(blocks(3), places={"input_wait": (0, 2_500_000, 2_500_000)})
    page = render_page(report(cheap, dear), RenderOptions())
    assert 'data-picture="chart-1" data-from="0" data-to="2500000"' in page
    assert "Show it in a step: the longest stretch of Input</a>" in page
    assert page.count('class="place"') == 1, "no finding has the other code"


def test_pages_are_the_same_each_time_and_other_formats_say_where_it_is() -> None:
    made = report(picture(blocks(50)))
    assert render_page(made, RenderOptions()) == render_page(made, RenderOptions())
    for form in ("table", "markdown"):
        assert "Only a page draws it: -o report.html." in render(made, form, RenderOptions(view="whole"))


def test_hostile_names_stay_in_the_data() -> None:
    evil = "</script><img src=x onerror=alert(1)>\x1b[31m"
    made = picture(blocks(3), names=(evil,), title=evil)
    page = render_page(report(made), RenderOptions())
    assert "<img" not in page.partition("<script>")[0]
    assert "\x1b" not in json.dumps(unpacked(picture_data(made)), ensure_ascii=False)
