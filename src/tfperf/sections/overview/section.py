"""The section with the input-bound verdict, and the keys in every JSON document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tfperf.analysis.registry import Results, present
from tfperf.base.units import counted, format_ms, format_range
from tfperf.report.model import Fact, Finding, Quantity, Section, Severity
from tfperf.sections.batch import rate_facts, rate_summary
from tfperf.sections.hosts import straggler_summary
from tfperf.sections.overview import CATEGORY_TABLE, KINDS, STEPS_BY_HOST
from tfperf.sections.overview.summary import INPUT_LIMITS, OTHER_LIMITS, Summary, of_steps, share_of_step, step_time
from tfperf.sections.wall import wall_summary
from tfperf.trace.flaw import level_of
from tfperf.trace.steps.breakdown import Breakdown
from tfperf.trace.steps.categories import CATEGORIES
from tfperf.trace.steps.steps import step_word
from tfperf.trace.steps.tpu_steps import duty_percent

if TYPE_CHECKING:
    from tfperf.sections.tfdata.whatif import Outlook

_OTHER_THRESHOLDS = f"{OTHER_LIMITS[0]:.0f}% moderate, {OTHER_LIMITS[1]:.0f}% high"
_INPUT_THRESHOLDS = f"{INPUT_LIMITS[0]:.0f}% moderate, {INPUT_LIMITS[1]:.0f}% high"
_LEAST_PERCENT = 1.0
"""Minimum CPU contention of the pipeline that a finding reports, in percent of the step."""
SEVERITIES: dict[str, Severity] = {"high": "problem", "moderate": "hint", "possible": "hint", "none": "info"}


def build(results: Results) -> Section:
    """Build the section: verdict, facts about steps, and step time by category."""
    breakdown = results["steps"]
    summary = results["overview"]
    time = summary.step_time_ms
    if time is None:
        return Section("overview", "Overview", findings=(verdict_of(results),))
    steps = breakdown.steps
    batches = int(steps.batches.max())
    deviation = time.standard_deviation
    over_hosts = "average over hosts" if results.has_several_hosts else ""
    notes = [over_hosts] if over_hosts else []
    notes += [] if deviation is None else [f"± {format_ms(deviation)} ms over steps"]
    spread = f"90% of steps take {format_range(time.p5, time.p95)} ms" if summary.averaged_count > 1 else ""
    average, over_hosts_note = step_time(summary), " (average over hosts)" * results.has_several_hosts
    facts = [
        Fact("average_step_time", "Average step time", average.value, "ms", ", ".join(notes), quantities=(average,)),
        Fact("median_step_time", "Median step time", time.median, "ms", "; ".join(filter(None, (over_hosts, spread)))),
        Fact("minimum_step_time", "Shortest step", time.minimum, "ms", over_hosts),
        Fact("maximum_step_time", "Longest step", time.maximum, "ms", over_hosts),
        Fact(
            "steps",
            "Steps averaged",
            summary.averaged_count,
            "count",
            f"of {counted(summary.step_count, step_word(summary.kind))}",
        ),
        Fact("step_source", "Step detection", steps.source, "", f"{steps.confidence} confidence"),
    ]
    if batches > 1:
        note = f"{batches} batches per step"
        facts.append(Fact("batch_time", "Average per batch", time.average / batches, "ms", note))
    chips = results["hosts"].chips if "hosts" in results.sections else None
    if chips is not None and chips.missing:
        note = f"of the {len(chips.program_devices)} that run {chips.program} are in this profile"
        facts.append(Fact("chips", f"{chips.noun.capitalize()}s", chips.recorded, "count", note))
    facts += [*rate_facts(results), *_precision_facts(breakdown), *_duty_facts(breakdown)]
    return Section(
        "overview",
        "Overview",
        findings=(verdict_of(results), *cost_finding(results)),
        facts=tuple(facts),
        tables=present(
            CATEGORY_TABLE.build(results, title=CATEGORY_TABLE.title + over_hosts_note, bar_key="percent"),
            KINDS.build(results, title=KINDS.title + over_hosts_note),
            STEPS_BY_HOST.build(results),
        ),
    )


def _precision_facts(breakdown: Breakdown) -> list[Fact]:
    """Return the shares of device compute by precision, with unknown precision only if there is any."""
    if not breakdown.compute_ps:
        return []
    parts_ps = {"16": breakdown.compute_16_ps, "32": breakdown.compute_32_ps, "unknown": breakdown.compute_unknown_ps}
    percents = {kind: 100.0 * part_ps / breakdown.compute_ps for kind, part_ps in parts_ps.items()}
    of_what = "of the capture's device compute"
    facts = [
        Fact(f"compute_{bits}_bit", f"Device compute {bits}-bit", percents[bits], "%", of_what) for bits in ("16", "32")
    ]
    if breakdown.compute_unknown_ps:
        note = "kernels of unknown precision"
        facts.append(Fact("compute_unknown", "Device compute unknown", percents["unknown"], "%", note))
    return facts


def _duty_facts(breakdown: Breakdown) -> list[Fact]:
    duty = duty_percent(breakdown.cores)
    if duty is None:
        return []
    note = (
        f"of {counted(len(breakdown.cores), 'core')}, from first to last op: all ops except waits for data (infeed, "
        "outfeed, copies)"
    )
    return [Fact("duty_cycle", "Duty cycle", duty, "%", note)]


def report_summary(results: Results) -> dict[str, Any]:
    """Return the fixed JSON keys of every report."""
    breakdown = results["steps"]
    steps, summary = breakdown.steps, results["overview"]
    cost = input_cost(results)
    return {
        "step_count": len(steps),
        "averaged_step_count": summary.averaged_count,
        "step_kind": summary.kind if len(steps) else None,
        "step_source": steps.source,
        "step_confidence": steps.confidence,
        "step_explanation": steps.explanation,
        "step_notes": list(steps.notes),
        "step_time_ms": _times(summary),
        "soundness": {
            "level": level_of(flaw for _, flaw in results.flaws),
            "flaws": [{"code": flaw.code, "host": host, "text": flaw.text} for host, flaw in results.flaws],
        },
        "input_percent": summary.input_percent,
        "input_class": summary.input_class,
        "input_cost_percent": {"low": getattr(cost, "low", None), "high": getattr(cost, "high", None)},
        "verdict": verdict_of(results).text,
        "category_percent": {key: breakdown.known(key, summary.percent.get(key)) for key in CATEGORIES},
        "input_wait_percent": breakdown.known("input_wait", summary.percent.get("input_wait")),
        "host_to_device_percent": breakdown.known("host_to_device", summary.percent.get("host_to_device")),
        "kinds": {
            kind.kind: {
                "step_count": kind.step_count,
                "averaged_step_count": kind.averaged_count,
                "step_time_ms": _times(kind),
                "input_percent": kind.input_percent,
                "input_class": kind.input_class,
            }
            for kind in summary.by_kind
        },
        "hosts_read": len(results.hosts),
        "hosts_missing": len(results.missing),
        "worst_host": results.hosts[summary.worst_host].host if summary.worst_host is not None else None,
        **wall_summary(results),
        **rate_summary(results),
        **straggler_summary(results),
    }


def _times(summary: Summary) -> dict[str, float | None]:
    keys = ("average", "standard_deviation", "minimum", "maximum", "median", "p5", "p95")
    return {key: getattr(summary.step_time_ms, key, None) for key in keys}


def verdict_of(results: Results) -> Finding:
    """Return the verdict on a run; with several hosts, it is about the one that waits longest for input."""
    summary = results["overview"]
    if summary.worst_host is None:
        return verdict(summary, results["steps"])
    return verdict(summary.by_host[summary.worst_host], results["steps"], results.hosts[summary.worst_host].host)


def verdict(summary: Summary, breakdown: Breakdown, host: str = "") -> Finding:
    """Return whether the job is input-bound, as one sentence. `host` names the worst of several hosts."""
    if summary.step_time_ms is None:
        named = ", or name the step events with --step-marker NAME" * (breakdown.attribution == "corrected")
        return Finding(
            "input_unknown",
            "problem",
            f"Input-bound is unknown: no step time was measured ({breakdown.steps.explanation}).",
            f"profile at least five steps of a running job{named}",
        )
    of_input, of_others = (share_of_step(summary, part, host) for part in ("input", "all_others"))
    share = f"input takes {of_input} of step time"
    share += f" on host {host}" if host else ""
    others = f"All others takes {of_others} (thresholds: {_OTHER_THRESHOLDS})"
    texts = {
        "high": f"HIGHLY input-bound: {share} (thresholds: {_INPUT_THRESHOLDS}).",
        "moderate": f"MODERATELY input-bound: {share} (thresholds: {_INPUT_THRESHOLDS}).",
        "possible": f"{share[:1].upper()}{share[1:]}, but {others}, which may hide input read in Python.",
        "none": f"NOT input-bound: {share} (thresholds: {_INPUT_THRESHOLDS}).",
        "unknown": "Input-bound is unknown: the profile does not show the source of the input.",
    }
    if breakdown.missing:
        texts["unknown"] = "Input-bound is unknown: events are missing from the profile."
    text = texts[summary.input_class]
    if summary.input_percent is None and summary.input_class == "possible":
        text = f"The profile does not show the source of the input, and {others}, which may hide it."
    stated = {"unknown": (), "possible": (of_input, of_others)}.get(summary.input_class, (of_input,))
    quantities = tuple(quantity for quantity in stated if quantity.value is not None)
    return Finding(
        f"input_{summary.input_class}",
        SEVERITIES.get(summary.input_class, "hint"),
        text,
        causes=("input_wait", "input_copy", "input_contention") if summary.input_class in ("high", "moderate") else (),
        quantities=quantities,
    )


class InputCost(Struct, frozen=True):
    """Input cost, in percent of the step."""

    waiting: float
    """Waiting for batches and copying them: the category Input."""
    slowed_low: float
    """CPU contention with pipeline threads, at least and at most."""
    slowed_high: float

    @property
    def low(self) -> float:
        """Return the lowest input cost."""
        return self.waiting + self.slowed_low

    @property
    def high(self) -> float:
        """Return the highest input cost."""
        return self.waiting + self.slowed_high

    @property
    def is_more_than_waiting(self) -> bool:
        """Return whether the cost exceeds the category Input by at least `_LEAST_PERCENT`."""
        return self.slowed_low >= _LEAST_PERCENT

    def quantities(self, of: str) -> tuple[Quantity, Quantity, Quantity]:
        """Return the lowest cost, the highest cost, and the category Input."""
        low, high = Quantity("input_cost, at least", self.low, of=of), Quantity("input_cost", self.high, of=of)
        return low, high, Quantity("input", self.waiting, of=of)


def cost_finding(results: Results) -> tuple[Finding, ...]:
    """Return a finding with the input cost and its parts, if it exceeds the category Input."""
    cost = input_cost(results)
    if cost is None or not cost.is_more_than_waiting:
        return ()
    low, high, waiting = quantities = cost.quantities(whose_input(results))
    text = (
        f"Input costs {from_to(low, high)} of the step: {waiting} waiting, the rest CPU contention with pipeline "
        "threads."
    )
    return (Finding("input_cost", "hint", text, causes=("input_contention",), quantities=quantities),)


def from_to(low: Quantity, high: Quantity) -> str:
    """Return a range of shares as text: `8.9 to 36.4%`."""
    return f"{str(low).removesuffix('%')} to {high}"


def whose_input(results: Results) -> str:
    """Return the `of` of the input share: with several hosts, the one that waits longest."""
    overview = results["overview"]
    worst = overview.worst_host
    return of_steps(overview.kind, "" if worst is None else results.hosts[worst].host)


def outlook_of(results: Results) -> Outlook | None:
    """Return the estimates for the pipeline that the steps wait for, or None if unknown."""
    tfdata = results["tfdata"]
    if results.is_other_kind:
        return tfdata.of_kinds.get(results["overview"].kind)
    return tfdata.outlook


def input_cost(results: Results) -> InputCost | None:
    """Return the input cost of the average step, or None if it is unknown or tf.data was not analyzed."""
    overview = results["overview"]
    if overview.input_percent is None or "tfdata" not in results.sections or "input" in results["steps"].unknown:
        return None
    slowed = slowed_percent(results)
    if slowed is None:
        return None
    rest = 100.0 - overview.input_percent
    return InputCost(overview.input_percent, min(slowed[0], rest), min(slowed[1], rest))


def slowed_percent(results: Results) -> tuple[float, float] | None:
    """Return the lowest and highest CPU contention with pipeline threads, in percent of the step; None if unknown."""
    outlook = outlook_of(results)
    if why_unknown_slowed(results):
        return None
    return (0.0, 0.0) if outlook is None else outlook.slowed_percent


def why_unknown_slowed(results: Results) -> str:
    """Return why CPU contention with pipeline threads is unknown; empty if it is known."""
    tfdata = results["tfdata"]
    if tfdata.main is None or results.has_device:
        return ""
    outlook = outlook_of(results)
    if outlook is None:
        return "no pipeline call starts in the averaged steps"
    if outlook.slowed_percent is None:
        return "the number of cores is not recorded"
    return ""
