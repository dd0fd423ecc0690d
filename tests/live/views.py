"""Workers at one moment, made for tests of what is shown of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from places import ROOT

from tfperf.capture.address import Address
from tfperf.live.board import Point, TopRequest, WorkerView
from tfperf.live.sample import CategoryShare, FirstCause, Measured, MemoryUse, RankedTime, Sample
from tfperf.live.screen import Frame
from tfperf.live.verdict import judged
from tfperf.report.model import Segment, SegmentBar

NOW_S = 1_800_000_000.0
EVIL = "</script>\x1b]0;title\x07\x1b[31m\x9b2J\r\u202e\u2028\x00##[command]\n::error::\udc80 ok"
"""What a terminal, a browser or a CI runner would act on."""
WIDTHS = (60, 80, 100, 120, 160, 200)


BAR = SegmentBar(
    title="",
    short_title="step",
    unit="ms",
    total=20.0,
    segments=(
        Segment(role="compute", title="Computing", value=6.8, share="34.0%"),
        Segment(role="input", title="Waiting for input", value=13.2, share="66.0%", saved=12.0, code="input_wait"),
    ),
    spread=(18.0, 19.0, 30.0),
    values=(19.0, 18.0, 31.0),
)


def measured(**fields: Any) -> Measured:
    """Return what a job says that waits for input for two thirds of its step."""
    shares = {"input": 66.0, "host_compute": 24.0, "all_others": 10.0, "device_compute": None}
    known: dict[str, Any] = {
        "step_ms": 20.0,
        "median_step_ms": 19.0,
        "slowest_step_ms": 31.0,
        "step_count": 24,
        "step_kind": "train",
        "steps_per_second": 50.0,
        "examples_per_second": 1600.0,
        "batch_size": 32,
        "categories": tuple(
            CategoryShare(key, key.replace("_", " ").capitalize(), share) for key, share in shares.items()
        ),
        "bar": BAR,
        "input_percent": 66.0,
        "input_cost_percent": (66.0, 78.4),
        "device_busy_percent": 12.5,
        "memory": MemoryUse("GPU_0_bfc", 3_000_000_000, 4_000_000_000),
        "headline": "Waiting for input takes 66.0% of the step: the blocking tf.data stage is Map.",
        "causes": (
            FirstCause(
                "input_wait",
                "Waiting for input",
                "Waiting for input takes 66.0% of the step: the blocking tf.data stage is Map.",
                "add .cache() after map()",
                60.0,
            ),
        ),
        "ranked_are": "host ops",
        "ranked": tuple(
            RankedTime(f"layer_{place}/MatMul", "MatMul", 50.0 / place, 9.0 / place) for place in range(1, 9)
        ),
    }
    return Measured(**{**known, **fields})


def sample(of: Measured | None, **fields: Any) -> Sample:
    known: dict[str, Any] = {
        "number": 1,
        "time_s": NOW_S - 2,
        "duration_s": 0.5,
        "answer_s": 0.6,
        "size_bytes": 123_000,
    }
    return Sample(**{**known, "measured": of, "profiled_percent": 10.0, **fields})


def worker(port: int = 6009, last: Sample | None = None, **fields: Any) -> WorkerView:
    kept = (last,) if last is not None and last.is_known else ()
    usual = {
        "address": Address("w0", port),
        "known": last if last is not None and last.is_known else None,
        "history": (Point(NOW_S - 60, 10.0, "train"), Point(NOW_S - 30), Point(NOW_S - 2, 20.0, "train")),
        "kept": kept,
        "verdict": judged(None, kept) if kept else None,
        "samples": 3,
    }
    return WorkerView(last=last, **{**usual, **fields})


def gone(port: int = 6009) -> WorkerView:
    message = f"no server listens on w0:{port}; check the port"
    return worker(port, sample(None, reason="not_listening", message=message), failures=4)


def request(*workers: WorkerView) -> TopRequest:
    return TopRequest(workers=[each.address for each in workers])


def frame(width: int = 80, *, interactive: bool = True) -> Frame:
    return Frame(width, NOW_S, interactive)


def compare_list(compare_gold: Callable[[Path, str], None], marker: str, *rows: tuple[str, ...]) -> None:
    """Compare a table in docs/top.md; its titles are the first row."""
    page = ROOT / "docs" / "top.md"
    before, start, rest = page.read_text(encoding="utf-8").partition(f"<!-- {marker} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    first, *others = (f"| {' | '.join(row)} |\n" for row in rows)
    compare_gold(page, f"{before}{start}{first}{'|---' * len(rows[0])}|\n{''.join(others)}{end}{after}")
