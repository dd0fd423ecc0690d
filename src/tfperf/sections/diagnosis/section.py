"""The section of the diagnosis: the first screen of every report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tfperf.analysis.registry import Results, present
from tfperf.base.units import PS_PER_MS, format_ms, format_percent
from tfperf.report.model import Card, Change, Fact, Finding, Level, Quantity, Section, Segment, SegmentBar, Severity
from tfperf.report.palette import ROLES, Role
from tfperf.sections.batch import examples_per_second
from tfperf.sections.diagnosis import ACTIONS, CAUSES
from tfperf.sections.diagnosis.case import op_and_place
from tfperf.sections.diagnosis.catalogue import CAUSE_MEANINGS
from tfperf.sections.diagnosis.diagnose import WORTH_FIXING, listed_computed, sentence_of
from tfperf.sections.diagnosis.waiting_causes import stated
from tfperf.sections.environment.section import clock_notes
from tfperf.sections.gaps import topics
from tfperf.sections.overview.section import from_to, input_cost, whose_input
from tfperf.sections.overview.summary import of_steps, share_of_step, step_after, usual_step_time
from tfperf.sections.requests import latency_facts, lost_latency
from tfperf.sections.tfdata.whatif import NOISE
from tfperf.sections.wall import rate_text
from tfperf.trace.steps.categories import CATEGORY_TITLES
from tfperf.trace.steps.steps import INFERENCE, ITERATION, UNLABELLED, step_word

if TYPE_CHECKING:
    from tfperf.sections.diagnosis.cause import Action, Cause, Computed, Diagnosis, Part

_SHOWN = 3
"""Maximum number of causes on the first screen."""
_PROBLEM = 0.15
"""Likely gain that makes a cause a problem, as a share of the step."""
_LEAST_SHARE = 1.0
_NAMED_GAPS = 3
_CLASSES = {
    "high": "HIGHLY input-bound",
    "moderate": "MODERATELY input-bound",
    "none": "NOT input-bound",
    "unknown": "unknown: the profile does not show the source of the input",
}
REST: Mapping[str, tuple[Role, str]] = {
    "compilation": ("compile", "Compiling"),
    "output": ("copy", "Copying to the host"),
    "input_wait": ("input", "Waiting for input"),
    "host_to_device": ("copy", "Copying to the device"),
    "kernel_launch": ("launch", "Launching kernels"),
    "host_compute": ("compute", "Host compute"),
    "device_collectives": ("others", "Collectives"),
    "device_to_device": ("copy", "Copying on the device"),
    "device_compute": ("compute", "Device compute"),
    "all_others": ("unexplained", "Unexplained"),
    "": ("unexplained", "Outside averaged steps"),
}
"""Role and name of the time that no cause explains, by category; without one, of the wall time."""
_SHOWN_IN = {"input_wait": ("input",), "host_to_device": ("input", "host_to_device")}
"""Categories of charts with the parts of input."""
_MAIN_KINDS = ("train", UNLABELLED, ITERATION, INFERENCE)
"""Kinds of steps that texts do not mention."""
_POINTER = "More: tfperf analyze PATH --full (or -s NAME, -o page.html)"
_ONE_STEP = "warning: one step may not be typical, profile at least five"


def build(results: Results) -> Section:
    """Build the section: causes, best to fix first; the step; its categories; unknown data."""
    diagnosis = results["diagnosis"]
    has_steps = diagnosis.summary.step_time_ms is not None
    notes = [*results["steps"].steps.other_loops, *(() if _is_full(diagnosis) else clock_notes(results["environment"]))]
    if unknown := topics(results):
        named = "; ".join(text[:1].lower() + text[1:] for text in unknown[:_NAMED_GAPS])
        more = f"; {len(unknown) - _NAMED_GAPS} more" if len(unknown) > _NAMED_GAPS else ""
        notes.append(f"Unknown: {named}{more} (-s gaps).")
    return Section(
        "diagnosis",
        "Diagnosis",
        findings=(*_findings(diagnosis), *lost_latency(results["requests"])),
        facts=(*latency_facts(results["requests"]), *(_facts(results) if has_steps else ())),
        cards=tuple(_card(cause) for cause in diagnosis.causes),
        charts=segment_bars(results),
        tables=present(CAUSES.build(results, level="full"), ACTIONS.build(results, level="full")),
        notes=tuple(notes),
        pointer=_POINTER,
    )


def _findings(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Return the headline and every cause; the first cause is the headline if it is worth fixing."""
    causes, findings = list(diagnosis.causes), []
    if not causes or diagnosis.headline != sentence_of(causes[0]):
        shares = (share_of_step(diagnosis.summary, key, diagnosis.host) for key in diagnosis.summary.categories)
        quantities = [share for share in shares if (share.value or 0.0) >= _LEAST_SHARE]
        quantities += [quantity for each in diagnosis.computed for quantity in _of_computed(diagnosis, each)]
        findings.append(Finding("nothing", "info", diagnosis.headline, quantities=tuple(quantities)))
    # Memory that is nearly full has no gain, so it comes last, but is a problem.
    shown = sorted((cause for cause in causes if not cause.is_aside), key=lambda cause: _severity(cause) != "problem")
    shown = shown[: _SHOWN - len(findings)]
    for cause in causes:
        findings.append(finding_of(cause, "brief" if cause in shown else "full"))
        named = cause.title if cause.kind in _MAIN_KINDS else f"{cause.title} of {step_word(cause.kind)}s"
        for other in () if cause.are_alternatives else cause.actions[1:]:
            text, of_other = f"Also for {named}: {_words(cause, other)}.", _estimate(cause, other)
            findings.append(Finding(other.code, "info", text, level="full", quantities=of_other, url=other.url))
    return tuple(findings)


def _of_computed(diagnosis: Diagnosis, computed: Computed) -> tuple[Quantity, ...]:
    share = Quantity(
        f"computes: {computed.name}", computed.percent, of=of_steps(diagnosis.summary.kind, diagnosis.host)
    )
    roof = computed.roofline_percent
    return (share,) if roof is None else (share, Quantity("roofline", roof, of=computed.name))


def finding_of(cause: Cause, level: Level = "brief") -> Finding:
    """Return a cause as a finding, with its cost and first action."""
    actions = cause.actions if cause.are_alternatives else cause.actions[:1]
    text = "; or ".join(_words(cause, action) for action in actions)
    quantities = (*cause.quantities, *(quantity for action in actions for quantity in _estimate(cause, action)))
    if cause.cost_percent is not None:
        of, cost = of_steps(cause.kind, cause.host) if cause.of == "step" else "wall time", cause.cost_percent
        at_least, at_most = Quantity(f"{cause.code}, at least", cost.low, of=of), Quantity(cause.code, cost.high, of=of)
        quantities = (at_least, at_most, *quantities)
    sentence = sentence_of(cause)
    if cause.kind not in _MAIN_KINDS:
        sentence = f"{step_word(cause.kind).capitalize()}s: {sentence}"
    url = actions[0].url if actions else ""
    return Finding(cause.code, _severity(cause), sentence, text, level, quantities=quantities, url=url)


def _severity(cause: Cause) -> Severity:
    if cause.gain >= _PROBLEM or cause.code == "memory_pressure":
        return "problem"
    return "hint" if cause.gain >= WORTH_FIXING else "info"


def _card(cause: Cause) -> Card:
    """Return a cause as a card. What its first change saves is of its own time, which no other cause has."""
    step = step_word(cause.kind)
    whole = "step" if cause.kind in _MAIN_KINDS else step
    if cause.of == "wall":
        whole = "wall time per step"
    cost = ""
    if cause.cost_percent is not None and cause.cost_ms is not None:
        low, high = format_ms(cause.cost_ms.low), format_ms(cause.cost_ms.high)
        cost = f"{stated(cause.cost_percent)} of the {whole}: {low if low == high else f'{low} to {high}'} ms"
    best = cause.actions[0] if cause.actions else None
    after = best and (best.rest_ms or best.step_ms)
    saved = None
    if after and cause.cost_ms is not None:
        least, most = (min(max(cause.step_ms - each, 0.0), cause.cost_ms.high) for each in (after.high, after.low))
        saved = (least, most)
    return Card(
        code=cause.code,
        title=cause.title if cause.kind in _MAIN_KINDS else f"{step.capitalize()}s: {cause.title}",
        role=CAUSE_MEANINGS[cause.code].role,
        severity=_severity(cause),
        cost=cost,
        detail=cause.detail,
        confidence=cause.confidence,
        whole=f"{whole} on {cause.host}" if cause.host else whole,
        before=cause.step_ms,
        saved=saved,
        changes=tuple(_change(cause, action) for action in cause.actions),
        see=tuple(dict.fromkeys(each.section for each in cause.rests_on)),
    )


def _change(cause: Cause, action: Action) -> Change:
    of = " of wall time per step" if cause.of == "wall" else ""
    return Change(
        text=action.text,
        after=None if action.step_ms is None else (action.step_ms.low, action.step_ms.high),
        of=" for the same number of examples" if action.is_per_examples else of,
        condition=action.assumption,
        snippet=action.snippet,
        url=action.url,
    )


def _estimate(cause: Cause, action: Action) -> tuple[Quantity, ...]:
    if action.step_ms is None:
        return ()
    of = of_steps(cause.kind, cause.host)
    after = step_after(f"{cause.code}: {action.code}", action.step_ms.low, action.step_ms.high, of)
    return after if cause.of == "wall" else (Quantity("step_time", cause.step_ms, "ms", of), *after)


def _words(cause: Cause, action: Action) -> str:
    text = action.text.partition("; ")[0]
    if action.step_ms is None:
        return text
    now, low, high = map(format_ms, (cause.step_ms, action.step_ms.low, action.step_ms.high))
    if now == low == high:
        return text
    change = f"{now} -> {low} to {high} ms" if low != high else f"{now} -> {low} ms"
    if cause.of == "wall":
        return f"{text} (wall time per step {change})"
    if action.is_per_examples:
        return f"{text} (step {change} for the same number of examples)"
    condition, rest_ms = "", cause.unless_rest_gets_faster(action)
    if action.step_ms.high > cause.step_ms:
        condition = f", if {action.assumption}"
    elif rest_ms is not None and action.step_ms.low < (1.0 - NOISE) * rest_ms:
        condition = f", below {format_ms(rest_ms)} only if the rest gets faster"
    return f"{text} (step {change}{condition})"


def _facts(results: Results) -> tuple[Fact, ...]:
    """Return the diagnosed step: its time, rate and input share."""
    diagnosis = results["diagnosis"]
    step, time = diagnosis.summary, diagnosis.summary.step_time_ms
    if time is None:
        return ()
    usual = usual_step_time(step, diagnosis.host)
    notes = [f"{usual.statistic} of {step.averaged_count} of {step.step_count} {step_word(step.kind)}s{usual.other}"]
    if step.averaged_count == 1:
        notes = [f"1 of {step.step_count} {step_word(step.kind)}s", _ONE_STEP]
    is_long = bool(diagnosis.host) and _is_full(diagnosis)
    if time.average and step.averaged_count > 1:
        pace = next((place for place, host in enumerate(results.hosts) if host.host == diagnosis.host), None)
        wall = results["wall"] if pace is None else results.hosts[pace]["wall"]
        # The bar of the wall time shows the difference.
        notes.append(rate_text(wall, time.average, within=not diagnosis.wall_parts))
    notes += [f"on {diagnosis.host}"] if diagnosis.host and not is_long else []
    chips = results["hosts"].chips
    if chips is not None and chips.missing:
        notes.append(f"on {chips.recorded} of {len(chips.program_devices)} {chips.noun}s")
    level: Level = "full" if _is_full(diagnosis) and diagnosis.wall_parts else "brief"
    facts = [Fact("step_time", "Step time", usual.time.value, "ms", ", ".join(notes), quantities=usual.quantities)]
    batch, rate = results["batch"], examples_per_second(results)
    if batch.size is not None and rate and not diagnosis.host:
        note = f"batch size {batch.size:,} ({batch.confidence} confidence)"
        facts.append(Fact("examples_per_second", "Examples/s", rate, "count", note, level=level))
    facts += _computes(diagnosis)
    return (*facts, _input(results))


def _input(results: Results) -> Fact:
    """Return the input share with a verdict."""
    overview, diagnosis = results["overview"], results["diagnosis"]
    worst = overview.worst_host
    of_host, host = (overview, "") if worst is None else (overview.by_host[worst], results.hosts[worst].host)
    verdict = _CLASSES.get(overview.input_class, "") + (f" on {host}" if host else "")
    if of_host.on_tpu and of_host.input_percent == 0.0:
        verdict = "no input in the steps: no infeed, no transfers"
    if overview.input_class == "unknown" and results["steps"].missing:
        verdict = "unknown: events are missing from the profile"
    of_input, of_others = (share_of_step(of_host, part, host) for part in ("input", "all_others"))
    if overview.input_class == "possible":
        parts = [part for part in diagnosis.parts if part.category == "all_others" and not part.cause]
        rest = Quantity("unexplained", sum(part.percent for part in parts), of=of_steps(overview.kind, host))
        if diagnosis.parts and diagnosis.host == host and (rest.value or 0.0) < _LEAST_SHARE:
            verdict = f"not visible; other causes explain All others ({of_others})"
        elif diagnosis.parts and diagnosis.host == host:
            verdict, of_others = f"{rest} unexplained, which may hide input", rest
        else:
            over = " on average over hosts" if worst is None and len(results.hosts) > 1 else ""
            verdict += f"{of_others} unexplained{over} (All others), which may hide input"
    cost = input_cost(results)
    costs = cost.quantities(whose_input(results)) if cost is not None and cost.is_more_than_waiting else ()
    if costs and not _is_full(diagnosis):
        verdict += f"; costs {from_to(costs[0], costs[1])} including CPU contention"
    return Fact("input", "Input", of_input.value, "%", verdict, quantities=(of_input, of_others, *costs))


def _computes(diagnosis: Diagnosis) -> list[Fact]:
    """Return the largest compute, if it takes most of the step and the headline does not state it."""
    most = diagnosis.computed
    if not most or diagnosis.headline.endswith(f"{listed_computed(most)}."):
        return []
    quantities = tuple(quantity for each in most for quantity in _of_computed(diagnosis, each))
    note = f"of the step; {listed_computed(most[1:])}" if len(most) > 1 else "of the step"
    first = op_and_place(most[0].name, most[0].place)
    level: Level = "full" if _is_full(diagnosis) else "brief"
    return [Fact("computes", "Top compute", f"{first} {quantities[0]}", note=note, level=level, quantities=quantities)]


def segment_bars(results: Results) -> tuple[SegmentBar, ...]:
    """Return the step by cause, and the wall time of training by cause if much of it is outside averaged steps."""
    diagnosis = results["diagnosis"]
    time = diagnosis.summary.step_time_ms
    if time is None or not diagnosis.parts:
        return ()
    on_host = f" on {diagnosis.host}" if diagnosis.host else ""
    # Averages over hosts are not of the steps of any one host.
    hosts = [each for each in results.hosts if each.host == diagnosis.host or len(results.hosts) == 1]
    values = [(each["steps"].steps.duration_ps[each["steps"].steps.headline] / PS_PER_MS).tolist() for each in hosts]
    step = SegmentBar(
        title=f"Step by cause{on_host}",
        short_title="step",
        unit="ms",
        total=time.average,
        segments=segments_of(diagnosis, diagnosis.parts, time.average),
        spread=(time.p5, time.median, time.p95),
        values=tuple(values[0]) if values else (),
    )
    if not diagnosis.wall_parts or diagnosis.wall_ms is None:
        return (step,)
    segments = segments_of(diagnosis, diagnosis.wall_parts, diagnosis.wall_ms)
    others = ", with steps of other kinds," if results["wall"].evaluation_ps else ""
    title = f"Wall time per step{others} by cause{on_host}"
    wall = SegmentBar(title=title, short_title="wall", unit="ms", total=diagnosis.wall_ms, segments=segments)
    return (step, wall)


def segments_of(diagnosis: Diagnosis, parts: Sequence[Part], whole_ms: float) -> tuple[Segment, ...]:
    """Return the parts by role and size; small ones without a cause are left out."""
    segments = []
    for part in parts:
        value = part.percent * whole_ms / 100.0
        cause = next(iter(diagnosis.named(part.cause)), None)
        share = f"{format_percent(part.percent)}%"
        if cause is not None and cause.cost_percent is not None and cause.cost_ms is not None:
            share = stated(cause.cost_percent) if part.percent == cause.cost_percent.high else share
            gain_ms = (cause.gain_percent or 0.0) * cause.step_ms / 100.0
            saved = value * min(max(gain_ms / cause.cost_ms.high, 0.0), 1.0)
            role = CAUSE_MEANINGS[cause.code].role
            keys = dict.fromkeys(each for key in part.taken for each in _SHOWN_IN.get(key, (key,)))
            segment = Segment(role=role, title=cause.title, value=value, share=share, saved=saved, code=cause.code)
            segments.append(replace(segment, categories=tuple(CATEGORY_TITLES[key] for key in keys)))
        elif part.percent >= _LEAST_SHARE:
            role, title = REST[part.category]
            segments.append(Segment(role=role, title=title, value=value, share=share))
    order = [*ROLES]
    return tuple(sorted(segments, key=lambda each: (order.index(each.role), not each.code, -each.value)))


def _is_full(diagnosis: Diagnosis) -> bool:
    return sum(not cause.is_aside for cause in diagnosis.causes) >= _SHOWN


def document(results: Results) -> Mapping[str, Any]:
    """Return the object `diagnosis` of the JSON document."""
    diagnosis = results["diagnosis"]
    return {
        "headline": diagnosis.headline,
        "causes": [_cause(cause) for cause in diagnosis.causes],
        "computed": [{"name": each.name, "percent": each.percent, "place": each.place} for each in diagnosis.computed],
        "bars": [_bar(bar) for bar in segment_bars(results)],
        "unjudged": [{"code": code, "why": why} for code, why in diagnosis.unjudged.items()],
    }


def _cause(cause: Cause) -> dict[str, Any]:
    same = ("code", "title", "kind", "detail", "confidence", "of", "wall_share")
    return {
        **{key: getattr(cause, key) for key in same},
        "url": cause.actions[0].url if cause.actions else "",
        "cost_ms": _range(cause.cost_ms),
        "cost_percent": _range(cause.cost_percent),
        "gain_percent": cause.gain_percent,
        "rests_on": [{"section": each.section, "table": each.table, "row": each.row} for each in cause.rests_on],
        "actions": [
            {
                **{key: getattr(action, key) for key in ("code", "text", "assumption", "url")},
                "step_ms": _range(action.step_ms),
            }
            for action in cause.actions
        ],
    }


def _bar(bar: SegmentBar) -> dict[str, Any]:
    segments = [
        {
            **{key: getattr(each, key) for key in ("role", "title", "code")},
            "ms": each.value,
            "percent": 100.0 * each.value / bar.total,
            "saved_ms": each.saved,
        }
        for each in bar.segments
    ]
    return {"title": bar.title, "ms": bar.total, "segments": segments}


def _range(value: Any) -> dict[str, float | None]:
    return {"low": value and value.low, "high": value and value.high}
