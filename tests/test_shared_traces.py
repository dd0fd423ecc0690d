"""What is said of devices and input in traces of other people's jobs, which are no part of the project.

Expected numbers are from the files: event counts of lines, planes and names, and what each job was.
"""

from __future__ import annotations

import pytest
from builders import known
from places import TRACES

import tfperf
from tfperf.analysis.load import Analysis
from tfperf.analysis.registry import AnySection
from tfperf.sections.tfdata.advice import actions_of, blamed_stage

WORKER = "gpu_8xV100_worker"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the real traces are not here")


def loaded(folder: str, *sections: AnySection) -> Analysis:
    if not (TRACES / folder).is_dir():
        pytest.skip(f"{folder} is not there")
    return tfperf.load(TRACES / folder, sections=sections)


@pytest.fixture(scope="module")
def worker() -> Analysis:
    """BERT on a worker with eight GPUs: 4 and 6 ran kernels, the step is one of GPU 6; 1 copied, five are silent."""
    return loaded(WORKER, "idle", "memory", "environment", "kernels", "steps")


def test_idle_time_is_of_the_one_device_in_the_step(worker: Analysis) -> None:
    idle = worker["idle"]
    assert len(idle.listed) == 8
    assert [device.device for device in idle.averaged] == ["/device:GPU:6"]
    assert {gap.device for gap in idle.gaps} == {"/device:GPU:6"}
    assert idle.gaps[0].duration_ps < 3e9, "the gaps of 21.3 ms are those of devices without work in the step"
    assert [device.label for device in idle.idle_devices] == [f"GPU:{number}" for number in (0, 1, 2, 3, 5, 7)]


def test_the_capture_is_one_span_on_one_clock(worker: Analysis) -> None:
    """From 128.7 to 2775.3 ms: events of threads, allocations among them. The step is at 2569 to 2590 ms."""
    (environment,) = worker["environment"]
    start_ms, end_ms = environment.start_ps / 1e9, (environment.start_ps + environment.duration_ps) / 1e9
    assert (start_ms, end_ms) == pytest.approx((128.685703, 2775.279351))
    assert {device.wall_ps for device in worker["kernels"].devices} == {environment.duration_ps}
    allocators = worker["memory"].allocators
    assert all(start_ms <= time <= end_ms for each in allocators for time in each.timeline.time_ms.tolist())
    fullest = allocators[0]
    (step,) = worker["steps"].table.to_dict("records")
    assert step["start_ms"] <= fullest.peak_ms <= step["start_ms"] + step["step_time_ms"]
    assert fullest.peak_step == step["step"]


def test_kernels_that_name_half_are_in_16_bit(worker: Analysis) -> None:
    """Of 1,330 kernels, all but two `Reciprocal` name `half`."""
    steps = worker["steps"]
    assert steps.compute_16_ps / steps.compute_ps > 0.999
    assert steps.compute_unknown_ps == 0
    as_tensorflow = tfperf.load(TRACES / WORKER, sections=("steps",), attribution="tensorflow")["steps"]
    assert as_tensorflow.compute_16_ps / as_tensorflow.compute_ps == pytest.approx(0.305, abs=0.001)


def test_private_threads_show(worker: Analysis) -> None:
    assert {launches.thread_mode for launches in worker["kernels"].launches} == {"gpu_private"}


@pytest.mark.parametrize("folder", ["gpu_bs512-20210202-131913", "gpu_bs512-20210202-132033"])
def test_ops_of_21_steps_have_21_runs(folder: str) -> None:
    """Each step runs each op of the model once; of one gradient, a run launches one kernel twice."""
    table = loaded(f"keras_rtx5000/{folder}", "ops")["ops"].device
    ops = dict(zip(table.names, zip(table.occurrences.tolist(), table.total_ps.tolist(), strict=True), strict=True))
    runs, total_ps = ops["gradient_tape/sequential/conv2d_1/Conv2D/Conv2DBackpropFilter"]
    assert runs == 21
    assert 0.69e9 < total_ps / runs < 0.72e9
    assert ops["sequential/conv2d/Relu"][0] == 21, "the line of ops splits its runs"
    assert {count for name, (count, _) in ops.items() if name.startswith("Adam/")} == {21}
    assert not table.counts_kernels.any()


def test_runs_of_hlo_ops_are_those_of_the_host() -> None:
    """Eight devices, five calls: `cudnn-conv.1` ran 40 times with 79 kernels."""
    table = loaded("jax_mi300x/jax_conv_minimal_08", "ops")["ops"].device
    counts = {key.hlo_op: count for key, count in zip(table.keys, table.occurrences.tolist(), strict=True)}
    assert counts["cudnn-conv.1"] == 40


def test_what_16_bit_could_do_is_a_part_of_the_step() -> None:
    """The device computes for 44 % of the step; 55 % of its kernel time is of products and convolutions."""
    (device,) = loaded("keras_rtx5000/gpu_bs512-20210202-131913", "kernels")["kernels"].precision
    assert device.eligible_percent == pytest.approx(24.4, abs=0.1)
    assert device.most_eligible_percent == pytest.approx(24.5, abs=0.1)


# --- memory ---


def test_a_larger_batch_that_fits_is_named() -> None:
    """16 examples use less than a fifth of the device, so that 64 fit even if all of it grows."""
    (overhead, *_) = loaded("keras_rtx5000/gpu_bs16-20210202-124855", "diagnosis")["diagnosis"].causes
    assert overhead.actions[0].text == "use a larger batch: 64 may fit in memory"


# --- input ---


def busy_percent(analysis: Analysis) -> dict[str, float | None]:
    (pipeline,) = analysis["tfdata"].pipelines
    return {
        stage.name: None if stage.busy_ps is None else 100.0 * stage.busy_ps / pipeline.capture_ps
        for stage in pipeline.stages
    }


def test_a_function_that_is_queued_is_not_at_work() -> None:
    # Executors work on its functions for 53.1 of 141.9 ms, the thread that starts them for 2.
    busy = busy_percent(loaded("cpu_keras3/slow_map", "tfdata"))
    assert busy["MapAndBatch"] == pytest.approx(38.5, abs=0.1)
    assert (busy["Prefetch"] or 0.0) < 0.1


def test_a_prefetch_that_waits_for_a_map_is_not_at_work() -> None:
    busy = busy_percent(loaded("steps_tf221/loop", "tfdata"))
    assert (busy["Prefetch"] or 0.0) < 0.1
    assert busy["Map"] == pytest.approx(84.6, abs=0.1)


def test_busy_is_a_share_of_the_capture() -> None:
    # 0.44 ms of a capture of 10.8, not of the 0.48 ms between the first event of the pipeline and the last.
    busy = busy_percent(loaded("keras_t4/2022_11_04_21_26_12", "tfdata"))
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
    tfdata = loaded("keras_t4/2022_11_04_21_26_12", "tfdata")["tfdata"]
    assert tfdata.outlook is None
    assert (known(tfdata.no_outlook).steps, known(tfdata.no_outlook).calls_before) == (1, 1)
    assert actions_of(tfdata) == ()


def test_writing_a_function_anew_has_no_estimate() -> None:
    actions = actions_of(loaded("steps_tf221/loop", "tfdata")["tfdata"])
    assert [(action.code, action.low_ms is not None) for action in actions] == [
        ("cache", True),
        ("parallel_map", True),
        ("python_function", False),
    ]
