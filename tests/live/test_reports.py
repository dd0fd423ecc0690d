"""The report of `tfperf doctor`."""

from __future__ import annotations

from tfperf.capture.outcomes import Check
from tfperf.live.sampling import doctor_report
from tfperf.report.render import RenderOptions, render

CHECKS = (
    Check("Python", "ok", "3.11.2"),
    Check("GPU", "warn", "hidden", "unset CUDA_VISIBLE_DEVICES"),
    Check("libcupti", "fail", "not found", "pip install it"),
    Check("port", "ok", "taken", "tfperf doctor --port 6009"),
)


def test_the_table_keeps_the_order_of_the_checks() -> None:
    (table,) = doctor_report(CHECKS).tables()

    assert list(table.rows()) == [(check.name, check.status, check.found, check.fix) for check in CHECKS]


def test_what_to_act_on_stands_above_the_worst_first() -> None:
    findings = doctor_report(CHECKS).sections[0].findings

    assert [(finding.severity, finding.text, finding.action) for finding in findings] == [
        ("problem", "libcupti: not found", "pip install it"),
        ("hint", "GPU: hidden", "unset CUDA_VISIBLE_DEVICES"),
        ("info", "port: taken", "tfperf doctor --port 6009"),
    ]


def test_the_summary_counts_and_names_the_worst() -> None:
    assert doctor_report(CHECKS).summary == {"ok": 2, "warn": 1, "fail": 1, "status": "fail"}
    assert doctor_report(CHECKS[:2]).summary["status"] == "warn"
    assert doctor_report(CHECKS[:1]).summary == {"ok": 1, "warn": 0, "fail": 0, "status": "ok"}


def test_long_texts_are_whole_at_80_columns() -> None:
    check = Check("driver's permission", "warn", "what was found " * 12, "what to try " * 40)

    lines = render(doctor_report([check]), "table", RenderOptions(width=80)).splitlines()

    assert max(map(len, lines)) <= 80
    assert " ".join(lines).count("try") == 41  # Once more, as the mark of the advice.
