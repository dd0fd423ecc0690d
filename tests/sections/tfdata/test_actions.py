"""What to change, and where it leads: each estimate is that of its own change."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Line, event, host_of, line, plane, trace_of
from builders import iterator_call as call
from sections.tfdata.made_pipelines import STEP, STEPS, analyzed, inline_map, repeat, small_elements, steps, waiting_job

from tfperf.formats.wire.capture_plane import CAPTURE_PLANE
from tfperf.sections.tfdata.advice import PipelineAction, actions_of
from tfperf.sections.tfdata.analysis import TfData


def codes(tfdata: TfData) -> list[str]:
    return [action.code for action in actions_of(tfdata)]


def action_of(tfdata: TfData, code: str) -> PipelineAction:
    (action,) = [action for action in actions_of(tfdata) if action.code == code]
    return action


@pytest.mark.parametrize(
    ("path", "op", "code", "words"),
    [
        (("BatchV2", "Map"), "DecodeJpeg", "parallel_map", "num_parallel_calls=tf.data.AUTOTUNE"),
        (("BatchV2", "Map"), "EagerPyFunc", "python_function", "TensorFlow ops"),
        (("BatchV2", "Generator"), "PyFunc", "generator", "yield file names"),
        (("BatchV2", "TFRecord"), "", "parallel_read", "interleave(TFRecordDataset"),
        (("BatchV2",), "", "serial_transformation", "batch(n, num_parallel_calls"),
        (("BatchV2", "Filter"), "Less", "serial_transformation", "copies of the pipeline"),
        (("BatchV2", "FlatMap"), "", "sequential_interleave", "instead of flat_map()"),
        (("ShuffleAndRepeat",), "", "shuffle", "file names"),
        (("MemoryCacheImpl",), "", "cache_cold", "after the first epoch"),
        (("DataServiceV4",), "", "data_service", "workers"),
        (("TensorSlice",), "", "memory_source", "batch before anything else"),
    ],
)
def test_the_stage_that_limits_has_its_change(
    path: tuple[str, ...], op: str, code: str, words: str, tmp_path: Path
) -> None:
    tfdata = analyzed(tmp_path, *waiting_job(*path, op=op))
    action = action_of(tfdata, code)
    assert words in action.text
    assert f"{path[-1]} takes 0.060 ms for an element of the pipeline" in action.why
    assert action.stage == path[-1]
    assert action.url.startswith("https://www.tensorflow.org/")
    assert ("prefetch" in codes(tfdata)) == (path != ("DataServiceV4",)), "the data service works ahead"


def test_the_largest_gain_comes_first_and_what_has_no_estimate_last(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *inline_map(60, "EagerPyFunc"))
    actions = actions_of(tfdata)
    assert [action.code for action in actions] == ["cache", "prefetch", "parallel_map", "python_function"]
    middles = [action.low_ms + action.high_ms for action in actions if action.low_ms and action.high_ms]
    assert middles == sorted(middles)
    assert len(middles) == 3


def test_every_estimate_belongs_to_its_own_change(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *inline_map(60, "EagerPyFunc"))
    assert tfdata.outlook is not None
    of_table = {estimate.change: (estimate.low_ms, estimate.high_ms) for estimate in tfdata.outlook.estimates}
    for action in actions_of(tfdata):
        assert (action.low_ms, action.high_ms) == of_table.get(action.code, (None, None)), action.code
        assert bool(action.assumption) == bool(action.gain) == (action.code in of_table)
    rewriting = action_of(tfdata, "python_function")
    assert (rewriting.low_ms, rewriting.gain) == (None, ""), "nobody knows how fast TensorFlow ops would be"
    parallel = action_of(tfdata, "parallel_map")
    assert "lose up to a fifth" in parallel.assumption, "why the range ends above today's step time"


def test_python_is_named(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="EagerPyFunc"))
    assert "in a py_function, which holds Python's" in action_of(tfdata, "python_function").why
    assert "one call of a py_function after the other" in action_of(tfdata, "parallel_map").why


def test_the_gain_is_a_sentence(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="DecodeJpeg"))
    for code in ("prefetch", "parallel_map", "cache"):
        assert action_of(tfdata, code).gain.startswith("Estimated step time then: 0.")


def test_tiny_elements_are_better_made_in_batches(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *small_elements(5, 2))
    assert action_of(tfdata, "vectorize").why.startswith("MapAndBatch runs its function 25 times, for single elements")
    assert "heavy_map" not in codes(tfdata), "not the work of the function is too much, but its overhead"


def test_a_new_cache_is_profiled_when_it_is_full(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("BatchV2", "MemoryCache", "MemoryCacheImpl", "Map", op="DecodeJpeg"))
    first = actions_of(tfdata)[0]
    assert (first.code, first.why) == ("warm_cache", "cache() is not full yet, as in a first epoch.")
    assert first.text.startswith("profile from the second epoch on, when cache() is full")
    assert first.gain
    assert "cache" not in codes(tfdata)


def test_random_work_is_split_before_it_is_kept(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="RandomUniform DecodeJpeg"))
    assert codes(tfdata)[-1] == "split_to_cache"
    assert "cache" not in codes(tfdata)
    split = action_of(tfdata, "split_to_cache")
    assert split.gain == ""
    assert split.text.startswith("ds.map(f1).cache().map(f2), f2 the random part of f, from the second epoch on")
    only_random = codes(analyzed(tmp_path, *waiting_job("Map", op="RandomUniform")))
    assert not {"cache", "split_to_cache"} & {*only_random}, "nothing of it is the same in every epoch"


def test_on_a_busy_host_more_threads_gain_nothing(tmp_path: Path) -> None:
    calls = [call("Root", 0, 100 * STEPS, 1, cpu_budget=1), call("Root::Map", 0, 100 * STEPS, 2, 1)]
    action = action_of(analyzed(tmp_path, line("python", *steps(), *calls)), "host_cpu_full")
    assert "data.experimental.service" in action.text
    assert "max_intra_op_parallelism = 1" in action.text


def with_cores(tmp_path: Path, cores: int, *threads: Line) -> TfData:
    planes = plane("/host:CPU", *threads), plane(CAPTURE_PLANE, stats={"cpu_affinity": cores})
    found: TfData = host_of(trace_of(tmp_path, *planes), "tfdata")["tfdata"]
    return found


def test_on_a_busy_host_nothing_is_advised_that_only_lets_more_threads_work(tmp_path: Path) -> None:
    threads = waiting_job("BatchV2", "Map", op="DecodeJpeg")
    assert "parallel_map" in codes(with_cores(tmp_path, 8, *threads))
    on_one_core = codes(with_cores(tmp_path, 1, *threads))
    assert "parallel_map" not in on_one_core
    assert {"cache", "host_cpu_full"} <= {*on_one_core}


@pytest.mark.parametrize(
    ("busy_cores", "idle_us", "is_known_to_wait"), [(0.3, 0, True), (0.6, 0, False), (0.3, 500, False)]
)
def test_python_that_only_waits_gains_nothing_from_tensorflow_ops(
    tmp_path: Path, busy_cores: float, idle_us: float, is_known_to_wait: bool
) -> None:
    """It runs for 60 of 100 us, of which a process with 0.3 busy cores computes for 30 at most.

    If steps are a part of the capture only, what the process does in them is unknown.
    """
    facts = plane(CAPTURE_PLANE, stats={"cpu_affinity": 2, "busy_cores": busy_cores})
    idle = line("later", event("other", STEP * STEPS, idle_us))
    host_plane = plane("/host:CPU", *waiting_job("Map", op="PyFunc"), idle)
    tfdata: TfData = host_of(trace_of(tmp_path, host_plane, facts), "tfdata")["tfdata"]
    assert tfdata.outlook is not None
    assert tfdata.outlook.python_computes == (0.5 if is_known_to_wait else 1.0)
    assert ("python_function" not in codes(tfdata)) == is_known_to_wait
    assert "parallel_map" in codes(tfdata)


def test_where_cores_have_nothing_to_do_more_at_a_time_comes_before_less_work(tmp_path: Path) -> None:
    # Of 64 us, the step waits 30 for the generator behind a prefetch, which limits the pipeline, then 34 for the batch.
    path = "Root::BatchV2::Prefetch"
    calls = call("Root", 0, 64, 1), call("Root::BatchV2", 0, 64, 2, 1), call(path, 0, 30, 3, 2)
    python = line("python", *steps(), *repeat(STEPS, *calls, every=STEP))
    produced = event("PrefetchProduce", -60, 90), call(f"{path}::Generator", -60, 90, 4, 3)
    reader = line("reader", *repeat(STEPS, *produced, every=STEP))
    one_thread = [action for action in codes(with_cores(tmp_path, 2, python, reader)) if action != "cache"]
    assert one_thread.index("generator") < one_thread.index("serial_transformation")
    with_room = codes(with_cores(tmp_path, 8, python, reader))
    assert with_room.index("serial_transformation") < with_room.index("generator")


def test_a_pipeline_that_keeps_nobody_waiting_needs_no_change(tmp_path: Path) -> None:
    assert actions_of(analyzed(tmp_path, *waiting_job("Map", busy_us=2, op="DecodeJpeg"))) == ()
    assert actions_of(analyzed(tmp_path, line("python", *steps()))) == ()


def test_a_stage_that_nobody_waits_for_is_left_alone(tmp_path: Path) -> None:
    # The reader is the slowest segment, but what the step waits for is the batch stage in its own thread.
    python = line(
        "python",
        *steps(),
        *repeat(STEPS, call("Root", 0, 60, 1), call("Root::BatchV2", 0, 60, 2, 1), every=STEP),
        *repeat(STEPS, call("Root::BatchV2::Prefetch", 0, 1, 3, 2), every=STEP),
    )
    reader = line("reader", *repeat(STEPS, call("Root::BatchV2::Prefetch::Filter", 2, 90, 4, 3), every=STEP))
    tfdata = analyzed(tmp_path, python, reader)
    assert tfdata.main is not None
    assert tfdata.main.limiting == 3
    assert "Filter" not in {action.stage for action in actions_of(tfdata) if action.code != "cache"}
    assert "BatchV2" in {action.stage for action in actions_of(tfdata)}


def unmarked(call_us: float, capture_us: float) -> tuple[Line, Line]:
    """One call of a map in a capture without steps."""
    asked = call("Root", 0, call_us, 1), call("Root::Map", 0, call_us, 2, 1)
    return line("a", *asked), line("b", event("other", capture_us - 1, 1))


def test_without_steps_much_waiting_is_reason_enough(tmp_path: Path) -> None:
    assert codes(analyzed(tmp_path, *unmarked(60, 100))) == ["prefetch", "parallel_map"]
    assert codes(analyzed(tmp_path, *unmarked(60, 10_000))) == [], "nobody waits"
