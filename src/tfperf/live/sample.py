"""One sample of a worker: the figures of its trace and their cost, or why there is none.

`measure` runs in its own low-priority process: the job may run here, traces may be malicious, the screen must not wait.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.errors import CaptureError, Reason, TfperfError, TraceFormatError
from tfperf.base.units import without_middle
from tfperf.capture.address import Address
from tfperf.formats.wire.trace_file import SUFFIX
from tfperf.report.model import SegmentBar

if TYPE_CHECKING:
    from tfperf.analysis.load import Analysis
    from tfperf.trace.steps.breakdown import Breakdown

GONE: frozenset[str] = frozenset({"died", "not_listening", "unreachable", "unknown_host"})
"""Reasons for a server that no longer runs, or does not run yet."""


class Sample(Struct, frozen=True, kw_only=True):
    """The result of a request to a worker. Without a trace, `measured` is None, and `reason` and `message` say why."""

    number: int
    """Counts the answers of the worker, from 1."""
    time_s: float
    """Time of the request, in seconds since 1970."""
    duration_s: float
    """Requested duration of the recording."""
    answer_s: float
    """Time from the request to the start of the reply; 0 without a reply."""
    size_bytes: int = 0
    measured: Measured | None = None
    reason: Reason | Literal[""] = ""
    message: str = ""
    slowdown_percent: float | None = None
    """Slowdown of steps by profiling in the latest samples; None: unknown."""
    profiled_percent: float = 0.0
    """Share of the time since the first sample in which the worker recorded."""

    @property
    def is_gone(self) -> bool:
        """Return whether no server answers there."""
        return self.reason in GONE

    @property
    def is_known(self) -> bool:
        """Return whether the step time is known."""
        return self.measured is not None and self.measured.step_ms is not None

    @property
    def step_kind(self) -> str:
        """Return the kind of its steps, such as `train`; empty without steps."""
        return self.measured.step_kind if self.measured is not None else ""


_WHAT_TO_DO = {
    "bad_reply": "retrying",
    "busy": "retrying",
    "died": "retrying; check whether the job ended or crashed",
    "too_large": "use a shorter --duration",
    "timeout": "retrying",
    "refused": "",
}
"""Advice in the live view, in place of the options of a capture."""


def described(error: TfperfError | None, address: Address) -> tuple[Reason | Literal[""], str]:
    """Return the reason and the message of an error, in terms of the live view; empty without an error."""
    if error is None:
        return "", ""
    if not isinstance(error, CaptureError):  # The trace in the reply cannot be read.
        return "bad_reply", f"{address} sent a damaged trace: {str(error).partition('; ')[0]}"
    found, _, hint = str(error).partition("; ")
    advice = _WHAT_TO_DO.get(error.reason, hint)
    return error.reason, f"{found}; {advice}" if advice else found


_RANKED_TABLES = (("kernels_by_name", "kernel", "percent"), ("device_op_patterns", "op_name", "self_percent"))
_HOST_TABLES = (("host_op_patterns", "op_name", "self_percent"), ("host_ops", "op_name", "self_percent"))
_MOST_RANKED, _MOST_VALUES = 40, 200
_LONGEST_TEXT = 2000
_NS_PER_PS = 1e-3
_PRIORITY = 10


class RankedTime(Struct, frozen=True):
    """A kernel or an op, and its share of the total time of all of them."""

    name: str
    type: str
    percent: float
    total_ms: float
    """Time in the sample; for ops the self time, summed over threads and devices."""


class NumberedSteps(Struct, frozen=True):
    """Steps numbered by the program: start of the first and the last step of a sample, on the job's clock."""

    first: int
    last: int
    first_ns: int
    last_ns: int


class MemoryUse(Struct, frozen=True):
    """The allocator with the highest use; one of a device, if there is any."""

    allocator: str
    peak_bytes: int
    capacity_bytes: int | None

    @property
    def used_percent(self) -> float | None:
        """Return the peak use in the sample; None if the capacity is unknown."""
        return 100.0 * self.peak_bytes / self.capacity_bytes if self.capacity_bytes else None


class CategoryShare(Struct, frozen=True):
    """The share of the step in a category; None: the trace does not contain it."""

    key: str
    title: str
    percent: float | None


class FirstCause(Struct, frozen=True):
    """A cause of the diagnosis; `gain_percent` is the share of the step that a fix likely saves."""

    code: str
    title: str
    text: str
    action: str
    gain_percent: float


class Measured(Struct, frozen=True, kw_only=True):
    """The figures of one sample; None is unknown. `why` is the reason for a missing step time."""

    step_ms: float | None = None
    """Mean of whole steps."""
    median_step_ms: float | None = None
    slowest_step_ms: float | None = None
    step_count: int = 0
    step_kind: str = ""
    steps_per_second: float | None = None
    examples_per_second: float | None = None
    batch_size: int | None = None
    categories: tuple[CategoryShare, ...] = ()
    """They add up to the step; empty without steps."""
    bar: SegmentBar | None = None
    """The step by cause; None if it is unknown."""
    input_percent: float | None = None
    input_cost_percent: tuple[float, float] | None = None
    device_busy_percent: float | None = None
    """Mean share of the step time in which devices with work compute or copy; waiting TPU cores count as idle."""
    memory: MemoryUse | None = None
    headline: str = ""
    causes: tuple[FirstCause, ...] = ()
    ranked_are: str = ""
    """Content of `ranked`: kernels, or ops of the device or of the host."""
    ranked: tuple[RankedTime, ...] = ()
    numbered: NumberedSteps | None = None
    why: str = ""
    cpu_s: float = 0.0
    """CPU time of the analysis."""


def measure(trace: bytes) -> Measured:
    """Analyze a serialized XSpace; raises TraceFormatError if it is invalid. No file stays on disk."""
    begin_s = time.process_time()
    with _file_of(trace) as path:
        try:
            measured = _measured(path)
        except TfperfError as error:  # Omit the path, because the file is temporary.
            raise TraceFormatError(str(error).replace(str(path), "its trace")) from error
    return replace(measured, cpu_s=time.process_time() - begin_s)


def write_page(trace: Path, page: Path) -> None:
    """Write the HTML report of a recorded sample, in place of an earlier one; raises TfperfError."""
    from tfperf.analysis.load import load
    from tfperf.report.render import render, write

    write(render(load(trace).report(), "html"), page, force=True)


@contextlib.contextmanager
def _file_of(trace: bytes) -> Iterator[Path]:
    """Yield a file with these bytes: in memory (Linux), or else a temporary one."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        with os.fdopen(os.memfd_create("tfperf-top"), "wb") as file:
            file.write(trace)
            file.flush()
            yield Path(f"/proc/self/fd/{file.fileno()}")
        return
    with tempfile.TemporaryDirectory(prefix="tfperf-top-") as folder:
        path = Path(folder) / f"sample{SUFFIX}"
        path.write_bytes(trace)
        yield path


def stay_in_the_background() -> None:
    """Reduce the priority of this process to a tenth of the CPU share of others, and discard its output.

    The lowest priority would get almost no CPU time next to a busy job. Output would damage the screen.
    """
    with contextlib.suppress(OSError, AttributeError):  # Windows does not have these priorities.
        os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), _PRIORITY))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _measured(path: Path) -> Measured:
    from tfperf.analysis.load import load
    from tfperf.judge.summarize import whole_steps

    analysis = load(path, sections=("diagnosis", "ops"))
    # Half a step in a short sample would look like a fast one.
    whole = whole_steps(analysis)
    figures = {**_of_steps(whole), **_of_devices(whole), **_of_diagnosis(whole)}
    if figures.get("step_ms") is None:
        steps = analysis["steps"].steps
        figures["why"] = f"the sample has no steps: {steps.explanation[:_LONGEST_TEXT]}"
        if len(steps):
            figures["why"] = "the sample has no whole step; use a longer --duration"
    ranked_are, ranked = _ranked(analysis)
    return Measured(**figures, ranked_are=ranked_are, ranked=ranked)


def _of_steps(whole: Analysis) -> dict[str, Any]:
    from tfperf.sections.batch import time_per_example_ms
    from tfperf.sections.overview.section import input_cost
    from tfperf.trace.steps.categories import CATEGORY_TITLES

    overview, breakdown = whole["overview"], whole["steps"]
    time = overview.step_time_ms
    if time is None or not time.average:
        return {}
    example_ms, cost = time_per_example_ms(whole), input_cost(whole)
    # Time between the steps of a device is in no step.
    has_rate = breakdown.steps.source != "device steps"
    return {
        "step_ms": time.average,
        "median_step_ms": time.median,
        "slowest_step_ms": time.maximum,
        "step_count": overview.averaged_count,
        "step_kind": overview.kind[:100],
        "steps_per_second": 1000.0 / time.average if has_rate else None,
        "examples_per_second": 1000.0 / example_ms if example_ms and has_rate else None,
        "batch_size": whole["batch"].size,
        "categories": tuple(
            CategoryShare(key, CATEGORY_TITLES[key], None if key in overview.unknown else overview.percent.get(key))
            for key in overview.categories
        ),
        "input_percent": overview.input_percent,
        "input_cost_percent": None if cost is None else (cost.low, cost.high),
        "numbered": _numbered(breakdown),
    }


def _of_devices(whole: Analysis) -> dict[str, Any]:
    from tfperf.trace.steps.breakdown import lacks_devices

    is_known = whole.has_device and not lacks_devices(whole["steps"])
    devices = whole["idle"].averaged if is_known else ()
    busy = [device.works_percent for device in devices if device.counted_window_ps]
    allocator = next(iter(whole["memory"].allocators), None)
    memory = allocator and MemoryUse(allocator.name[:100], allocator.peak_bytes, allocator.capacity_bytes)
    return {"device_busy_percent": sum(busy) / len(busy) if busy else None, "memory": memory}


def _of_diagnosis(whole: Analysis) -> dict[str, Any]:
    from tfperf.sections.diagnosis.diagnose import sentence_of
    from tfperf.sections.diagnosis.section import segment_bars

    diagnosis = whole["diagnosis"]
    causes = [
        FirstCause(
            cause.code,
            cause.title[:_LONGEST_TEXT],
            sentence_of(cause)[:_LONGEST_TEXT],
            cause.actions[0].text[:_LONGEST_TEXT] if cause.actions else "",
            100.0 * cause.gain,
        )
        for cause in diagnosis.causes
    ]
    bar = next(iter(segment_bars(whole)), None)
    if bar is not None:
        segments = tuple(replace(each, title=each.title[:_LONGEST_TEXT]) for each in bar.segments)
        bar = replace(bar, title="", segments=segments, values=bar.values[:_MOST_VALUES])
    return {"headline": diagnosis.headline[:_LONGEST_TEXT], "causes": tuple(causes[:5]), "bar": bar}


def _numbered(breakdown: Breakdown) -> NumberedSteps | None:
    """Return the steps of the sample if the program numbers them without a gap, and the clock is known."""
    steps, zero_ns = breakdown.steps, breakdown.clock_start_ns
    numbers, starts = steps.numbers.tolist(), steps.start_ps.tolist()
    if steps.source != "markers" or zero_ns is None or len(numbers) < 2 or len(set(steps.kinds)) != 1:
        return None
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    first_ns, last_ns = (zero_ns + int(starts[place] * _NS_PER_PS) for place in (0, -1))
    return NumberedSteps(numbers[0], numbers[-1], first_ns, last_ns)


def _ranked(analysis: Analysis) -> tuple[str, tuple[RankedTime, ...]]:
    """Return the kernels, else the device ops, else the host ops with the most time."""
    for table, name_key, share_key in (*(_RANKED_TABLES if analysis.has_device else ()), *_HOST_TABLES):
        try:
            data = analysis.table(table)
        except TfperfError:
            continue
        if not data or not data[name_key]:
            continue
        totals = data.get("total_ms" if table.startswith("kernels") else "self_ms")
        types = data.get("op_type") or [""] * len(data[name_key])
        rows = zip(data[name_key], types, data[share_key], totals or [0.0] * len(types), strict=True)
        ranked = [RankedTime(_short(n), _short(t), float(p), float(ms)) for n, t, p, ms in rows]
        ranked.sort(key=lambda each: -each.percent)
        kind = "kernels" if table.startswith("kernels") else "device ops" if table.startswith("device") else "host ops"
        return kind, tuple(ranked[:_MOST_RANKED])
    return "", ()


def _short(text: object) -> str:
    return without_middle(str(text or ""), 400)
