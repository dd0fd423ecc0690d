"""What to change, and where it leads: each estimate is that of its own change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Line, event, known, line, repeat
from builders import iterator_call as call
from sections.tfdata.made_pipelines import (
    STEP,
    STEPS,
    US,
    analyzed,
    each_step,
    in_a_pool,
    inline_map,
    main_of,
    small_elements,
    steps,
    waiting_job,
)

from tfperf.sections.tfdata.advice import (
    Blame,
    PipelineAction,
    actions_of,
    blamed_stage,
    change_in_code,
    in_code,
    pipeline_advice,
    rule_for,
    rule_of_change,
    words,
)
from tfperf.sections.tfdata.analysis import TfData


def test_findings_are_the_changes_in_their_order(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="DecodeJpeg"))
    advice, actions = [*pipeline_advice(tfdata, "training step")], actions_of(tfdata)
    assert [finding.code for finding in advice] == [action.code for action in actions]
    assert [finding.action for finding in advice] == [action.text for action in actions]
    assert advice[0].text == f"{actions[0].why} {actions[0].gain}"


def test_they_are_problems_where_steps_wait_long(tmp_path: Path) -> None:
    for busy_us, severity in ((60, "problem"), (12, "hint")):
        tfdata = analyzed(tmp_path, *waiting_job("Map", busy_us=busy_us, op="DecodeJpeg"))
        assert {finding.severity for finding in pipeline_advice(tfdata, "training step")} == {severity}
    assert not [*pipeline_advice(analyzed(tmp_path, line("python", *steps())), "training step")]


# --- what to change, and where it leads: each estimate is that of its own change ---


def codes(tfdata: TfData) -> list[str]:
    return [action.code for action in actions_of(tfdata)]


def action_of(tfdata: TfData, code: str) -> PipelineAction:
    (action,) = [action for action in actions_of(tfdata) if action.code == code]
    return action


def blame_of(tmp_path: Path, *lines: Line) -> Blame:
    return known(blamed_stage(analyzed(tmp_path, *lines)))


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
        (("TensorSlice",), "", "memory_source", "batch first"),
    ],
)
def test_the_stage_that_limits_has_its_change(
    path: tuple[str, ...], op: str, code: str, words: str, tmp_path: Path
) -> None:
    tfdata = analyzed(tmp_path, *waiting_job(*path, op=op))
    action = action_of(tfdata, code)
    assert words in action.text
    assert f"{path[-1]} takes 0.060 ms per pipeline element" in action.why
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
    estimates = known(tfdata.outlook).estimates
    of_table = {estimate.change: (estimate.low_ms, estimate.high_ms) for estimate in estimates}
    for action in actions_of(tfdata):
        assert (action.low_ms, action.high_ms) == of_table.get(action.code, (None, None)), action.code
        assert bool(action.assumption) == action.gain.startswith("Estimated step time with the change: 0.")
        assert bool(action.assumption) == bool(action.gain) == (action.code in of_table)
    rewriting = action_of(tfdata, "python_function")
    assert (rewriting.low_ms, rewriting.gain) == (None, ""), "nobody knows how fast TensorFlow ops would be"
    parallel = action_of(tfdata, "parallel_map")
    assert "cost up to a fifth" in parallel.assumption, "why the range ends above today's step time"


def test_python_is_named(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("Map", op="EagerPyFunc"))
    assert "a py_function holds the GIL" in action_of(tfdata, "python_function").why
    assert "calls of a py_function run one at a time" in action_of(tfdata, "parallel_map").why


def test_tiny_elements_are_better_made_in_batches(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *small_elements(5, 2))
    assert action_of(tfdata, "vectorize").why.startswith("MapAndBatch runs its function 25 times, on single elements")
    assert "heavy_map" not in codes(tfdata), "not the work of the function is too much, but its overhead"


def test_a_new_cache_is_profiled_when_it_is_full(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *waiting_job("BatchV2", "MemoryCache", "MemoryCacheImpl", "Map", op="DecodeJpeg"))
    first = actions_of(tfdata)[0]
    assert (first.code, first.why) == ("warm_cache", "cache() is not yet filled, as in a first epoch.")
    assert first.text.startswith("profile from the second epoch on, once cache() is filled")
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


def test_on_a_busy_host_nothing_is_advised_that_only_lets_more_threads_work(tmp_path: Path) -> None:
    threads = waiting_job("BatchV2", "Map", op="DecodeJpeg")
    assert "parallel_map" in codes(analyzed(tmp_path, *threads, cpu_affinity=8))
    on_one_core = codes(analyzed(tmp_path, *threads, cpu_affinity=1))
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
    idle = line("later", event("other", STEP * STEPS, idle_us))
    threads = *waiting_job("Map", op="PyFunc"), idle
    tfdata = analyzed(tmp_path, *threads, cpu_affinity=2, busy_cores=busy_cores)
    assert known(tfdata.outlook).python_computes == (0.5 if is_known_to_wait else 1.0)
    assert ("python_function" not in codes(tfdata)) == is_known_to_wait
    assert "parallel_map" in codes(tfdata)


def test_where_cores_have_nothing_to_do_more_at_a_time_comes_before_less_work(tmp_path: Path) -> None:
    # Of 64 us, the step waits 30 for the generator behind a prefetch, which limits the pipeline, then 34 for the batch.
    path = "Root::BatchV2::Prefetch"
    calls = call("Root", 0, 64, 1), call("Root::BatchV2", 0, 64, 2, 1), call(path, 0, 30, 3, 2)
    python = line("python", *steps(), *each_step(*calls))
    reader = line("reader", *each_step(event("PrefetchProduce", -60, 90), call(f"{path}::Generator", -60, 90, 4, 3)))
    one_thread = [action for action in codes(analyzed(tmp_path, python, reader, cpu_affinity=2)) if action != "cache"]
    assert one_thread.index("generator") < one_thread.index("serial_transformation")
    with_room = codes(analyzed(tmp_path, python, reader, cpu_affinity=8))
    assert with_room.index("serial_transformation") < with_room.index("generator")


def test_a_pipeline_that_keeps_nobody_waiting_needs_no_change(tmp_path: Path) -> None:
    assert actions_of(analyzed(tmp_path, *waiting_job("Map", busy_us=2, op="DecodeJpeg"))) == ()
    assert actions_of(analyzed(tmp_path, line("python", *steps()))) == ()


def test_a_stage_that_nobody_waits_for_is_left_alone(tmp_path: Path) -> None:
    # The reader is the slowest segment, but what the step waits for is the batch stage in its own thread.
    path = "Root::BatchV2::Prefetch"
    asked = each_step(call("Root", 0, 60, 1), call("Root::BatchV2", 0, 60, 2, 1), call(path, 0, 1, 3, 2))
    python, reader = line("python", *steps(), *asked), line("reader", *each_step(call(f"{path}::Filter", 2, 90, 4, 3)))
    tfdata = analyzed(tmp_path, python, reader)
    assert known(tfdata.main).limiting == 3
    assert "Filter" not in {action.stage for action in actions_of(tfdata) if action.code != "cache"}
    assert "BatchV2" in {action.stage for action in actions_of(tfdata)}


def unmarked(call_us: float, capture_us: float) -> tuple[Line, Line]:
    """One call of a map in a capture without steps."""
    asked = call("Root", 0, call_us, 1), call("Root::Map", 0, call_us, 2, 1)
    return line("a", *asked), line("b", event("other", capture_us - 1, 1))


def test_without_steps_much_waiting_is_reason_enough(tmp_path: Path) -> None:
    assert codes(analyzed(tmp_path, *unmarked(60, 100))) == ["prefetch", "parallel_map"]
    assert codes(analyzed(tmp_path, *unmarked(60, 10_000))) == [], "nobody waits"


# --- the stage that is waited for most, also where only a part of the pipeline is in the trace ---


def on_a_device(wait_us: float) -> tuple[Line, Line, Line]:
    """Prefetch > Generator, whose function is a call of a function on the host: it waits but for 4 us."""
    produced = event("PrefetchProduce", 0, wait_us), call("Prefetch::Generator", 1, wait_us - 2, 2, 1)
    run = event("InstantiatedCapturedFunction::RunWithBorrowedArgs", 2, wait_us - 4, id=7)
    pool = line("pool", event("ExecutorState::Process", 3, 4, id=7), event("RemoteCall:RemoteCall", 4, 2))
    return line("python", call("Prefetch", 0, wait_us, 1)), line("device", *produced, run), pool


def test_of_a_device_pipeline_the_generator_is_named_and_the_host_behind_it(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *on_a_device(100))
    blame = known(blamed_stage(tfdata))
    assert (blame.stage, blame.reason, blame.waited_ps, blame.share) == ("Generator", "host_pipeline", 98 * US, 0.98)
    assert "the host pipeline" in blame.text
    assert actions_of(tfdata) == (), "what to change on the host is unknown; a prefetch is there"
    (generator,) = [stage for stage in tfdata.pipelines[0].stages if stage.name == "Generator"]
    assert generator.work_ps == (1 + 4 + 1) * US, "it waits for the host the rest of the time"


def handed_on(host_us: float) -> tuple[Line, ...]:
    """A device waits for 90 us; meanwhile a thread asks the pipeline on the host, whose map works for so long."""
    asking = (call("Root", 4, host_us, 11), call("Root::Map", 4, host_us, 12, 11))
    return (*on_a_device(90), line("tf_data_multi_device_iterator_resource", *asking))


@pytest.mark.parametrize(("host_us", "stage", "reason"), [(80, "Map", "work"), (10, "Generator", "to_device")])
def test_the_host_behind_a_device_is_blamed_if_it_works(
    host_us: float, stage: str, reason: str, tmp_path: Path
) -> None:
    blame = blame_of(tmp_path, *handed_on(host_us))
    assert (blame.stage, blame.reason) == (stage, reason)


@pytest.mark.parametrize(
    ("path", "stage", "code", "reason"),
    [
        (("Map",), "Map", "map()", "work"),
        (("BatchV2", "DataServiceV4"), "DataServiceV4", "DataServiceV4", "workers"),
        ((), "Root", "Root", "hand_over"),
        (("Options",), "Options", "Options", "hand_over"),
    ],
)
def test_the_reason_is_that_of_the_stage(
    path: tuple[str, ...], stage: str, code: str, reason: str, tmp_path: Path
) -> None:
    blame = blame_of(tmp_path, *waiting_job(*path))
    assert (blame.stage, blame.code, blame.reason, blame.share) == (stage, code, reason, 1.0)
    assert blame.text.startswith(f"100.0% of the waiting is for {stage}")


def test_where_nobody_waits_long_nothing_is_blamed(tmp_path: Path) -> None:
    assert blamed_stage(analyzed(tmp_path, line("python", *repeat(3, call("Root", 0, 20, 1))))) is None
    assert blamed_stage(analyzed(tmp_path, *on_a_device(40))) is None
    assert blamed_stage(analyzed(tmp_path, line("python", event("train", 0, 10)))) is None


# --- what stages are called in code, and which rule a stage gets; what each rule says is in test_actions.py ---


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        ("MapAndBatch", "map().batch()"),
        ("ParallelMapV2", "map()"),
        ("MemoryCacheImpl", "cache()"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_stages_have_the_names_of_the_program(stage: str, expected: str) -> None:
    assert in_code(stage) == expected


@pytest.mark.parametrize(
    ("change", "stage", "expected"),
    [
        ("prefetch", None, "prefetch() at the end"),
        ("parallel_read", "TFRecordV2", "interleave() several TFRecordDataset"),
        ("cache", "ShuffleAndRepeat", "cache() after shuffle().repeat()"),
    ],
)
def test_a_change_is_named_as_the_user_makes_it(change: str, stage: str | None, expected: str) -> None:
    assert change_in_code(change, stage) == expected


@pytest.mark.parametrize(
    ("path", "stats", "code"),
    [
        ("Map", {"op": "DecodeJpeg"}, "parallel_map"),
        ("Map", {"op": "EagerPyFunc"}, "python_function"),
        ("Generator", {"op": "PyFunc"}, "generator"),
        ("ParallelInterleaveV4", {}, "interleave"),
        ("PaddedBatch", {}, "serial_transformation"),
        ("ParallelBatch", {}, "copying"),
        ("ParallelMapV2", {"autotune": "true"}, "heavy_map"),  # it is parallel already
        ("BatchV2 TFRecord", {}, "parallel_read"),
        ("ParallelInterleaveV4 TFRecord", {}, "interleave"),  # several files are read at a time
        ("Root", {}, None),
        ("SomethingNew", {}, None),
    ],
)
def test_the_name_and_the_function_of_a_stage_decide(
    path: str, stats: dict[str, Any], code: str | None, tmp_path: Path
) -> None:
    stages = path.split()
    rule = rule_for(main_of(tmp_path, *waiting_job(*stages, **stats)), len(stages))
    assert (rule.code if rule else None) == code


@pytest.mark.parametrize(("run_us", "code"), [(0.2, "vectorize"), (5, "heavy_map"), (60, "heavy_map")])
def test_short_runs_that_are_waited_for_much_longer_than_they_work_are_overhead(
    run_us: float, code: str, tmp_path: Path
) -> None:
    """Steps wait for 80 us; ten runs of the function work for 2, 50 or more of them."""
    path = "Root::BatchV2::ParallelMapV2"
    asked = call("Root", 0, 80, 1), call("Root::BatchV2", 0, 80, 2, 1, batch_size=10)
    python = line("python", *steps(), *each_step(*asked, call(path, 1, 78, 3, 2, autotune="true")))
    reading = event("ParallelMapProduce", 0, 0.2), call(f"{path}::Range", 0.15, 0.01, 4, 3)
    threads = in_a_pool(*reading, starts=(0, 0.1), runs=(0.2, run_us), count=10 * STEPS, every=10)
    main = main_of(tmp_path, python, *threads)
    assert known(rule_for(main, 2)).code == code


def test_an_order_that_is_given_up_already_is_not_to_be_given_up(tmp_path: Path) -> None:
    for deterministic, is_advised in (("true", True), ("false", False)):
        pipeline = main_of(tmp_path, *waiting_job("ParallelInterleaveV4", deterministic=deterministic))
        assert ("deterministic=False" in words(pipeline, 1)["unordered"]) == is_advised


def test_each_estimate_has_words_of_its_own(tmp_path: Path) -> None:
    plain, python = (main_of(tmp_path, *waiting_job("Map", op=op)) for op in ("Cast", "EagerPyFunc"))
    assert rule_of_change(plain, "parallel_map", 1) is not rule_of_change(python, "parallel_map", 1)
    for pipeline, change in ((plain, "cache"), (plain, "vectorize"), (python, "parallel_map"), (plain, "prefetch")):
        assert rule_of_change(pipeline, change, 1).code == change
    generator = main_of(tmp_path, *waiting_job("Generator", op="PyFunc"))
    assert "from_generator" in rule_of_change(generator, "parallel_read", 1).action
    assert "list_files" in rule_of_change(plain, "parallel_read", 1).action


def test_words_of_the_whole_pipeline_name_its_outermost_stage(tmp_path: Path) -> None:
    pipeline = main_of(tmp_path, *waiting_job("BatchV2", "Map", op="Cast"))
    assert [words(pipeline, index)["code"] for index in (None, 2)] == ["batch()", "map()"]
