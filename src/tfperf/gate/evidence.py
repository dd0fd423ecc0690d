"""Why a limit is breached: the sentences of the report about what it limits, each with its advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tfperf.gate.counted import View
from tfperf.gate.measure import fullest_allocator, retraces_of
from tfperf.gate.model import Metric
from tfperf.render.safe_text import brief
from tfperf.report.model import Finding
from tfperf.reports.tfdata_advice import in_code
from tfperf.units import format_bytes, format_percent

_MOST = 2
_NAMED_FUNCTIONS = 3
_LONGEST_NAME = 120
_INPUT, _FUNCTIONS, _MEMORY, _IDLE = "input", "functions", "memory", "idle"
_ABOUT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "input_bound": (_INPUT, ("wait_for_input", "copy_to_device", "idle_input")),
    "kernel_launch": ("", ("kernel_launch", "idle_launch", "small_kernels")),
    "all_others": ("", ("all_others", "idle_python", "eager")),
    "device_busy": (_IDLE, ()),
    "memory": (_MEMORY, ()),
    "retraces": (_FUNCTIONS, ("retracing", "retracing_often")),
}
"""Figure -> what it is about, and codes of the advice that explains it, the best first."""
_KERNELS = ("small_kernels", "no_tensor_cores", "slow_copies", "one_kernel")
_TABLES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "input_": _ABOUT["input_bound"], "tfdata_": _ABOUT["input_bound"], "iterators": _ABOUT["input_bound"],
    "what_if": _ABOUT["input_bound"], "memory_": _ABOUT["memory"], "functions": _ABOUT["retraces"],
    "tf_functions": _ABOUT["retraces"], "idle_": _ABOUT["device_busy"], "kernels": ("", _KERNELS),
    "launches": ("", ("kernel_launch", "idle_launch", "small_kernels")), "copies": ("", ("slow_copies",)),
    "eager_ops": ("", ("eager",)), "device_time": _ABOUT["device_busy"],
}  # fmt: skip
_NOTHING = ("nothing", "no_steps", "short_capture")
_NO_EVIDENCE = ("environment", "ops", "op_", "host_ops", "device_ops", "pauses")


def evidence_of(metric: Metric, view: View) -> tuple[Finding, ...]:
    """Return what explains a breach on a host, the best first; at most two sentences."""
    if metric.table.startswith(_NO_EVIDENCE):
        return ()
    key = next((start for start in _TABLES if metric.table.startswith(start)), "") if metric.table else ""
    room, codes = _TABLES[key] if key else _ABOUT.get(metric.name if not metric.table else "", ("any", ()))
    found = list(dict.fromkeys(_explaining(room, codes, view)))
    return tuple(found[:_MOST])


def _explaining(room: str, codes: tuple[str, ...], view: View) -> Iterator[Finding]:
    advice = view.findings("recommendations")
    if room == _FUNCTIONS:
        yield from _traced(view)
    if room == _INPUT:
        yield from _input(view)
    if room in (_IDLE, _MEMORY):
        yield from (own for own in view.findings(room) if own.severity != "info")
    if room == _MEMORY:
        yield from _largest(view)
    if room == "any":
        yield from (own for own in advice if own.code not in _NOTHING)
    if room != _INPUT:
        yield from (own for code in codes for own in advice if own.code == code)


def _input(view: View) -> Iterator[Finding]:
    """Return the advice on input, with the stage that steps wait for; where there is no advice, what input takes."""
    codes = _ABOUT["input_bound"][1]
    advice = [own for code in codes for own in view.findings("recommendations") if own.code == code]
    stage = _blocking_stage(view)
    for own in advice or _input_shares(view):
        yield own if own.code == "copy_to_device" else replace(own, text=f"{own.text} {stage}".strip())
        stage = ""


def _input_shares(view: View) -> Iterator[Finding]:
    percent = view.summary.percent
    if percent and view.summary.input_percent is not None:
        wait, copy = (format_percent(percent[key]) for key in ("input_wait", "host_to_device"))
        text = f"Waiting for tf.data takes {wait}% of the step time, handing batches to the device {copy}%."
        yield Finding("input_share", "problem", text, "see what each stage takes: tfperf analyze -s tfdata")


def _blocking_stage(view: View) -> str:
    """Say which stage of the pipeline is waited for most; nothing if nobody waits."""
    outlook = view.trace.what_if()
    pipeline = outlook.pipeline if outlook else view.trace.tfdata().main
    if pipeline is None or pipeline.blocking is None or not pipeline.waited_ps:
        return ""
    stage = pipeline.stages[pipeline.blocking]
    share = format_percent(100.0 * stage.blocked_ps / pipeline.waited_ps)
    code = in_code(stage)
    called = f" ({brief(code, _LONGEST_NAME)} in code)" if code != stage.name else ""
    name = brief(stage.name, _LONGEST_NAME)
    return f"The stage waited for most is {name}{called}: {share}% of the waiting for the pipeline."


def _traced(view: View) -> Iterator[Finding]:
    """Name the functions that were traced again."""
    counts = {own.name: retraces_of(own) or 0 for own in view.host.functions.functions}
    again = sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])
    if again:
        named = ", ".join(f"{brief(name, _LONGEST_NAME)} ({counts[name]:,} times)" for name in again[:_NAMED_FUNCTIONS])
        more = f" and {len(again) - _NAMED_FUNCTIONS} more" if again[_NAMED_FUNCTIONS:] else ""
        yield Finding("retraced", "problem", f"Traced again in the capture: {named}{more}.", _SAME_ARGUMENTS)


def _largest(view: View) -> Iterator[Finding]:
    """Name what takes most of the fullest allocator at its peak."""
    data = view.tables.get("memory_by_op", {})
    fullest = fullest_allocator(view)
    rows = [at for at, name in enumerate(data.get("allocator", ())) if fullest and name == fullest.name]
    if rows:
        at = max(rows, key=lambda row: data["total_bytes"][row] or 0)
        size, share = format_bytes(data["total_bytes"][at]), format_percent(data["peak_percent"][at])
        text = f"The largest part of the peak is {brief(str(data['what'][at]), _LONGEST_NAME)}: {size}, {share}%."
        yield Finding("memory_largest", "problem", text, "see what else lies there: tfperf analyze -s memory")


_SAME_ARGUMENTS = (
    "call it with tensors of the same types and shapes (input_signature, reduce_retracing=True), not with Python "
    "numbers, and make tf.functions once, outside the loop"
)
