"""The report section with pictures of steps, and the selection among hosts."""

from __future__ import annotations

from msgspec.structs import replace

from tfperf.analysis.registry import Results
from tfperf.base.errors import TfperfError
from tfperf.base.units import listed
from tfperf.report.model import Fact, Section, StepPicture
from tfperf.sections.hosts.analysis import Hosts
from tfperf.sections.timeline.analysis import DrawnSteps, hosts_together

MOST_PICTURES = 3


def build(results: Results) -> Section:
    """Return the section. Raise TfperfError if no host has the requested step."""
    drawn: DrawnSteps = results["timeline"]
    if drawn.lacks_asked_step:
        raise TfperfError(drawn.why_none)
    if drawn.why_none:
        return Section("timeline", "Timeline", notes=(f"No step is drawn: {drawn.why_none}.",))
    pictures = _shown(results, drawn)
    together = hosts_together(results) if results.has_several_hosts else None
    # Text for formats without pictures.
    steps = listed([f"{picture.step} on {picture.host}" for picture in pictures])
    facts = (Fact("drawn_steps", "Steps drawn in the HTML report", steps, level="data"),)
    return Section("timeline", "Timeline", facts=facts, charts=pictures if together is None else (together, *pictures))


def _shown(results: Results, drawn: DrawnSteps) -> tuple[StepPicture, ...]:
    """Return the pictures to show: the steps of a straggler, then the median step of one host and the slowest steps."""
    if not results.has_several_hosts:
        return drawn.pictures[:MOST_PICTURES]
    hosts: Hosts = results["hosts"]
    late = hosts.straggler.host if hosts.straggler is not None else ""
    of_late = [picture for picture in drawn.pictures if picture.host == late]
    others = [picture for picture in drawn.pictures if picture.host != late]
    slowest = sorted(others, key=lambda picture: -picture.duration_ns)
    chosen = [*of_late[-2:], *others[:1], *slowest]
    kept = list({id(picture): picture for picture in chosen}.values())[:MOST_PICTURES]
    return tuple(replace(picture, title=f"{picture.host}: {picture.title}") for picture in kept)
