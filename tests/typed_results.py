"""Results of sections have types: mypy reads this file with the others, and an unknown name in it would fail there.

Each `type: ignore` states what must be an error; mypy reports one that is not needed.
"""

from __future__ import annotations

from typing import Any, assert_type

import tfperf
from tfperf.analysis.registry import Host, OtherSection
from tfperf.sections.diagnosis.cause import Diagnosis
from tfperf.sections.diagnosis.program import ProgramTimes
from tfperf.trace.steps.breakdown import Breakdown


def typed(analysis: tfperf.Analysis, host: Host) -> None:
    assert_type(analysis["overview"].input_percent, float | None)
    assert_type(analysis["diagnosis"], Diagnosis)
    assert_type(analysis.hosts[0]["diagnosis"], ProgramTimes)
    assert_type(host["steps"], Breakdown)
    assert_type(analysis["a_section_of_another_package"], Any)
    print(analysis["overview"].input_percents)  # type: ignore[attr-defined]


def named(path: str) -> None:
    tfperf.load(path, sections=["steps", OtherSection("a_section_of_another_package")])
    tfperf.load(path, sections=["stepz"])  # type: ignore[list-item]
    tfperf.check(path, max_input_bound="10%")
    tfperf.check(path, max_inputbound="10%")  # type: ignore[call-arg]
