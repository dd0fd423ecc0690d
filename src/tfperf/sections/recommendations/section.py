"""The section of recommendations: the advice of all sections, each thing said once, the most important first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfperf.report.model import Finding, Section, Severity
from tfperf.sections.functions.section import findings_of as function_findings
from tfperf.sections.idle.advice import idle_advice
from tfperf.sections.kernels.advice import kernel_advice
from tfperf.sections.memory.advice import findings_of as memory_findings
from tfperf.sections.ops.analysis import Ops
from tfperf.sections.overview.summary import OTHER_LIMITS, SEVERITIES, Overview, Summary, share_class
from tfperf.sections.results import Results
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.tfdata.advice import pipeline_advice
from tfperf.units import format_percent

_SAME_TIME: Mapping[str, frozenset[str]] = {
    "idle_launch": frozenset({"kernel_launch"}),
    "idle_python": frozenset({"all_others"}),
    "idle_copy": frozenset({"copy_to_device"}),
    "idle_input": frozenset({"wait_for_input"}),
    "idle_synchronise": frozenset({"output"}),
    "idle_compile": frozenset({"compilation", "retracing"}),
}
"""What a device waits for, and the advice on the step that is about the same time."""
_ORDER: Mapping[Severity, int] = {"problem": 0, "hint": 1, "info": 2}
_HALF_PRECISION_PERCENT = 10.0
_LEAST_COMPUTE_PERCENT = 20.0
_OUTPUT_PERCENT = 5.0
_ENOUGH_STEPS = 3
_COPY_ACTION = (
    "send smaller types (uint8, float16) and convert on the device; prefetch to the device with "
    "tf.data.experimental.prefetch_to_device"
)
_WAIT_ACTION = (
    "end the pipeline with .prefetch(tf.data.AUTOTUNE); give map() num_parallel_calls=tf.data.AUTOTUNE; .cache() what "
    "fits in memory; read files with interleave()"
)
_CAPTURE_ACTION = (
    "profile ten or more steps after warm-up, and mark them: tf.profiler.experimental.Trace('train', step_num=n, _r=1)"
)
_SHARES = {
    "kernel_launch": "Launching kernels",
    "all_others": "'All others' (Python, I/O, idle)",
    "device_collectives": "Communication between devices",
    "compilation": "Tracing or compiling functions",
    "output": "Copying results to the host",
}
_SHARE_ACTIONS = {
    "kernel_launch": "use larger batches, compile with tf.function(jit_compile=True), or fuse small ops",
    "all_others": (
        "put the whole step into one tf.function; raise steps_per_execution in Keras compile(); do less in callbacks"
    ),
    "device_collectives": "use larger batches per device, or overlap the all-reduce with the backward pass",
    "compilation": "keep shapes and Python arguments of tf.functions constant; profile after warm-up",
    "output": "fetch metrics every few steps instead of every step (.numpy(), float(), print)",
}


def build(results: Results) -> Section:
    """Build the section: what to change, the most important first; one sentence if nothing passes a threshold."""
    summary, breakdown, ops = results["overview"], results["steps"], results["ops"]
    if summary.step_time_ms is None:
        no_steps = Finding("no_steps", "info", "No advice without step times.", "see 'What this trace cannot tell'")
        return Section("recommendations", "What to do next", findings=(no_steps,))
    tfdata = results["tfdata"]
    pipeline = pipeline_advice(tfdata) if tfdata.outlook else ()
    advice = [*input_advice(summary, ops, pipeline), *share_advice(summary, ops)]
    codes = {finding.code for finding in advice}
    of_sections = (
        *function_findings(results["functions"]),
        *idle_advice(results["idle"]),
        *kernel_advice(results["kernels"]),
        *memory_findings(results["memory"]),
    )
    advice += [
        finding
        for finding in of_sections
        if finding.severity != "info" and not codes & _SAME_TIME.get(finding.code, frozenset())
    ]
    advice += precision_advice(breakdown, summary)
    confidence = breakdown.steps.confidence
    if summary.averaged_count < _ENOUGH_STEPS or confidence not in ("high", "medium"):
        text = f"The verdict rests on {summary.averaged_count} step(s), found with {confidence} confidence."
        advice.append(Finding("short_capture", "hint", text, _CAPTURE_ACTION))
    if not advice:
        text = "No share of the step time passes a threshold for advice."
        advice = [Finding("nothing", "info", text, "look at the top ops (-s ops)")]
    advice.sort(key=lambda finding: _ORDER[finding.severity])
    return Section("recommendations", "What to do next", findings=tuple(advice))


def input_advice(overview: Overview, ops: Ops, pipeline: Sequence[Finding]) -> list[Finding]:
    """Return what to do about input if the job is input-bound; `pipeline` is the advice on the tf.data pipeline."""
    if overview.input_class not in ("high", "moderate"):
        return []
    severity = SEVERITIES[overview.input_class]
    wait, copy = overview.percent["input_wait"], overview.percent["host_to_device"]
    if copy > wait:
        text = f"Copying batches to the device takes {format_percent(copy)}% of the step time."
        return [Finding("copy_to_device", severity, text, _COPY_ACTION)]
    average = " (average over hosts)" if overview.worst_host is not None else ""
    waits = f"Steps wait {format_percent(wait)}% of their time for tf.data{average}."
    if pipeline:
        first = pipeline[0]
        return [Finding("wait_for_input", severity, f"{waits} {first.text} More: -s tfdata.", first.action)]
    stage = next((name for name, kind in zip(ops.host.names, ops.host.types, strict=True) if kind == "Dataset"), "")
    where = f" The tf.data stage with the largest self time is {stage}." if stage else ""
    return [Finding("wait_for_input", severity, f"{waits}{where}", _WAIT_ACTION)]


def share_advice(summary: Summary, ops: Ops) -> list[Finding]:
    """Return advice on the categories that take a large share of the step time."""
    advice = []
    for category, subject in _SHARES.items():
        percent = summary.percent.get(category, 0.0)
        threshold = _OUTPUT_PERCENT if category == "output" else OTHER_LIMITS[0]
        if percent < threshold:
            continue
        action = _SHARE_ACTIONS[category]
        if category == "kernel_launch" and "Dataset" in ops.host.types:
            action += "; tf.data may compete for the CPU: set TF_GPU_THREAD_MODE=gpu_private"
        text = f"{subject}: {format_percent(percent)}% of the step time (threshold {threshold:.0f}%)."
        advice.append(Finding(category, "problem" if share_class(percent) == "high" else "hint", text, action))
    return advice


def precision_advice(breakdown: Breakdown, summary: Summary) -> list[Finding]:
    """Return advice where devices compute much, and hardly in 16 bits."""
    total_ps = breakdown.compute_16_ps + breakdown.compute_32_ps
    percent = 100.0 * breakdown.compute_16_ps / total_ps if total_ps else 0.0
    computes = summary.percent.get("device_compute", 0.0) >= _LEAST_COMPUTE_PERCENT
    if not total_ps or percent >= _HALF_PRECISION_PERCENT or not computes:
        return []
    few = f"Only {format_percent(percent)}% of device compute time is 16-bit."
    text = few if percent else "All device compute is 32-bit."
    return [Finding("precision", "info", text, "set keras.mixed_precision.set_global_policy('mixed_float16')")]
