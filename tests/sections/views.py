"""A section as people see it, in a whole report and by name."""

from __future__ import annotations

from tfperf.report.model import Report, Section
from tfperf.report.shown import Detail, shown

WHOLE_REPORT, BY_NAME = Detail("brief", "brief"), Detail("full", "full")


def seen(section: Section, detail: Detail = BY_NAME) -> Section:
    (result,) = shown(Report({}, {}, (section,)), detail).sections
    return result


def codes(section: Section) -> list[str]:
    return [finding.code for finding in section.findings]


def names(section: Section) -> list[str]:
    return [table.name for table in section.tables]
