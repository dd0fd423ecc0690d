"""From results to a report: the one loop over sections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tfperf.report.model import Report, Section
from tfperf.sections.overview.section import report_summary
from tfperf.sections.registry import find_section, section_names
from tfperf.sections.results import Results
from tfperf.sections.spec import SectionSpec, call

ALWAYS = ("steps", "overview")
"""The sections that the summary of every report rests on."""


def assemble(results: Results, sections: Sequence[str] = ()) -> Report:
    """Return the report of the named sections, in the order of the registry; without names, of all analyzed ones."""
    names = [name for name in section_names() if name in (sections or results.sections)]
    source = {
        "run": results.run.name,
        "folder": str(results.run.folder),
        "hosts": [host.host for host in results.hosts],
        "attribution": results.attribution,
    }
    return Report(source, report_summary(results), tuple(_build(find_section(name), results) for name in names))


def _build(spec: SectionSpec, results: Results) -> Section:
    if spec.without_device and not results.has_device:
        return Section(spec.name, spec.title, notes=(spec.without_device,), level="full")
    section: Section = call(spec.build, results)
    return replace(section, name=spec.name, is_lead=spec.is_lead)
