"""One rule of units and digits: decimal units of size, three digits, one behind the point in shares."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from builders import logdir_of
from places import ROOT
from synthetic_gpu import synthetic_gpu

import tfperf
from tfperf.report.model import Report
from tfperf.report.render import RenderOptions, render

SAMPLES = ("custom_loop", "input_bound", "input_fixed", "retracing", "synthetic_gpu")
PEOPLE = ("table", "markdown", "html")

_BINARY_UNIT = re.compile(r"\d ?[KMGTP]iB\b")
_RAW_SIZE = re.compile(r"\b\d[\d,]{3,} ?(?:bytes\b|B\b)")
_NUMBER = re.compile(r"(?<![\w.,/:-])(\d[\d,]*)\.(\d+)(?![\w]|\.\d)(%?)")
_TAG = re.compile(r"<[^>]*>")


@cache
def report_of(sample: str, folder: Path) -> Report:
    return tfperf.load(folder / sample).report()


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sample traces and one of two GPUs."""
    folder = tmp_path_factory.mktemp("digits")
    for sample in SAMPLES[:-1]:
        (folder / sample).symlink_to(ROOT / "sample_traces" / sample)
    logdir_of(folder / "made", synthetic_gpu=synthetic_gpu())
    (folder / SAMPLES[-1]).symlink_to(folder / "made" / "logs")
    return folder


def texts(report: Report) -> Iterator[str]:
    """Yield the report as people read it: each format, in brief and in full; of the page what is no script."""
    for format_name in PEOPLE:
        for view in ("answer", "whole", "sections"):
            text = render(report, format_name, RenderOptions(width=200, view=view))
            if format_name == "html":
                text = _TAG.sub(" ", text.partition("<main")[2].partition('<script type="application/json"')[0])
                text = re.sub(r"[A-Za-z0-9+/=]{200,}", " ", text)
            yield text


def offences(text: str) -> list[str]:
    """Return what breaks the rule: sizes in other units, numbers with more digits than it allows."""
    found = [match[0] for rule in (_BINARY_UNIT, _RAW_SIZE) for match in rule.finditer(text)]
    for match in _NUMBER.finditer(text):
        whole, fraction = match[1].replace(",", ""), match[2]
        is_share = len(fraction) == 1 and float(match[0].rstrip("%").replace(",", "")) <= 100
        significant = (whole + fraction).lstrip("0")
        if len(significant) > 3 and not is_share:
            found.append(match[0])
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_number_follows_the_rule(sample: str, traces: Path) -> None:
    for text in texts(report_of(sample, traces)):
        assert len(text) > 200
        assert offences(text) == []
