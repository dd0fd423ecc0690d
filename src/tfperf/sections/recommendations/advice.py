"""Conclusions in words: the verdict, and what to do next.

Each sentence carries the number that it rests on and the threshold that the number passed.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.sections.ops.analysis import Ops
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.overview.summary import INPUT_LIMITS, OTHER_LIMITS, Summary

from tfperf.report.model import Finding, Severity
from tfperf.units import format_percent

_LEVELS = f"moderate from {OTHER_LIMITS[0]:.0f}%, high from {OTHER_LIMITS[1]:.0f}%"
_HALF_PRECISION_PERCENT = 10.0
_OUTPUT_PERCENT = 5.0
_INPUT_LIMITS = f"moderate from {INPUT_LIMITS[0]:.0f}%, high from {INPUT_LIMITS[1]:.0f}%"
_SEVERITY: dict[str, Severity] = {"high": "problem", "moderate": "hint", "possible": "hint", "none": "info"}


def verdict(found: Summary, steps: Breakdown, host: str = "") -> Finding:
    """Say in one sentence whether the job is input-bound. `host` names the worst of several hosts."""
    if found.step_time_ms is None:
        named = ", or name the events that are steps with --step-marker NAME" * (steps.attribution == "corrected")
        return Finding(
            "input_unknown",
            "problem",
            f"Cannot tell whether the job is input-bound: no step time was measured ({steps.steps.explanation}).",
            f"profile at least five steps of a running job{named}",
        )
    share = f"{format_percent(found.input_percent)}% of the step time goes to input"
    share += f" on host {host}" if host else ""
    others = f"{format_percent(found.percent['all_others'])}% is in 'All others' ({_LEVELS})"
    texts = {
        "high": f"HIGHLY input-bound: {share} ({_INPUT_LIMITS}).",
        "moderate": f"MODERATELY input-bound: {share} ({_INPUT_LIMITS}).",
        "possible": f"POSSIBLY input-bound: {share} ({_INPUT_LIMITS}), but {others}: Python work or I/O?",
        "none": f"NOT input-bound: {share} ({_INPUT_LIMITS}).",
        "unknown": "Cannot tell whether the job is input-bound: the trace does not show where its input comes from.",
    }
    text = texts[found.input_class]
    if found.input_percent is None and found.input_class == "possible":
        text = f"POSSIBLY input-bound: the trace does not show where input comes from, and {others}."
    return Finding(f"input_{found.input_class}", _SEVERITY.get(found.input_class, "hint"), text)


def recommendations(
    found: Summary,
    steps: Breakdown,
    ops: Ops,
    pipeline: Sequence[Finding] = (),
    sections: Sequence[Finding] = (),
) -> tuple[Finding, ...]:
    """Return what to change, the most important first; a word of peace if nothing stands out.

    `pipeline` is the advice for the tf.data pipeline, where there is one, `sections` what other sections advise.
    """
    if found.step_time_ms is None:
        return (Finding("no_steps", "info", "No advice without step times.", "see 'What this trace cannot tell'"),)
    advice = [*_input_advice(found, ops, pipeline), *_share_advice(found, ops)]
    said = {finding.code for finding in advice}
    advice += [
        *(own for own in sections if own.severity != "info" and not said & _SAME.get(own.code, set())),
        *_precision_advice(steps, found),
        *_capture_advice(found, steps),
    ]
    if not advice:
        text, action = "No share of the step time passes a threshold for advice.", "look at the top ops (-s ops)"
        advice = [Finding("nothing", "info", text, action)]
    order = {"problem": 0, "hint": 1, "info": 2}
    return tuple(sorted(advice, key=lambda finding: order[finding.severity]))


_SAME = {
    "idle_launch": {"kernel_launch"}, "idle_python": {"all_others"}, "idle_copy": {"copy_to_device"},
    "idle_input": {"wait_for_input"}, "idle_synchronise": {"output"}, "idle_compile": {"compilation", "retracing"},
}  # fmt: skip
"""What a device waits for, and the advice on the step that says the same."""


def _input_advice(found: Summary, ops: Ops, pipeline: Sequence[Finding]) -> list[Finding]:
    if found.input_class not in ("high", "moderate"):
        return []
    severity = _SEVERITY[found.input_class]
    wait, copy = found.percent["input_wait"], found.percent["host_to_device"]
    if copy > wait:
        text = f"Copying batches to the device takes {format_percent(copy)}% of the step time."
        return [Finding("copy_to_device", severity, text, _COPY_ACTION)]
    average = " (average over hosts)" if found.worst_host is not None else ""
    waits = f"Steps wait {format_percent(wait)}% of their time for tf.data{average}."
    if pipeline:
        first = pipeline[0]
        return [Finding("wait_for_input", severity, f"{waits} {first.text} More: -s tfdata.", first.action)]
    stage = next((name for name, kind in zip(ops.host.names, ops.host.types, strict=True) if kind == "Dataset"), "")
    where = f" The tf.data stage with the largest self time is {stage}." if stage else ""
    return [Finding("wait_for_input", severity, f"{waits}{where}", _WAIT_ACTION)]


_COPY_ACTION = (
    "send smaller types (uint8, float16) and convert on the device; prefetch to the device with "
    "tf.data.experimental.prefetch_to_device"
)
_WAIT_ACTION = (
    "end the pipeline with .prefetch(tf.data.AUTOTUNE); give map() num_parallel_calls=tf.data.AUTOTUNE; .cache() what "
    "fits in memory; read files with interleave()"
)
_SHARES = (
    (
        "kernel_launch",
        OTHER_LIMITS[0],
        "Launching kernels",
        "use larger batches, compile with tf.function(jit_compile=True), or fuse small ops",
    ),
    (
        "all_others",
        OTHER_LIMITS[0],
        "'All others' (Python, I/O, idle)",
        "put the whole step into one tf.function; raise steps_per_execution in Keras compile(); do less in callbacks",
    ),
    (
        "device_collectives",
        OTHER_LIMITS[0],
        "Communication between devices",
        "use larger batches per device, or overlap the all-reduce with the backward pass",
    ),
    (
        "compilation",
        OTHER_LIMITS[0],
        "Tracing or compiling functions",
        "keep shapes and Python arguments of tf.functions constant; profile after warm-up",
    ),
    (
        "output",
        _OUTPUT_PERCENT,
        "Copying results to the host",
        "fetch metrics every few steps instead of every step (.numpy(), float(), print)",
    ),
)
"""Category, share from which there is advice, what it is about, what to do."""


def _share_advice(found: Summary, ops: Ops) -> list[Finding]:
    advice = []
    for key, limit, what, action in _SHARES:
        percent = found.percent.get(key, 0.0)
        if percent < limit:
            continue
        if key == "kernel_launch" and "Dataset" in ops.host.types:
            action += "; tf.data may compete for the CPU: set TF_GPU_THREAD_MODE=gpu_private"
        text = f"{what}: {format_percent(percent)}% of the step time (advice from {limit:.0f}%)."
        advice.append(Finding(key, "problem" if level(percent) == "high" else "hint", text, action))
    return advice


def _precision_advice(steps: Breakdown, found: Summary) -> list[Finding]:
    total = steps.compute_16_ps + steps.compute_32_ps
    share = 100.0 * steps.compute_16_ps / total if total else 0.0
    if not total or share >= _HALF_PRECISION_PERCENT or found.percent.get("device_compute", 0.0) < 20.0:
        return []
    text = (
        f"Only {format_percent(share)}% of device compute time is 16-bit." if share else "All device compute is 32-bit."
    )
    return [Finding("precision", "info", text, "set keras.mixed_precision.set_global_policy('mixed_float16')")]


def _capture_advice(found: Summary, steps: Breakdown) -> list[Finding]:
    if found.averaged_count >= 3 and steps.steps.confidence in ("high", "medium"):
        return []
    text = f"The verdict rests on {found.averaged_count} step(s), found with {steps.steps.confidence} confidence."
    mark = "tf.profiler.experimental.Trace('train', step_num=n, _r=1)"
    action = f"profile ten or more steps after warm-up, and mark them: {mark}"
    return [Finding("short_capture", "hint", text, action)]
