"""From results to a report: the one loop over sections."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tfperf.report.model import Report, Section
from tfperf.sections.overview.section import report_summary
from tfperf.sections.registry import OURS, described, find_section, omission, omitted_sections, section_names
from tfperf.sections.results import Results
from tfperf.sections.spec import call

ALWAYS = ("steps", "overview")
"""The sections that the summary of every report rests on."""


def assemble(results: Results, sections: Sequence[str] = ()) -> Report:
    """Return the report of the named sections, in the order of the registry; without names, of all analyzed ones."""
    omitted = dict(results.omitted)
    built: list[Section] = []
    for name in section_names():
        if name not in (sections or results.sections) or name in omitted:
            continue
        spec = find_section(name)
        if spec.without_device and not results.has_device:
            built.append(Section(spec.name, spec.title, notes=(spec.without_device,), level="full"))
            continue
        try:
            built.append(replace(call(spec.build, results), name=spec.name, is_lead=spec.is_lead))
        except Exception as error:
            if name in OURS:
                raise
            omitted[name] = described(error)
    source = {
        "run": results.run.name,
        "folder": str(results.run.folder),
        "hosts": [host.host for host in results.hosts],
        "attribution": results.attribution,
    }
    lines = (*omitted_sections(), *(omission(name, reason) for name, reason in omitted.items()))
    return Report(source, report_summary(results), tuple(built), lines)
