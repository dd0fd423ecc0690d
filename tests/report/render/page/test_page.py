"""The HTML page as text: what is in it, what is escaped, what it may load, how large it is.

tests/browser looks at it as a browser does.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from functools import cache
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import jinja2
import numpy as np
import pytest
from builders import known
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup
from msgspec.structs import replace
from places import ROOT
from real_runs import analysis_of
from report_builders import HOSTILE, ops_table, report_of

from tfperf.report.model import BarChart, Fact, Finding, Report, Section, Sparkline, Table
from tfperf.report.render import render
from tfperf.report.render.page import LIMIT_BYTES, environment, page_parts
from tfperf.report.render.values import typeset, without_commands
from tfperf.sections.diagnosis.catalogue import ADVICE, CAUSE_MEANINGS

ECHARTS_SHA256 = "61f13280aba3161f77fc801bf5f9c786f55f10432153a0683fc5cc0700b013d5"


def page_of(*parts: Section) -> str:
    return render(Report({"run": "night"}, {}, parts), "html")


def tables_in(page: str) -> list[dict[str, Any]]:
    """Return the data of the tables that the page carries."""
    packed = re.findall(r'class="table-data">([^<]*)<', page)
    return [json.loads(gzip.decompress(base64.b64decode(data))) for data in packed]


class Tags(HTMLParser):
    """Collects what a browser would make of the page, its scripts left out."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        first, *others = page.split("<script>")
        self.feed(first + "".join(f"<script></script>{part.partition('</script>')[2]}" for part in others))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} closes something else"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


def test_the_verdict_is_said_in_words_before_all_else() -> None:
    finding = Finding("input", "problem", "Waits for input.", "prefetch")
    evidence = Finding("slow", "problem", "Slow.", causes=("input_wait",), cause_titles=("Waiting for input",))
    first = Section(
        "overview", "Overview", findings=(finding, evidence), facts=(Fact("step", "Step time", 15.94, "ms", "± 1 ms"),)
    )
    page = page_of(first, Section("gaps", "Gaps", notes=("No device.",)))
    main = page[page.index("<main") :]
    assert main.index('class="verdict problem"') < main.index("Step time")
    assert '<p class="severity">Problem</p><p>Waits for input.</p>' in main
    assert "<b>Try:</b> prefetch" in main
    assert "<b>See:</b> Waiting for input in -s diagnosis" in main
    assert "<dt>Step time</dt><dd>15.9 ms <small>± 1 ms</small></dd>" in main
    badge = '<span class="badge">1<span class="visually-hidden"> problem</span></span>'
    assert f'<a href="#section-overview">Overview {badge}</a>' in page
    assert "<title>night: tfperf report</title>" in page


def test_the_policy_allows_the_scripts_and_the_style_of_the_page_and_nothing_else() -> None:
    page = page_of(Section("s", "S", tables=(ops_table(["a"], [1.0]),)))
    tags = Tags(page)
    scripts = [attributes for tag, attributes in tags.tags if tag == "script"]
    assert [script for script in scripts if script.get("src")] == []
    assert [script.get("type") for script in scripts] == ["text/plain", "application/json", None, None]
    policy = known(next(meta["content"] for tag, meta in tags.tags if tag == "meta" and "http-equiv" in meta))
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert {key: allowed[key] for key in ("default-src", "base-uri", "form-action")} == dict.fromkeys(
        ("default-src", "base-uri", "form-action"), "'none'"
    )
    run = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    style = re.findall(r"<style>(.*?)</style>", page, flags=re.DOTALL)
    assert allowed["script-src"].split() == [hash_of(text) for text in run]
    assert allowed["style-src"].split() == [hash_of(text) for text in style]
    assert "unsafe" not in policy


def hash_of(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_no_markup_has_a_style_a_handler_or_an_address() -> None:
    page = page_of(
        Section("s", "S", findings=(Finding("f", "hint", "x"),), tables=(ops_table(["a"] * 20, [1.0] * 20),))
    )
    for tag, attributes in Tags(page).tags:
        assert not [name for name in attributes if name == "style" or name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith("#")
        assert "src" not in attributes
    sources = "".join(
        file.read_text("utf-8")
        for file in (files("tfperf.report.render.page") / "static").iterdir()
        if file.name.endswith((".css", ".js")) and not file.name.startswith("echarts")
    )
    assert "openTable" in sources
    for address in ("http", "innerHTML", "url("):
        assert address not in sources


def test_the_chart_library_is_the_published_one_with_its_licences() -> None:
    folder = files("tfperf.report.render.page") / "static"
    assert hashlib.sha256(folder.joinpath("echarts.common.min.js").read_bytes()).hexdigest() == ECHARTS_SHA256
    assert "Apache License" in folder.joinpath("echarts.LICENSE").read_text("utf-8")
    assert "Apache Software Foundation" in folder.joinpath("echarts.NOTICE").read_text("utf-8")
    assert "Mike Bostock" in folder.joinpath("echarts.LICENSE-d3").read_text("utf-8")


@pytest.mark.parametrize("name", [*filter(None, HOSTILE)], ids=lambda name: ascii(name[:12]))
def test_a_hostile_name_adds_no_tag_anywhere(name: str) -> None:
    page = render(report_of(name), "html")
    assert [tag for tag, _ in Tags(page).tags] == tags_of("name")
    assert len(page.encode()) < LIMIT_BYTES
    main = page.partition("<main")[2].partition('<script type="application/json"')[0]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\ud800-\udfff]", main)


@given(st.text(st.characters(), min_size=1))
@settings(max_examples=min(30, settings().max_examples))
def test_any_name_keeps_the_tags_of_the_page(name: str) -> None:
    assert tags_of(name) == tags_of("name")


@cache
def tags_of(name: str) -> list[str]:
    """Return the tags of the page that has this text everywhere."""
    return [tag for tag, _ in Tags(render(report_of(name), "html")).tags]


@pytest.mark.parametrize("name", ["##[set-env name=PATH]/tmp", "a ##vso[task.setvariable]y"])
def test_a_page_in_the_log_of_a_ci_job_holds_no_command_and_shows_the_same(name: str) -> None:
    page = page_of(
        Section("a", "A", charts=(BarChart("bars", "%", (name,), (1.0,)),), tables=(ops_table([name], [1]),))
    )
    assert without_commands(page) == page
    charts = re.search(r'id="charts">(.*?)</script>', page)
    assert charts
    assert json.loads(charts[1])[0]["labels"] == [name]
    assert f"<td>{name.replace('##', '&#35;#')}</td>" in page


def test_the_first_rows_need_no_script() -> None:
    page = page_of(Section("s", "S", tables=(ops_table([f"op{n}" for n in range(12)], list(range(12))),)))
    assert re.findall(r"<td>(op\d+)</td>", page) == [f"op{n}" for n in range(10)]
    assert "The first 10 of 12 rows; with JavaScript, the page shows all." in page
    assert "No rows." in page_of(Section("s", "S", tables=(ops_table([], []),)))


def test_what_does_not_fit_is_cut_from_the_largest_table_and_said() -> None:
    # Chinese letters by chance: long names that do not get shorter when they are packed.
    letters = np.random.default_rng(5).integers(0x4E00, 0x9FA0, (5_000, 390))
    words = ["".join(map(chr, row)) for row in letters.tolist()]
    small, large = ops_table(words[:50], range(50)), ops_table(words, range(5_000), range(5_000))
    page = page_of(Section("s", "S", tables=(small, large)))
    assert len(page.encode()) <= LIMIT_BYTES
    first, second = tables_in(page)
    kept = len(second["columns"][0]["places"])
    assert len(first["columns"][0]["places"]) == 50
    assert 3_000 < kept < 5_000
    assert f"This page is limited to 5 MB and holds {kept:,} of 5,000 rows; tfperf export-csv writes all." in page
    assert "holds the main columns only" in page
    assert [column["title"] for column in second["columns"]] == ["Name", "Self (ms)"]


def test_sections_that_leave_no_room_are_named() -> None:
    sections = [Section(f"s{n}", "S", notes=("x" * 2_000,) * 200) for n in range(15)]
    page = page_of(*sections)
    assert len(page.encode()) <= LIMIT_BYTES
    note = known(re.search(r"Sections omitted because the HTML report is limited to 5 MB: (\d+) \(s(\d+),", page))
    assert int(note[1]) + int(note[2]) == 15


LINE = Sparkline(title="Memory", times=(0.0, 1.0), values=(1.0, 2.0), low=0.0, high=2.0)
BARS = BarChart("Types", "%", ("a", "b"), (60.0, 40.0))


def ops(count: int) -> Table:
    table = ops_table([f"op{row}" for row in range(count)], range(1, count + 1))
    return replace(table, total_rows=99, bar_key="self_ms")


def test_ids_count_through_the_page() -> None:
    sections = Section("a", "A", charts=(LINE,), tables=(ops(2), ops(2))), Section("b", "B", tables=(ops(3),))
    first, second = page_parts(sections)
    assert [chart.id for chart in first.all_charts()] == ["chart-0", "chart-1", "chart-2"]
    assert [table.id for table in first.tables] == ["table-0", "table-1"]
    assert (second.id, second.tables[0].id) == ("section-b", "table-2")
    assert [chart.id for chart in second.all_charts()] == ["chart-3"]


def test_odd_and_repeated_names_get_numbers_as_anchors() -> None:
    parts = page_parts([Section(name, "T") for name in ("tfdata", "ops", "ops", "<b>", "", "host_threads", "x" * 99)])
    assert [part.id.removeprefix("section-") for part in parts] == ["tfdata", "1", "2", "3", "4", "host_threads", "6"]


def test_the_first_sections_are_open_and_a_folded_one_says_its_first_finding() -> None:
    page = page_of(*(Section(name, name, findings=(Finding("f", "hint", f"of {name}"),)) for name in "abcd"))
    assert re.findall(r'<details class="section"( open)?>', page) == [" open", " open", "", ""]
    assert re.findall(r'<span class="gist">(.*?)</span>', page) == ["of b", "of c", "of d"]


def test_hints_at_sections_are_links_to_those_on_the_page() -> None:
    finding = Finding("f", "hint", "see <i> -s tfdata or -s gone", "-s tfdata --top 9; -s overview.")
    evidence = Finding("g", "hint", "Slow.", causes=("input",), cause_titles=("input",))
    notes = ("analyze PATH -s tfdata", "-s tfdatax")
    page = page_of(
        Section("overview", "Over & all", findings=(finding, evidence), notes=notes), Section("tfdata", "tf.data")
    )
    main = page.partition("<main")[2].partition('<script type="application/json"')[0]
    assert 'see &lt;i&gt; <a href="#section-tfdata">tf.data</a> or -s gone' in main
    assert '-s tfdata --top 9; <a href="#section-overview">Over &amp; all</a>.' in main
    assert "input in -s diagnosis" in main
    assert "<li>-s tfdatax</li>" in main
    assert '<li><a href="#section-tfdata">tf.data</a></li>' in main


def test_a_fact_that_is_a_sentence_is_no_big_number() -> None:
    facts = (Fact("a", "A", 1.5, "ms"), Fact("b", "B", "markers"), Fact("c", "C", "96.6 ms compute + 31.8 ms copies"))
    page = page_of(Section("s", "S", facts=facts))
    found = re.findall(r'<div( class="\w+")?><dt>([ABC])</dt>', page)
    assert found == [("", "A"), (' class="word"', "B"), (' class="sentence"', "C")]


def test_a_section_with_bars_draws_none_for_its_tables() -> None:
    (section,) = page_parts([Section("a", "A", charts=(BARS,), tables=(ops(2),))])
    assert [chart.title for chart in section.all_charts()] == ["Types"]


def test_bars_have_their_numbers_beside_them() -> None:
    (section,) = page_parts([Section("a", "A", charts=(LINE, BARS))])
    assert [chart.has_numbers for chart in section.charts] == [False, True]


def test_a_table_has_its_first_rows_and_says_how_many_there_are() -> None:
    (section,) = page_parts([Section("a", "A", tables=(ops(12),))])
    assert [row[0] for row in section.tables[0].first_rows.rows] == [f"op{row}" for row in range(10)]
    assert section.tables[0].cut_note == "showing 12 of 99; --top 99 shows all"


def filled(source: str, **values: object) -> str:
    """Return a template's text with values, as the templates of the page are filled."""
    return environment().from_string(source).render(values)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("\"' onclick='x", "&#34;&#39; onclick=&#39;x"),
        ("a\x1b[31m\n", "a\\x1b[31m\\n"),
        ("x" * 3_000, "x" * 666 + "…" + "x" * 1333),
        ("{{ 1 + 1 }}", "{{ 1 + 1 }}"),
    ],
)
def test_a_text_is_shown_as_it_is_and_never_as_markup(text: str, shown: str) -> None:
    assert filled('<p title="{{ text }}">{{ text }}</p>', text=text) == f'<p title="{shown}">{shown}</p>'


@given(st.text(st.characters()))
def test_no_text_adds_a_tag(text: str) -> None:
    assert filled("{{ text }}|{{ text | name }}|{{ text | cell }}", text=text).isprintable()
    assert not re.search("[<>\"']", filled("{{ text }}", text=text))


def test_names_and_cells_are_cut_earlier() -> None:
    assert len(filled("{{ text | name }}", text="x" * 3_000)) == 500
    assert len(filled("{{ text | cell }}", text="x" * 3_000)) == 120


def test_markup_and_numbers_stay() -> None:
    assert filled("{{ data }} {{ 12 }} {{ 1234 | grouped }}", data=Markup("<b>" * 1_000)) == "<b>" * 1_000 + " 12 1,234"


def test_a_value_that_nobody_gave_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        filled("{{ missing }}")


def test_no_template_switches_escaping_off() -> None:
    sources = [file.read_text("utf-8") for file in (files("tfperf.report.render.page") / "templates").iterdir()]
    assert len(sources) == 6
    assert not [source for source in sources if re.search(r"\|\s*safe|autoescape|Markup", source)]


def test_facts_and_findings_that_are_too_many_are_counted() -> None:
    imports = '{% from "facts.html" import facts_list %}{% from "section.html" import findings_list %}'
    source = imports + '{{ facts_list(facts, "facts") }}{{ findings_list(findings) }}'
    text = filled(source, facts=[Fact("a", "A", 1)] * 1_450, findings=[Finding("a", "hint", "x")] * 201)
    assert text.count("<dt>A</dt>") == text.count("<p>x</p>") == 200
    assert "Omitted: 1,250 more; JSON has them." in text
    assert ">Omitted: 1 more; JSON" in text


MACHINE_WORDS = re.compile(r"\d us\b|\(us\)|(?<= )->(?= )|\bAttribution\b|-s [a-z]+_?[a-z]*(?! --)</a>|PATH</a>")


@pytest.mark.parametrize("name", ["input_bound", "retracing"])
def test_a_page_has_no_machine_words(name: str) -> None:
    """No codes of causes, options or signs of a terminal; links are named by sections."""
    report = analysis_of(ROOT / "sample_traces" / name).report()
    page = render(report, "html")
    main = re.sub(r"<(script|style)\b.*?</\1>", "", page[page.index("<header") :], flags=re.DOTALL)
    assert not MACHINE_WORDS.findall(main)
    text = re.sub(r"<[^>]*>", " ", main)
    codes = [*CAUSE_MEANINGS, *ADVICE]
    found = re.findall(rf"(?<![\w.])(?:{'|'.join(code for code in codes if '_' in code)})(?![\w(=.])", text)
    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("shorter than 10 us -> step 4 ms", "shorter than 10 µs → step 4 ms"),
        ("Mean (us)", "Mean (µs)"),
        ("einsum bsd,de->bse of us", "einsum bsd,de->bse of us"),
    ],
)
def test_prose_is_typeset(text: str, expected: str) -> None:
    assert typeset(text) == expected


def test_a_badge_counts_the_problems_that_only_this_section_has() -> None:
    causes = (Finding("wait", "problem", "Waits."), Finding("launch", "hint", "Launches."))
    slow = [Finding(f"slow{at}", "problem", "Slow.", causes=("wait", "launch")) for at in range(4)]
    sections = (
        Section("diagnosis", "Diagnosis", findings=causes, is_lead=True),
        Section("tfdata", "tf.data", findings=(*slow, Finding("own", "problem", "Broken."))),
        Section("kernels", "Kernels", findings=(Finding("small", "hint", "Small.", causes=("launch",)),)),
    )
    page = page_of(*sections)
    assert re.findall(r'class="badge">(\d+)', page) == ["1", "1"]
