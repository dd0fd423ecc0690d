"""Measure the pictures of steps: what they add to a page, and whether they move at 60 frames a second.

    python benchmarks/picture.py [--cache DIR] [--trace FILE] [--rounds N]

The page of a trace of over 100 MB is written with and without the section timeline, in turn, each in a process of its
own; the median counts. Then a picture of 20,000 blocks, all of them in sight, is moved in Chromium for some seconds,
and Chromium's own tracing tells how many frames it drew and how long the script took for each. Exits with 1 if a bar
is missed. The bars are for two cores and nothing else on the machine; a browser without a screen draws at 60 frames a
second at most, too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench import FULL_STEPS, Bar, bar_line, captured, default_cache, say, seconds, trace_file

BLOCKS, ROWS, SECONDS = 20_000, 40, 3.0
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
WITHOUT = """
import sys
from tfperf import load
from tfperf.report.render import render, write
from pathlib import Path
write(render(load(sys.argv[1]).report(), "html"), Path(sys.argv[2]), force=True)
"""
WITH = WITHOUT.replace("load(sys.argv[1])", "load(sys.argv[1], sections=section_names())").replace(
    "from pathlib", "from tfperf.analysis.registry import section_names\nfrom pathlib"
)
MOVE = """(seconds) => new Promise((done) => {
  const [picture] = pictures;
  const begin = performance.now();
  let frames = 0;
  const move = (now) => {
    const share = (frames % 60) / 60;
    picture.show(share * 1e6, share * 1e6 + picture.data.duration - 1e6);
    frames += 1;
    if (now < begin + 1000 * seconds) requestAnimationFrame(move);
    else done([frames, (performance.now() - begin) / 1000, picture.level.row.length]);
  };
  requestAnimationFrame(move);
})"""


def large_picture() -> Any:
    """Return a picture of so many blocks in rows of one lane, each wide enough to be seen at once."""
    from tfperf.report.model import BlockName, Blocks, Lane, LaneGroup, Links, StepPicture

    per_row, none, rows = BLOCKS // ROWS, np.zeros(0, np.int64), np.zeros(0, np.int32)
    duration = 20_000_000
    start = np.tile(np.arange(per_row) * (duration // per_row), ROWS)
    blocks = Blocks(
        finest_ns=0,
        row=np.repeat(np.arange(ROWS, dtype=np.int32), per_row),
        start_ns=start,
        duration_ns=np.full(BLOCKS, duration // per_row * 3 // 4),
        name=(np.arange(BLOCKS) % 9).astype(np.int32),
        count=np.ones(BLOCKS, np.int64),
        self_ns=np.full(BLOCKS, 100),
        note=np.full(BLOCKS, -1, np.int32),
    )
    kinds = (
        "Input",
        "Host compute",
        "Device compute",
        "Output",
        "Compilation",
        "Call",
        "Python",
        "Kernel launch",
        "Host to device",
    )
    lane = Lane(title="t", rows=ROWS, busy_percent=75.0)
    return StepPicture(
        title="A step of 20,000 blocks",
        host="vm",
        step=0,
        duration_ns=duration,
        categories={},
        ribbons=(),
        groups=(LaneGroup(title="Program", lanes=(lane,), is_open=True, load=(75,)),),
        levels=(blocks,),
        names=tuple(BlockName(f"op{number}", kind) for number, kind in enumerate(kinds)),
        notes=(),
        links=Links(kinds=(), kind=none, from_row=rows, from_ns=none, to_row=rows, to_ns=none),
    )  # fmt: skip


def frames_of(page_file: Path) -> tuple[float, float]:
    """Move the picture in Chromium; return the frames a second and the mean time of the script for one, in ms."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if chromium is None:
        sys.exit("Chromium is not installed (Debian: chromium-headless-shell)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(page_file.as_uri() + "#section-timeline")
        page.wait_for_function("() => pictures.length === 1")
        session = page.context.new_cdp_session(page)
        events: list[dict[str, Any]] = []
        session.on("Tracing.dataCollected", lambda data: events.extend(data["value"]))
        page.evaluate(MOVE, 1.0)
        session.send(
            "Tracing.start",
            {"transferMode": "ReportEvents", "traceConfig": {"includedCategories": ["devtools.timeline"]}},
        )
        frames, moved_s, blocks = page.evaluate(MOVE, SECONDS)
        finished: list[Any] = []

        def finish(data: Any) -> None:
            finished.append(data)

        session.on("Tracing.tracingComplete", finish)
        session.send("Tracing.end")
        while not finished:
            page.wait_for_timeout(50)
        browser.close()
    if blocks != BLOCKS:
        sys.exit(f"{blocks} blocks were drawn, not {BLOCKS}")
    script_ms = sum(event.get("dur", 0) for event in events if event["name"] == "FireAnimationFrame") / 1000
    return frames / moved_s, script_ms / frames


def main() -> int:
    """Measure, print the figures and the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the trace (%(default)s)")
    parser.add_argument("--trace", type=Path, help="measure this trace instead")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    from tfperf.report.model import Report, Section
    from tfperf.report.render import render

    trace: Path = arguments.trace or trace_file(captured(arguments.cache.resolve(), FULL_STEPS))
    print(f"{trace.stat().st_size / 1e6:.0f} MB; load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory(prefix="tfperf-picture-") as name:
        folder = Path(name)
        pages = {"without": (WITHOUT, folder / "without.html"), "with": (WITH, folder / "with.html")}
        taken: dict[str, list[float]] = {way: [] for way in pages}
        for number in range(arguments.rounds):
            for way, (script, page) in pages.items():
                say(f"round {number + 1} of {arguments.rounds}: the page {way} pictures")
                taken[way].append(seconds([sys.executable, "-c", script, str(trace), str(page)]))
        sizes = {way: page.stat().st_size for way, (_, page) in pages.items()}
        moving = folder / "moving.html"
        moving.write_text(render(Report({}, {}, (Section("timeline", "Timeline", charts=(large_picture(),)),)), "html"))
        rate, script_ms = frames_of(moving)
    wall = {way: statistics.median(each) for way, each in taken.items()}
    for way, wall_s in wall.items():
        print(f"page {way:8} {wall_s:6.2f} s {sizes[way] / 1e6:6.2f} MB")
    print(f"{BLOCKS:,} blocks: {rate:.1f} frames a second, {script_ms:.1f} ms of script for each\n")
    bars = [
        Bar("of the time of the page without pictures", wall["with"] / wall["without"], 1.25),
        Bar("size of the page with pictures", sizes["with"] / 1e6, 3, " MB"),
        Bar(f"frames a second with {BLOCKS:,} blocks in sight", rate, 59, at_least=True),
    ]
    print(*map(bar_line, bars), sep="\n")
    return 0 if all(bar.held for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
