"""What traces of other people's jobs say about their input; they are no part of the project."""

from __future__ import annotations

import pytest
from builders import known
from places import ROOT

import tfperf
from tfperf.analysis.registry import AnySection
from tfperf.sections.tfdata.advice import actions_of, blamed_stage

SHARED = ROOT.parent / "shared" / "traces"


def loaded(folder: str, *sections: AnySection) -> tfperf.Analysis:
    if not (SHARED / folder).is_dir():
        pytest.skip(f"{SHARED / folder} is not there")
    return tfperf.load(SHARED / folder, sections=list(sections or ("tfdata",)))


def busy_percent(analysis: tfperf.Analysis) -> dict[str, float | None]:
    (pipeline,) = analysis["tfdata"].pipelines
    return {
        stage.name: None if stage.busy_ps is None else 100.0 * stage.busy_ps / pipeline.capture_ps
        for stage in pipeline.stages
    }


def test_a_function_that_is_queued_is_not_at_work() -> None:
    # Executors work on its functions for 53.1 of 141.9 ms, the thread that starts them for 2.
    busy = busy_percent(loaded("cpu_keras3/slow_map"))
    assert busy["MapAndBatch"] == pytest.approx(38.5, abs=0.1)
    assert (busy["Prefetch"] or 0.0) < 0.1


def test_a_prefetch_that_waits_for_a_map_is_not_at_work() -> None:
    busy = busy_percent(loaded("steps_tf221/loop"))
    assert (busy["Prefetch"] or 0.0) < 0.1
    assert busy["Map"] == pytest.approx(84.6, abs=0.1)


def test_busy_is_a_share_of_the_capture() -> None:
    # 0.44 ms of a capture of 10.8, not of the 0.48 ms between the first event of the pipeline and the last.
    busy = busy_percent(loaded("keras_t4/2022_11_04_21_26_12"))
    assert busy["ParallelMapV2"] == pytest.approx(4.2, abs=0.1)


def test_functions_are_the_largest_part_of_what_the_host_does() -> None:
    pipeline = loaded("cpu_keras3/slow_map", "input")["input"]
    assert pipeline.largest == "preprocessing"
    assert pipeline.ops[0].name == "function of Iterator::Root::Prefetch::ForeverRepeat::MapAndBatch"
    assert pipeline.ops[0].self_ps == pytest.approx(54.8e9, rel=0.01)
    assert pipeline.parts["preprocessing"].wall_ps > 40 * pipeline.parts["advanced_read"].wall_ps


def test_the_generator_of_a_device_waits_for_the_host() -> None:
    analysis = loaded("gpu_8xV100_worker", "tfdata", "input")
    blame = blamed_stage(analysis["tfdata"])
    assert blame is not None
    assert (blame.stage, blame.reason) == ("Generator", "host_pipeline")
    assert blame.waited_ps == pytest.approx(2 * 6.49e9, rel=0.01)
    assert actions_of(analysis["tfdata"]) == ()
    assert {part for part, time in analysis["input"].parts.items() if time.ops} == {"enqueue", "other"}


def test_one_step_without_a_call_of_the_pipeline_tells_nothing_about_it() -> None:
    tfdata = loaded("keras_t4/2022_11_04_21_26_12")["tfdata"]
    assert tfdata.outlook is None
    assert (known(tfdata.no_outlook).steps, known(tfdata.no_outlook).calls_before) == (1, 1)
    assert actions_of(tfdata) == ()


def test_writing_a_function_anew_has_no_estimate() -> None:
    actions = actions_of(loaded("steps_tf221/loop")["tfdata"])
    assert [(action.code, action.low_ms is not None) for action in actions] == [
        ("cache", True),
        ("parallel_map", True),
        ("python_function", False),
    ]
