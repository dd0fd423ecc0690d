"""Pipelines of a host and of several, stage by stage; what is waited for is in test_segments.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import (
    US,
    analyzed,
    in_one_thread,
    main_of,
    name_of,
    repeat,
    stage_of,
    training_and_evaluation,
)

from tfperf.sections.tfdata.analysis import TfData, combine, shorten


@pytest.mark.parametrize(("times", "slowest"), [((60, 5, 5), "Map"), ((5, 60, 5), "BatchV2"), ((5, 5, 60), "TFRecord")])
def test_in_one_thread_each_stage_in_turn(times: tuple[float, float, float], slowest: str, tmp_path: Path) -> None:
    main = main_of(tmp_path, line("python", *in_one_thread(*times)))
    assert name_of(main, main.blocking) == name_of(main, main.limiting) == slowest
    stage = stage_of(main, slowest)
    assert (stage.calls, stage.work_ps, stage.blocked_ps, stage.element_ps) == (4, 240 * US, 240 * US, 60 * US)
    assert (main.calls, main.slow_calls, main.waited_ps, main.unattributed_ps) == (4, 4, 284 * US, 0)
    assert main.mean_ps == main.max_ps == 71 * US
    (segment,) = main.segments
    assert (segment.kind, segment.element_ps, segment.workers) == ("consumer", 71 * US, 1)
    assert main.final_prefetch is None


@pytest.mark.parametrize(
    ("name", "op", "expected"),
    [
        ("Map", "EagerPyFunc", "py_function"),
        ("Map", "PyFuncStateless", "numpy_function"),
        ("Generator", "PyFunc", "from_generator"),
        ("Map", "DecodeJpeg", ""),
    ],
)
def test_python_in_a_function_is_seen(name: str, op: str, expected: str, tmp_path: Path) -> None:
    consumer = [
        call("Root", 0, 90, 1),
        call(f"Root::{name}", 1, 80, 2, 1),
        event("InstantiatedCapturedFunction::RunWithBorrowedArgs", 2, 70, id=7),
    ]
    pool = [event("ExecutorState::Process", 3, 60, id=7), event(f"{op}:{op}", 4, 50)]
    assert stage_of(main_of(tmp_path, line("python", *consumer), line("pool", *pool)), name).python == expected


def test_the_pipeline_that_is_waited_for_longest_comes_first(tmp_path: Path) -> None:
    events = [*repeat(3, call("Root", 0, 10, 1)), *repeat(3, call("Root", 20, 60, 9), call("Root::Map", 21, 50, 8, 9))]
    tfdata = analyzed(tmp_path, line("python", *events))
    assert [(pipeline.name, len(pipeline.stages)) for pipeline in tfdata.pipelines] == [("Host:1", 2), ("Host:0", 1)]


def test_the_main_pipeline_is_the_one_that_steps_wait_for(tmp_path: Path) -> None:
    # The second pipeline is waited for longer, but between the steps, as in validation.
    steps = [event("train", 300 * number, 100, step_num=number) for number in range(5)]
    training = repeat(5, call("Root", 0, 60, 1), every=300)
    validation = repeat(5, call("Root", 110, 180, 2), every=300)
    others = [event("eval", 300 * number + 105, 190, step_num=number) for number in range(5)]
    tfdata = analyzed(tmp_path, line("python", *steps, *others, *training, *validation))
    assert [pipeline.waited_ps / US for pipeline in tfdata.pipelines] == [300, 900]
    assert tfdata.outlook is not None
    assert tfdata.main is tfdata.outlook.pipeline is tfdata.pipelines[0]


def test_a_device_pipeline_is_not_the_main_one(tmp_path: Path) -> None:
    tfdata = analyzed(
        tmp_path,
        line("python", call("Prefetch", 0, 80, 1)),
        line("device", event("PrefetchProduce", 0, 80), call("Prefetch::Generator", 0, 80, 2, 1)),
    )
    assert [(pipeline.name, pipeline.is_device) for pipeline in tfdata.pipelines] == [("Device:0", True)]
    assert tfdata.main is None


def test_the_worker_of_a_data_service_is_not_what_the_program_waits_for(tmp_path: Path) -> None:
    fetched = repeat(4, event("IteratorGetNextOp::DoCompute", 0, 40), call("Root", 1, 38, 1))
    worker = repeat(4, call("Root", 0, 90, 11), call("Root::Map", 0, 90, 12, 11))
    tfdata = analyzed(tmp_path, line("python", *fetched), line("worker", *worker))
    assert [(pipeline.name, pipeline.is_fetched, pipeline.waited_ps / US) for pipeline in tfdata.pipelines] == [
        ("Host:0", True, 152),
        ("Host:1", False, 360),
    ]
    assert tfdata.main is tfdata.pipelines[0]


def test_without_tf_data_there_is_nothing(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, line("python", event("train", 0, 100)))
    assert (tfdata.pipelines, tfdata.main, tfdata.outlook) == ((), None, None)


def test_hosts_are_put_in_one_list(tmp_path: Path) -> None:
    first = analyzed(tmp_path, line("python", call("Root", 0, 60, 1)))
    second = analyzed(tmp_path, line("python", call("Root", 0, 90, 1)))
    assert [pipeline.waited_ps / US for pipeline in combine([first, second]).pipelines] == [90, 60]
    assert combine([]).main is None


def test_the_outlook_of_a_run_is_that_of_the_host_that_waits_longest(tmp_path: Path) -> None:
    steps = repeat(4, event("train", 0, 100))
    hosts = [analyzed(tmp_path, line("python", *steps, *repeat(4, call("Root", 0, wait, 1)))) for wait in (30, 70, 50)]
    combined = combine(hosts)
    assert combined.outlook is hosts[1].outlook
    assert combined.main is hosts[1].main is combined.pipelines[0]
    assert len(combined.pipelines) == 3


def test_a_trace_that_starts_inside_has_asynchronous_stages_only(tmp_path: Path) -> None:
    # The calls around are cut off: one stage is all there is, and it starts a function in a pool.
    alone = line(
        "runner",
        call("Root::ParallelMapV2", 0, 100, 2, 1),
        event("InstantiatedCapturedFunction::RunAsync", 10, 1, id=100),
    )
    pool = line("pool", event("ExecutorState::Process", 20, 50, id=100), id=2)
    (pipeline,) = analyzed(tmp_path, alone, pool).pipelines
    stage = stage_of(pipeline, "ParallelMapV2")
    assert (stage.runs, stage.run_ps) == (1, 50 * US)


def test_work_outside_every_stage_is_not_what_limits(tmp_path: Path) -> None:
    consumer = line("main", call("ParallelMapV2", 0, 100, 2, 1, parallelism=2))
    pool = line(
        "pool",
        event("InstantiatedCapturedFunction::RunAsync", 10, 1, id=100),
        event("ExecutorState::Process", 20, 50, id=100),
        id=2,
    )
    (pipeline,) = analyzed(tmp_path, consumer, pool).pipelines
    assert [stage.name for stage in pipeline.stages] == ["ParallelMapV2"]
    assert name_of(pipeline, pipeline.limiting) == "ParallelMapV2"


def test_steps_of_another_kind_have_an_outlook_of_their_own(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, training_and_evaluation(eval_stage="Filter", eval_root=11))
    assert tfdata.outlook is not None
    assert [tfdata.outlook.step_ms, tfdata.outlook.wait_ms] == pytest.approx([0.1, 0.01])
    assert list(tfdata.of_kinds) == ["eval"]
    outlook = tfdata.of_kinds["eval"]
    assert [outlook.step_ms, outlook.wait_ms] == pytest.approx([0.1, 0.06])
    assert [stage.name for stage in outlook.pipeline.stages] == ["Root", "Filter"]
    assert outlook.estimates
    of_eval = tfdata.for_steps("eval")
    assert of_eval is not None
    assert of_eval.main is outlook.pipeline
    assert tfdata.for_steps("predict") is None
    assert list(combine([tfdata, tfdata]).of_kinds) == ["eval"]


def test_a_pipeline_that_training_asks_too_has_no_estimates_for_evaluation(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, training_and_evaluation(eval_stage="Map", eval_root=1))
    assert tfdata.outlook is not None
    outlook = tfdata.of_kinds["eval"]
    assert outlook.pipeline is tfdata.outlook.pipeline
    assert (tfdata.outlook.estimates != (), outlook.estimates) == (True, ())


def test_pipelines_beyond_so_many_stages_are_left_out_but_for_the_main_one(tmp_path: Path) -> None:
    events = [
        *repeat(3, call("Root", 0, 60, 1), call("Root::Map", 1, 50, 2, 1)),
        *repeat(3, call("Root", 70, 20, 9)),
        *repeat(3, call("Root", 95, 3, 10)),
    ]
    tfdata = analyzed(tmp_path, line("python", *events))
    kept = {most: [pipeline.name for pipeline in shorten(tfdata, most).pipelines] for most in range(5)}
    assert kept == {
        0: ["Host:0"],
        1: ["Host:0"],
        2: ["Host:0"],
        3: ["Host:0", "Host:1"],
        4: ["Host:0", "Host:1", "Host:2"],
    }
    assert shorten(tfdata, 4) is tfdata
    assert shorten(TfData(()), 0).pipelines == ()
