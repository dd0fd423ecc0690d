"""The context of rules: the average step of one kind, the results of other sections, and the time budget of causes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.registry import HostResults, Results
from tfperf.base.units import PS_PER_MS, without_middle
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.catalogue import ADVICE, with_open_conditions
from tfperf.sections.diagnosis.cause import Action, Cause, Confidence, Evidence, Range, Whole
from tfperf.sections.diagnosis.program import Program
from tfperf.sections.memory.section import batch_that_fits
from tfperf.sections.overview.summary import Summary, of_steps
from tfperf.sections.tfdata.whatif import faster_without, with_noise
from tfperf.trace.steps.categories import CATEGORY_TITLES
from tfperf.trace.steps.steps import INFERENCE

if TYPE_CHECKING:
    from tfperf.sections.hosts.analysis import Hosts, Straggler
    from tfperf.sections.wall.analysis import Wall

LEAST_PERCENT = 2.0
"""Minimum share of the step for a cause."""
ENOUGH_STEPS = 3
WITHOUT_ESTIMATE = 0.5
"""Assumed saving of an action without an estimate, as a share of the cost. It is a guess, and only ranks causes."""
LONGEST_NAME = 40
"""Longer names from the trace are shortened in the middle in sentences."""


def op_and_place(name: str, place: str) -> str:
    """Return the name of an op for a sentence, followed by its layer or line, if it has any."""
    named = without_middle(name, LONGEST_NAME)
    return f"{named} ({without_middle(place, LONGEST_NAME)})" if place else named


class Case(Struct, frozen=True, kw_only=True):
    """The average step of a kind; `is_headline`: the kind of the headline values.

    `results` cover the steps of this kind.
    """

    results: Results
    program: Program
    summary: Summary
    ledger: Ledger
    unknown: frozenset[str]
    step_ms: float
    is_headline: bool
    of: Whole = "step"
    """Whole that percentages refer to."""
    pace: int | None = None
    """The host whose steps these are, if it sets the pace of several; None for averages over hosts."""

    @property
    def straggler(self) -> Straggler | None:
        """Return the straggler; None without one, or if these steps are not the headline kind."""
        return self.hosts.straggler if self.is_headline and not self.results.is_other_kind else None

    @property
    def wall(self) -> Wall | None:
        """Return the wall time of training; None if it is unknown, or if these steps are not the headline kind."""
        is_main = self.is_headline and not self.results.is_other_kind
        return self._wall_of_kind if is_main else None

    @property
    def _wall_of_kind(self) -> Wall | None:
        wall = self.of_pace["wall"]
        is_known = wall.kind == self.summary.kind and wall.steady_count and wall.steady_ps
        return wall if is_known else None

    @property
    def wall_share(self) -> float:
        """Return the share of the wall time of training in steps like the average one, from 0 to 1."""
        wall = self._wall_of_kind
        if wall is None or self.of == "wall":
            return 1.0
        return min(1.0, wall.steady_count * self.step_ms * PS_PER_MS / wall.steady_ps)

    @property
    def _fastest_ms(self) -> float:
        """Return the minimum time of a step without costs outside averaged steps, with noise; 0 if it is unknown."""
        wall = self._wall_of_kind if self.of == "wall" else None
        fastest_ms = 0.0 if wall is None else (wall.fastest_ps or 0) / PS_PER_MS
        return with_noise(fastest_ms, fastest_ms)[0]

    def over_wall(self) -> Case:
        """Return the same case with percentages and estimates relative to wall time per step; requires `wall`."""
        wall = self.wall
        if wall is None:
            raise ValueError("the wall time is unknown")
        step_ms = wall.steady_ps / wall.steady_count / PS_PER_MS
        return replace(self, step_ms=step_ms, ledger=Ledger(step_ms, {}), of="wall")

    @property
    def feeds_keras_arrays(self) -> bool:
        """Return whether Keras makes the batches from arrays, so that the program has no pipeline to change."""
        main = self.results["tfdata"].main
        return main is not None and main.is_of_keras_arrays

    @property
    def hosts(self) -> Hosts:
        """Return the comparison of hosts."""
        return self.results["hosts"]

    @property
    def host(self) -> str:
        """Return the name of the host that sets the pace; empty without one."""
        return "" if self.pace is None else self.results.hosts[self.pace].host

    @property
    def of_pace(self) -> Results | HostResults:
        """Return the results of the host that sets the pace, else of all hosts."""
        return self.results if self.pace is None else self.results.hosts[self.pace]

    @property
    def tensorflow_version(self) -> tuple[int, int] | None:
        """Return the lowest version of TensorFlow on the hosts; None if unknown."""
        texts = {host.facts.tensorflow_version or "" for host in self.results["environment"]}
        found = [re.match(r"(\d+)\.(\d+)", text) for text in texts]
        known = [(int(version[1]), int(version[2])) for version in found if version]
        return min(known) if known and len(known) == len(found) else None

    def share(self, category: str) -> float:
        """Return the share of a category in the step, in percent; 0 if unknown."""
        return 0.0 if category in self.unknown else self.summary.percent[category]

    def quantity(self, key: str, percent: float) -> Quantity:
        """Return a share of these steps as a quantity."""
        return Quantity(key, percent, "%", of_steps(self.summary.kind, self.host))

    def of_whole(self, whole: Quantity, cost_percent: Range) -> tuple[str, tuple[Quantity, ...]]:
        """Return a clause that names the whole of a cost, with its number; empty if the cost is all of it."""
        is_all = str(whole) == str(self.quantity(whole.key, cost_percent.high))
        return ("", ()) if is_all else (f", part of {whole} in total", (whole,))

    def matters(self, *parts: str) -> bool:
        """Return whether the remaining share of the categories is enough for a cause."""
        return self.ledger.left(*parts) >= LEAST_PERCENT

    def waiting(self, percent: float) -> dict[str, float]:
        """Return waiting for results by category, in percent of the step, as far as no cause has claimed it.

        Events of waiting are in Host compute. In JAX, mostly Python frames show it: the part of All others in calls.
        """
        percent = max(percent - self.ledger.of_waits, 0.0)
        left, outside = self.ledger.left("all_others"), self.program.outside_calls_percent
        in_calls = 0.0 if self.program.api != "jax" or outside is None else max(left - outside, 0.0)
        in_frames = min(percent, in_calls)
        in_events = min(percent - in_frames, self.ledger.left("host_compute"))
        return {"host_compute": in_events, "all_others": min(percent - in_events, left)}

    def action(
        self,
        code: str,
        cost_percent: Range,
        share: Range | None = None,
        assumption: str = "",
        *,
        rest_gets_faster: bool = True,
    ) -> Action | None:
        """Return an action that saves a share of this cost; None if it does not apply to this API.

        `share` (0 to 1) and its assumption are from the trace, if available; else those of the advice. At best, the
        remaining work of a step on a host gets faster, too (`faster_without`), unless the cost includes that already;
        waiting for input does not. If the cost is outside averaged steps, these show how fast the rest gets.
        """
        advice = ADVICE[code]
        text = advice.text(self.program.api, is_tpu=self.program.is_tpu)
        if text is None:
            return None
        text = with_open_conditions(text, self.tensorflow_version)
        if code == "larger_batch" and (fits := batch_that_fits(self.results)) is not None:
            text += f": {fits.examples:,} may fit in memory"
        if code == "larger_batch" and self.summary.kind == INFERENCE:
            text += ", if each request may take longer"
        share = share or Range(*advice.saves)
        least, most = cost_percent.low * share.low / 100.0, cost_percent.high * share.high / 100.0
        rest_ms = Range(1.0 - most, 1.0 - least).scaled(self.step_ms)
        is_on_host = not self.results.has_device and not self.results.has_several_hosts
        rest_gets_faster &= is_on_host and not advice.is_per_examples
        waits_ms = 0.0
        if (time := self.summary.step_time_ms) is not None:
            waits_percent = self.share("input_wait") + self.share("host_to_device")
            waits_ms = min(waits_percent / 100.0 * time.average, rest_ms.low)
        low_ms = waits_ms + faster_without(most, rest_ms.low - waits_ms) if rest_gets_faster else rest_ms.low
        low_ms = max(low_ms, min(self._fastest_ms, rest_ms.low))
        return Action(
            code=code,
            text=text,
            step_ms=Range(low_ms, rest_ms.high),
            rest_ms=rest_ms,
            assumption=assumption or advice.assumption,
            url=advice.page(self.program.api, is_tpu=self.program.is_tpu),
            snippet=advice.snippet(self.program.api, is_tpu=self.program.is_tpu),
            is_per_examples=advice.is_per_examples,
        )

    def without_estimate(self, code: str) -> Action | None:
        """Return an action without an estimate; None if it does not apply to this API."""
        action = self.action(code, Range(0.0, 0.0))
        return None if action is None else replace(action, step_ms=None, rest_ms=None)

    def cause(  # noqa: PLR0913  (the fields of a cause)
        self,
        code: str,
        title: str,
        cost_percent: Range | None,
        detail: str,
        *,
        actions: Sequence[Action | str | None],
        rests_on: Sequence[Evidence] = (),
        confidence: Confidence = "high",
        quantities: Sequence[Quantity] = (),
    ) -> Cause:
        """Return a cause; actions given by code save a share of its cost. The best action comes first.

        A cause with cost None is not a part of the average step, and has no gain.
        """
        # A cause has at most the confidence of the steps, and few steps never have high confidence.
        order: tuple[Confidence, ...] = ("high", "medium", "low")
        sure = self.results["steps"].steps.confidence
        bounds: list[Confidence] = [confidence, sure if sure in order else "low"]
        if self.summary.averaged_count < ENOUGH_STEPS:
            bounds.append("medium")
        share = cost_percent or Range(0.0, 0.0)
        made = [self.action(each, share) if isinstance(each, str) else each for each in actions]
        ranked = sorted((each for each in made if each is not None), key=self._likely_ms)
        gains_ms = [self.step_ms - self._likely_ms(each) for each in ranked if cost_percent is not None]
        if any(each.step_ms is None for each in ranked):
            gains_ms.append(WITHOUT_ESTIMATE * share.high * self.step_ms / 100.0)
        return Cause(
            code=code,
            title=title,
            kind=self.summary.kind,
            cost_ms=None if cost_percent is None else self.ledger.ms(cost_percent),
            cost_percent=cost_percent,
            detail=detail,
            confidence=max(bounds, key=order.index),
            rests_on=tuple(rests_on),
            actions=tuple(ranked),
            gain_ms=max(gains_ms, default=0.0),
            step_ms=self.step_ms,
            quantities=tuple(quantities),
            host=self.host,
            of=self.of,
            wall_share=self.wall_share,
        )

    def _likely_ms(self, action: Action) -> float:
        return self.step_ms if action.likely_ms is None else action.likely_ms


def count_devices(case: Case) -> tuple[int, int]:
    """Return the number of unused devices (`idle.DOES_NOTHING`), and the number of listed devices."""
    environment = case.results["environment"]
    silent = sum(host.idle_devices for host in environment)
    if case.results.has_device:
        idle = case.results["idle"]
        silent += len(idle.idle_devices) - sum(device.use == "silent" for device in idle.uses)
    return silent, sum(host.device_count + host.idle_devices for host in environment)


def in_categories(category: str) -> Evidence:
    """Return the row of a category in the table of the average step."""
    return Evidence("overview", "categories", CATEGORY_TITLES[category])


_PARTS = (
    "compilation",
    "output",
    "input_wait",
    "host_to_device",
    "kernel_launch",
    "host_compute",
    "device_collectives",
    "device_to_device",
    "device_compute",
    "all_others",
)


class Ledger:
    """Step time of one kind by category, in percent, and the part that no cause has claimed yet.

    The nine categories add up to the step. A cause claims a part of a category, and no other cause can claim the same
    part, so all claims together never exceed the step.
    """

    def __init__(self, step_ms: float, percent: Mapping[str, float], unknown: frozenset[str] = frozenset()) -> None:
        self.step_ms = step_ms
        self.of_ops, self.of_exchanges = 0.0, 0.0
        """Claimed shares of Host compute in which ops run, and in which replicas exchange data."""
        self.of_kernels = 0.0
        """Share of Host compute in kernels of eager ops, if eager execution costs little of it."""
        self.of_waits = 0.0
        """Claimed share of the step in which the device is idle because of API calls that wait for it."""
        self._left = {part: percent.get(part, 0.0) for part in _PARTS if part not in unknown}

    def left(self, *parts: str) -> float:
        """Return the share of categories that is not claimed yet, in percent."""
        return sum(self._left.get(part, 0.0) for part in set(parts))

    def claim(self, *parts: str, most: float | None = None, least: float | None = None) -> Range:
        """Claim the rest of the categories, or at most `most` percent of it; return the range in percent.

        `least` is the low end of a cost known only as a range; the whole range is claimed.
        """
        share = self.left(*parts) if most is None else min(most, self.left(*parts))
        rest = share
        for part in parts:
            taken = min(self._left.get(part, 0.0), rest)
            if part in self._left:
                self._left[part] -= taken
            rest -= taken
        return Range(share if least is None else min(least, share), share)

    @property
    def unclaimed(self) -> Mapping[str, float]:
        """Return the share of each category that is not claimed yet, in percent."""
        return dict(self._left)

    def ms(self, percent: Range) -> Range:
        """Return a share of the step in milliseconds."""
        return percent.scaled(self.step_ms / 100.0)


def ledger_of(summary: Summary, unknown: frozenset[str]) -> Ledger:
    """Return the ledger of the average step of a kind; the summary must have steps."""
    if summary.step_time_ms is None:
        raise ValueError("a ledger needs steps")
    return Ledger(summary.step_time_ms.average, summary.percent, unknown)
