"""Frames between calls, in steps of 100 us of which a call takes the first 20: who holds the other 80."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Event, event, host, results_of, trace_of

from tfperf.sections.python.analysis import BetweenCalls


def between(
    tmp_path: Path, *frames: tuple[str, float, float], call: str = "EagerExecute", outside_us: int = 80
) -> BetweenCalls:
    """Return what is found of five steps with these frames: name, start and duration in the step."""
    events: list[Event] = []
    for begin in range(0, 500, 100):
        events += [event("train", begin, 100, step_num=begin // 100), event(call, begin, 20)]
        events += [event(name, begin + start, duration) for name, start, duration in frames]
    found: BetweenCalls | None = results_of(trace_of(tmp_path, host(*events)))["python"].between
    assert found is not None
    assert found.total_ps == 5 * outside_us * 1_000_000
    return found


TENSORFLOW = ("$tensorflow.python._pywrap_tfe TFE_Py_Execute", 0, 20)


def test_the_innermost_function_of_the_program_that_holds_half_is_named(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        ("$train.py:9 epoch", 20, 80),
        ("$data.py:3 load", 30, 60),
        ("$<unknown> std", 35, 50),
        ("$data.py:20 shuffled", 85, 5),
    )
    assert (found.function, found.callee) == ("data.py:3 load", "std")
    assert found.share == pytest.approx(60 / 80)
    assert found.callee_share == pytest.approx(50 / 80)
    assert found.waiting_share == 0.0
    assert found.computing_share == pytest.approx(1.0)


def test_what_waits_is_named_however_deep_it_is(tmp_path: Path) -> None:
    found = between(
        tmp_path, ("$labels.py:5 get", 20, 80), ("$socket.py:706 readinto", 22, 76), ("$<unknown> recv_into", 24, 72)
    )
    assert (found.function, found.callee) == ("labels.py:5 get", "recv_into")
    assert found.waiting_share == pytest.approx(72 / 80)


def test_a_comprehension_is_part_of_its_function(tmp_path: Path) -> None:
    found = between(
        tmp_path, ("$train.py:9 batch", 20, 80), ("$train.py:10 <listcomp>", 20, 70), ("$<unknown> astype", 20, 60)
    )
    assert (found.function, found.callee) == ("train.py:9 batch", "astype")


def test_a_callback_is_of_the_program_and_what_keras_does_besides_of_keras(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        TENSORFLOW,
        ("$callback_list.py:168 on_train_batch_end", 20, 70),
        ("$trainer.py:15 on_train_batch_end", 25, 60),
        ("$core.py:76 numpy", 30, 50),
    )
    assert found.function == found.callback == "trainer.py:15 on_train_batch_end"
    assert found.share == pytest.approx(60 / 80)
    assert found.framework_share == pytest.approx(10 / 80)


def test_what_a_callback_calls_is_named_with_it(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        TENSORFLOW,
        ("$callback_list.py:168 on_train_batch_end", 20, 80),
        ("$train.py:15 on_train_batch_end", 20, 80),
        ("$store.py:8 send", 30, 70),
        ("$time sleep", 30, 60),
    )
    assert (found.function, found.callee) == ("store.py:8 send", "time.sleep")
    assert found.callback == "train.py:15 on_train_batch_end"


def test_what_fit_calls_is_of_keras_though_the_program_called_fit(tmp_path: Path) -> None:
    found = between(
        tmp_path,
        TENSORFLOW,
        ("$train.py:9 main", 20, 80),
        ("$trainer.py:300 fit", 20, 80),
        ("$callback_list.py:168 on_train_batch_end", 20, 70),
    )
    assert found.function == ""
    assert found.framework_share == pytest.approx(1.0)


def test_a_loop_outside_of_functions_calls_what_takes_the_time(tmp_path: Path) -> None:
    found = between(tmp_path, ("$gc collect", 20, 76))
    assert (found.function, found.callee) == ("", "gc.collect")
    assert found.collecting_share == found.callee_share == pytest.approx(76 / 80)


def test_waiting_for_a_run_of_jax_is_a_call_and_numpy_may_wait_too(tmp_path: Path) -> None:
    frames = ("$api.py:2490 try_to_block", 20, 50), ("$numpy asarray", 70, 30)
    found = between(tmp_path, *frames, call="PjitFunction(step)", outside_us=30)
    assert (found.framework_share, found.waiting_share, found.computing_share) == (0.0, 0.0, 0.0)


def test_without_frames_nothing_is_known(tmp_path: Path) -> None:
    events = [event("EagerExecute", 0, 20), event("train", 0, 100, step_num=0)]
    assert results_of(trace_of(tmp_path, host(*events)))["python"].between is None
