from __future__ import annotations

from pathlib import Path

from builders import line
from sections.tfdata.made_pipelines import analyzed, steps, waiting_job

from tfperf.sections.tfdata.advice import actions_of, pipeline_advice


def test_findings_are_the_changes_in_their_order(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="DecodeJpeg"))
    advice, actions = [*pipeline_advice(tfdata, "train step")], actions_of(tfdata)
    assert [finding.code for finding in advice] == [action.code for action in actions]
    assert [finding.action for finding in advice] == [action.text for action in actions]
    assert advice[0].text == f"{actions[0].why} {actions[0].gain}"


def test_they_are_problems_where_steps_wait_long(tmp_path: Path) -> None:
    for busy_us, severity in ((60, "problem"), (12, "hint")):
        advice = pipeline_advice(
            analyzed(tmp_path, *waiting_job("Map", busy_us=busy_us, op="DecodeJpeg")), "train step"
        )
        assert {finding.severity for finding in advice} == {severity}


def test_without_a_pipeline_there_is_none(tmp_path: Path) -> None:
    assert not [*pipeline_advice(analyzed(tmp_path, line("python", *steps())), "train step")]
