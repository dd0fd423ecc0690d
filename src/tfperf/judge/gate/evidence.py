"""Why a limit is breached: the causes of the diagnosis, with what to do, and what else the report says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.units import counted, format_bytes, format_percent, listed
from tfperf.judge.gate.judged_host import JudgedHost
from tfperf.judge.gate.limits import Metric
from tfperf.judge.gate.measure import fullest_allocator, retraces_of
from tfperf.report.model import Finding
from tfperf.report.render.values import brief

if TYPE_CHECKING:
    from tfperf.sections.diagnosis.cause import Diagnosis
    from tfperf.sections.functions.analysis import FunctionStats

_MOST = 2
_NAMED_FUNCTIONS = 3
_LONGEST_NAME = 120


class _Topic(Struct, frozen=True):
    """What a limit is about: sections that explain a breach, and codes of the causes that do."""

    sections: tuple[str, ...] = ("diagnosis",)
    codes: tuple[str, ...] = ()


_INPUT = _Topic(("tfdata", "diagnosis"), ("input_wait", "input_contention", "input_copy"))
_LAUNCHES = _Topic(codes=("launch_bound", "small_work_per_step"))
_IDLE = _Topic(("idle", "diagnosis"))
_MEMORY = _Topic(("memory", "diagnosis"), ("memory_pressure",))
_FUNCTIONS = _Topic(("functions", "diagnosis"), ("compilation", "warm_up"))
_ANYTHING = _Topic()
_FIGURES: Mapping[str, _Topic] = {
    "input_bound": _INPUT,
    "kernel_launch": _LAUNCHES,
    "all_others": _Topic(codes=("python_between_steps", "eager_ops", "run_eagerly", "waiting_in_calls")),
    "device_busy": _IDLE,
    "memory": _MEMORY,
    "retraces": _FUNCTIONS,
    "input_cost": _INPUT,
}
_NOTHING = _Topic(())
_TABLES: Mapping[str, _Topic] = {
    **dict.fromkeys(("input_", "tfdata_", "iterators", "what_if"), _INPUT),
    **dict.fromkeys(("functions", "tf_functions"), _FUNCTIONS),
    **dict.fromkeys(("idle_", "device_time"), _IDLE),
    "memory_": _MEMORY,
    "kernels": _Topic(codes=("device_compute_32bit", "launch_bound")),
    "launches": _LAUNCHES,
    "copies": _Topic(codes=("input_copy", "output_copy")),
    "eager_ops": _Topic(codes=("eager_ops", "run_eagerly")),
    **dict.fromkeys(("environment", "ops", "op_", "host_ops", "device_ops", "pauses"), _NOTHING),
}
"""How the name of a table starts, and what it is about."""


def _topic(metric: Metric) -> _Topic:
    if not metric.table:
        return _FIGURES.get(metric.name, _ANYTHING)
    return next((topic for prefix, topic in _TABLES.items() if metric.table.startswith(prefix)), _ANYTHING)


def evidence_sections(metric: Metric) -> tuple[str, ...]:
    """Return the sections that explain a breach."""
    if metric.cause:
        return ("diagnosis",)
    return _topic(metric).sections


def evidence_of(metric: Metric, host: JudgedHost) -> tuple[Finding, ...]:
    """Return what explains a breach on a host, the best first; at most two sentences."""
    if metric.cause:
        from tfperf.sections.diagnosis.section import finding_of

        diagnosis: Diagnosis = host.results["diagnosis"]
        return tuple(map(finding_of, diagnosis.named(metric.cause)))[:_MOST]
    return tuple(dict.fromkeys(_explanations(_topic(metric), host)))[:_MOST]


def _explanations(topic: _Topic, host: JudgedHost) -> Iterator[Finding]:
    causes = host.findings("diagnosis") if "diagnosis" in topic.sections else ()
    by_code = [finding for code in topic.codes for finding in causes if finding.code == code]
    if topic is _ANYTHING:
        yield from (finding for finding in causes if finding.code != "nothing")
    elif topic is _INPUT:
        yield from by_code or _input(host)
    elif topic is _FUNCTIONS:
        yield from (*_retraced(host), *by_code)
    elif topic is _IDLE:
        for fact in _facts(host, "idle"):
            yield replace(fact, causes=())
            yield from (finding for finding in causes if finding.code in fact.causes)
    elif topic is _MEMORY:
        yield from (*(by_code or _facts(host, "memory")), *_largest_in_memory(host))
    else:
        yield from by_code


def _facts(host: JudgedHost, section: str) -> list[Finding]:
    return [finding for finding in host.findings(section) if finding.severity != "info"]


def _input(host: JudgedHost) -> Iterator[Finding]:
    """Yield what input takes, where it is too little to be a cause."""
    percent = host.summary.percent
    if percent and host.summary.input_percent is not None:
        text = f"Waiting for tf.data takes {format_percent(percent['input_wait'])}% of the step time"
        if host.breakdown.has_device and host.breakdown.copies_are_input:
            text += f", copying batches to the device {format_percent(percent['host_to_device'])}%"
        yield Finding("input_share", "problem", f"{text}.", "see what each stage takes: tfperf analyze -s tfdata")


def _retraced(host: JudgedHost) -> Iterator[Finding]:
    functions: tuple[FunctionStats, ...] = host.host["functions"].functions
    counts = {function.name: retraces_of(function) or 0 for function in functions}
    again = sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])
    if again:
        named = [f"{brief(name, _LONGEST_NAME)} ({counted(counts[name], 'time')})" for name in again]
        text = f"Traced again in the capture: {listed(named, _NAMED_FUNCTIONS)}."
        yield Finding("retraced", "problem", text, _same_arguments())


def _same_arguments() -> str:
    from tfperf.sections.diagnosis.catalogue import ADVICE  # only a breach needs it

    return ADVICE["keep_signature"].texts["tensorflow"]


def _largest_in_memory(host: JudgedHost) -> Iterator[Finding]:
    data = host.results.table("memory_by_op") or {}
    fullest = fullest_allocator(host)
    allocators = data.get("allocator", ())
    rows = [row for row, name in enumerate(allocators) if fullest is not None and name == fullest.name]
    if rows:
        row = max(rows, key=lambda row: data["total_bytes"][row] or 0)
        size, share = format_bytes(data["total_bytes"][row]), format_percent(data["peak_percent"][row])
        text = f"The largest part of the peak is {brief(str(data['what'][row]), _LONGEST_NAME)}: {size}, {share}%."
        yield Finding("memory_largest", "problem", text, "see the rest: tfperf analyze -s memory")
