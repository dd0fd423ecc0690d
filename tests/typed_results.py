"""Public names and results have types: mypy reads this file, and an unknown name in it would fail there.

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


def known() -> None:
    """If a type checker took a public name for `Any`, the name could have every attribute."""
    print(tfperf.lod)  # type: ignore[attr-defined]
    print(tfperf.Analysis.nothing)  # type: ignore[attr-defined]
    print(tfperf.CaptureError.nothing)  # type: ignore[attr-defined]
    print(tfperf.Captured.nothing)  # type: ignore[attr-defined]
    print(tfperf.Column.nothing)  # type: ignore[attr-defined]
    print(tfperf.Fact.nothing)  # type: ignore[attr-defined]
    print(tfperf.Finding.nothing)  # type: ignore[attr-defined]
    print(tfperf.HostResults.nothing)  # type: ignore[attr-defined]
    print(tfperf.OutputError.nothing)  # type: ignore[attr-defined]
    print(tfperf.Ranked.nothing)  # type: ignore[attr-defined]
    print(tfperf.RemotePath.nothing)  # type: ignore[attr-defined]
    print(tfperf.Sampled.nothing)  # type: ignore[attr-defined]
    print(tfperf.Section.nothing)  # type: ignore[attr-defined]
    print(tfperf.SectionSpec.nothing)  # type: ignore[attr-defined]
    print(tfperf.TableSpec.nothing)  # type: ignore[attr-defined]
    print(tfperf.TfperfError.nothing)  # type: ignore[attr-defined]
    print(tfperf.TfperfWarning.nothing)  # type: ignore[attr-defined]
    print(tfperf.TraceFormatError.nothing)  # type: ignore[attr-defined]
    print(tfperf.TraceNotFoundError.nothing)  # type: ignore[attr-defined]
    print(tfperf.check.nothing)  # type: ignore[attr-defined]
    print(tfperf.diff.nothing)  # type: ignore[attr-defined]
    print(tfperf.keras.nothing)  # type: ignore[attr-defined]
    print(tfperf.lint.nothing)  # type: ignore[attr-defined]
    print(tfperf.load.nothing)  # type: ignore[attr-defined]
    print(tfperf.profile.nothing)  # type: ignore[attr-defined]
    print(tfperf.sample.nothing)  # type: ignore[attr-defined]
    print(tfperf.serve.nothing)  # type: ignore[attr-defined]
    print(tfperf.sql.nothing)  # type: ignore[attr-defined]
    print(tfperf.start.nothing)  # type: ignore[attr-defined]
    print(tfperf.step.nothing)  # type: ignore[attr-defined]
    print(tfperf.stop.nothing)  # type: ignore[attr-defined]
    print(tfperf.tfprof.nothing)  # type: ignore[attr-defined]
    print(tfperf.write_parquet.nothing)  # type: ignore[attr-defined]
    print(tfperf.write_timeline.nothing)  # type: ignore[attr-defined]
