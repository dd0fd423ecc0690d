"""Which parts of a profile a flaw touches, and that the page of the diagnosis says the same."""

from __future__ import annotations

import re
from typing import get_args

from places import ROOT

from tfperf.trace.flaw import EVERYTHING, TOUCHES, Flaw, Part


def test_a_flaw_touches_what_rests_on_the_same_part() -> None:
    flaw = Flaw("fetches_stop", "no call of tf.data is in the last 4 of 10 steps", "doubtful")
    assert flaw.touches(frozenset({"steps", "input"}))
    assert not flaw.touches(frozenset({"steps", "device"}))
    assert not flaw.touches(frozenset())


def test_a_flaw_that_nothing_is_declared_about_touches_everything() -> None:
    assert all(Flaw("new", "something is odd").touches(frozenset({part})) for part in EVERYTHING)


def test_every_flaw_is_declared_and_on_the_page_with_what_it_touches() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/tfperf/trace").glob("*.py"))
    assert {*re.findall(r"Flaw\(\s*\"(\w+)\"", source)} <= TOUCHES.keys()
    page = (ROOT / "docs/diagnosis.md").read_text(encoding="utf-8").split("## Damaged profiles")[1]
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    on_page = {code: row[-1] for row in rows for code in re.findall(r"`(\w+)`", row[0])}
    assert on_page == {code: _words(code) for code in TOUCHES if code != "unsure_steps"}


def _words(code: str) -> str:
    parts = TOUCHES[code]
    return "everything" if parts == EVERYTHING else ", ".join(part for part in get_args(Part) if part in parts)
