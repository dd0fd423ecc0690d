from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import STEPS, analyzed, small_elements, steps, waiting_job

from tfperf.report.model import Finding
from tfperf.sections.tfdata.advice import pipeline_advice
from tfperf.sections.tfdata.analysis import TfData


def advice_of_code(tfdata: TfData, code: str) -> Finding:
    (advice,) = [finding for finding in pipeline_advice(tfdata) if finding.code == code]
    return advice


@pytest.mark.parametrize(
    ("path", "op", "code", "words"),
    [
        (("BatchV2", "Map"), "DecodeJpeg", "sequential_map", "num_parallel_calls=tf.data.AUTOTUNE"),
        (("BatchV2", "Map"), "EagerPyFunc", "python_function", "TensorFlow ops"),
        (("BatchV2", "Generator"), "PyFunc", "generator", "yield file names"),
        (("BatchV2", "TFRecord"), "", "slow_source", "interleave(TFRecordDataset"),
        (("BatchV2",), "", "serial_transformation", "batch(n, num_parallel_calls"),
        (("BatchV2", "Filter"), "Less", "serial_transformation", "copies of the pipeline"),
        (("BatchV2", "FlatMap"), "", "sequential_interleave", "instead of flat_map()"),
        (("ShuffleAndRepeat",), "", "shuffle", "file names"),
        (("MemoryCacheImpl",), "", "cache_cold", "after the first epoch"),
        (("DataServiceV4",), "", "data_service", "workers"),
        (("TensorSlice",), "", "memory_source", "batch before anything else"),
    ],
)
def test_the_stage_that_limits_has_its_advice(
    path: tuple[str, ...], op: str, code: str, words: str, tmp_path: Path
) -> None:
    tfdata = analyzed(tmp_path, *waiting_job(*path, op=op))
    advice = advice_of_code(tfdata, code)
    assert advice.severity == "problem"
    assert words in advice.action
    assert f"{path[-1]} takes 0.060 ms for an element of the pipeline" in advice.text
    codes = [finding.code for finding in pipeline_advice(tfdata)]
    assert ("no_prefetch" in codes) == (path != ("DataServiceV4",)), "the data service works ahead"


def test_python_is_named(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="EagerPyFunc"))
    assert "in a py_function, which holds Python's" in advice_of_code(tfdata, "python_function").text


def test_the_gain_stands_beside_the_advice(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="DecodeJpeg"))
    for code in ("no_prefetch", "sequential_map", "cache"):
        assert "Estimated step time then: 0." in advice_of_code(tfdata, code).text


def test_tiny_elements_are_better_made_in_batches(tmp_path: Path) -> None:
    advice = advice_of_code(analyzed(tmp_path, *small_elements(5, 2)), "vectorize")
    assert advice.text.startswith("MapAndBatch runs its function 25 times, for single elements")


def test_on_a_busy_host_more_threads_gain_nothing(tmp_path: Path) -> None:
    calls = [call("Root", 0, 100 * STEPS, 1, cpu_budget=1), call("Root::Map", 0, 100 * STEPS, 2, 1)]
    advice = advice_of_code(analyzed(tmp_path, line("python", *steps(), *calls)), "host_cpu_full")
    assert "data.experimental.service" in advice.action
    assert "max_intra_op_parallelism = 1" in advice.action


def test_a_pipeline_that_keeps_nobody_waiting_needs_no_advice(tmp_path: Path) -> None:
    assert pipeline_advice(analyzed(tmp_path, *waiting_job("Map", busy_us=2, op="DecodeJpeg"))) == ()
    assert pipeline_advice(analyzed(tmp_path, line("python", event("train", 0, 10)))) == ()


def test_without_steps_slow_calls_are_reason_enough(tmp_path: Path) -> None:
    slow = analyzed(tmp_path, line("a", call("Root", 0, 60, 1), call("Root::Map", 0, 60, 2, 1)))
    assert [finding.code for finding in pipeline_advice(slow)] == ["no_prefetch", "sequential_map"]
    quick = analyzed(tmp_path, line("a", call("Root", 0, 20, 1), call("Root::Map", 0, 20, 2, 1)))
    assert pipeline_advice(quick) == ()
