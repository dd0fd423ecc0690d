"""Causes outside the averaged steps: what they cost of the wall time, on traces that can be checked by hand."""

from __future__ import annotations

from math import exp
from pathlib import Path

import pytest
from builders import Event, Plane, event, gpu, host, line, logdir_of, plane, ref, space
from click.testing import CliRunner
from jax_builders import call
from sections.diagnosis.made import OP, actions_of, bounds, codes_of, diagnosis, most
from sections.tfdata.made_pipelines import keras_arrays

from tfperf.cli import main
from tfperf.sections.diagnosis.cause import Cause, Diagnosis, Range
from tfperf.sections.tfdata.whatif import NOISE


def steps(*spans: tuple[float, float], kind: str = "train", first: int = 0) -> list[Event]:
    """Marked steps of these starts and durations, each with an op all along."""
    return [
        made
        for number, (start, length) in enumerate(spans, first)
        for made in (event(kind, start, length, step_num=number), event(OP, start, length))
    ]


def epochs(count: int, gap: float, inside: str = "") -> list[Event]:
    """Epochs of five steps of 100 us with a gap between them, of which an event covers all."""
    events = []
    for epoch in range(count):
        begin = epoch * (500 + gap)
        events += steps(*((begin + 100 * n, 100) for n in range(5)), first=5 * epoch)
        if inside and epoch < count - 1:
            events.append(event(inside, begin + 500, gap))
    return events


def in_order(events: list[Event]) -> Plane:
    return host(*sorted(events, key=lambda each: (each.start_us, -each.duration_us)))


LESS = exp(-NOISE)
"""The time of equal work at a better moment, as a share."""


def the_cause(found: Diagnosis, code: str) -> Cause:
    (cause,) = found.named(code)
    return cause


def test_time_between_epochs_is_the_first_cause(tmp_path: Path) -> None:
    found = diagnosis(tmp_path, host(*epochs(4, 750)))
    cause = the_cause(found, "between_steps")
    assert found.headline == (
        "Time between steps takes 52.9% of the wall time: 3 gaps of 0.750 ms on average, the first after train 4; "
        "nothing is recorded (Python, callbacks or I/O)."
    )
    share = 100 * 2250 / 4250
    assert (cause.of, cause.cost_percent) == ("wall", Range(share, share))
    assert cause.step_ms == pytest.approx(0.2125)
    assert actions_of(cause) == ["less_between"]
    assert bounds(cause.actions[0].step_ms) == pytest.approx((0.1 * LESS, 0.15625))


def test_the_rest_gets_no_faster_than_steps_without_the_cost(tmp_path: Path) -> None:
    """Epochs of steps of 80, 140 and 90 us, with 750 us between them: only the first step follows a gap."""
    events = [
        step
        for epoch in range(4)
        for begin in [1060 * epoch]
        for step in steps((begin, 80), (begin + 80, 140), (begin + 220, 90), first=3 * epoch)
    ]
    cause = the_cause(diagnosis(tmp_path, host(*events)), "between_steps")
    (action,) = cause.actions
    assert action.rest_ms is not None
    assert action.rest_ms.low == pytest.approx(0.31 / 3)
    assert bounds(action.step_ms)[0] == pytest.approx(0.09 * LESS)


@pytest.mark.parametrize(
    ("inside", "action"), [("SaveV2:SaveV2", "save_less_often"), ("MakeIterator:MakeIterator", "longer_epochs")]
)
def test_what_runs_between_steps_decides_what_to_change(tmp_path: Path, inside: str, action: str) -> None:
    cause = the_cause(diagnosis(tmp_path, host(*epochs(3, 750, inside))), "between_steps")
    assert inside.partition(":")[0] in cause.detail
    assert actions_of(cause) == [action]


def test_arrays_that_keras_batches_need_a_dataset_for_longer_epochs(tmp_path: Path) -> None:
    keras = event("__inference_one_step_on_data_1", 0, 1)
    python = line("python", *in_order([*epochs(3, 750, "MakeIterator:MakeIterator"), keras]).lines[0].events, id=1)
    found = diagnosis(tmp_path, plane("/host:CPU", python, line("pool", *keras_arrays(), id=2)))
    assert actions_of(the_cause(found, "between_steps")) == ["longer_epochs_of_arrays"]


@pytest.mark.parametrize(
    ("gap", "inside", "codes"),
    [
        (20_000, "TFE_DeleteTensorHandle", ["longer_epochs"]),
        (20_000, "EagerLocalExecute: Sum", ["less_between", "longer_epochs"]),
        (120_000, "TFE_DeleteTensorHandle", ["less_between", "longer_epochs"]),
    ],
)
def test_the_end_of_an_epoch_in_keras_itself_is_not_a_callback(
    tmp_path: Path, gap: float, inside: str, codes: list[str]
) -> None:
    """Calls fill the gaps, in which an iterator is made: up to 100 ms of deleting are what Keras itself takes."""
    made = [event("MakeIterator", epoch * (500 + gap) + 510, 20) for epoch in range(2)]
    keras = event("__inference_one_step_on_data_1", 0, 1)
    found = diagnosis(tmp_path, in_order([*epochs(3, gap, inside), *made, keras]))
    cause = the_cause(found, "between_steps")
    assert actions_of(cause) == codes
    if len(codes) == 2:
        assert cause.actions[0].text.startswith("if callbacks such as on_epoch_end run there")


@pytest.mark.parametrize(("gap_us", "is_cause"), [(0, False), (750, False), (12_000, True)])
def test_short_gaps_that_come_at_any_time_may_be_chance(tmp_path: Path, gap_us: float, *, is_cause: bool) -> None:
    assert bool(diagnosis(tmp_path, host(*epochs(3, gap_us))).named("between_steps")) == is_cause


def test_causes_of_steps_count_by_their_share_of_the_wall_time(tmp_path: Path) -> None:
    # Steps wait for input for a third of their time, but are a tenth of the wall time themselves.
    waits = [event("IteratorGetNextOp::DoCompute", epoch * 5000 + 100 * n, 33) for epoch in range(4) for n in range(5)]
    found = diagnosis(tmp_path, host(*epochs(4, 4500), *waits))
    assert codes_of(found.causes)[:2] == ["between_steps", "input_wait"]
    between, waiting = found.causes[:2]
    assert between.gain > 10 * waiting.gain
    assert waiting.wall_share == pytest.approx(2000 / (3 * 5000 + 500))


def test_steps_that_compile_again_are_a_cause_though_averages_omit_them(tmp_path: Path) -> None:
    # Every third step compiles for 300 us and takes 400; the others take 100.
    events, begin = list[Event](), 0.0
    for number in range(9):
        length = 400 if number % 3 == 1 else 100
        inside = [event("backend_compile", begin + 10, 300)] if length == 400 else []
        events += [event("train", begin, length, step_num=number), *call("train_step", begin, length, *inside)]
        begin += length
    path = logdir_of(tmp_path, host=space(host(*events)))
    found = diagnosis(tmp_path, host(*events))
    cause = the_cause(found, "compilation")
    assert found.causes[0] is cause
    assert cause.of == "wall"
    assert most(cause) == pytest.approx(100 * 3 * 400 / 1800, abs=0.1)
    assert "every third step takes 0.400 ms, the others 0.100 ms" in cause.detail
    assert "larger_batch" not in {action.code for each in found.causes for action in each.actions}
    outcome = CliRunner().invoke(main, ["check", str(path), "--fail-on", "compilation", "--min-steps", "3"])
    assert outcome.exit_code == 3


def test_only_the_first_steps_compile(tmp_path: Path) -> None:
    events = [event("backend_compile", 10, 300), *steps((0, 400), *((400 + 100 * n, 100) for n in range(6)))]
    found = diagnosis(tmp_path, in_order(events))
    assert not found.named("compilation")
    assert found.named("warm_up")


@pytest.mark.parametrize(("computing", "code"), [(48_000, "slow_steps"), (9_000, "python_between_steps")])
def test_slow_steps_that_come_regularly(tmp_path: Path, computing: float, code: str) -> None:
    # Every fourth step takes 50 ms instead of 10: in ops, or in nothing that is recorded.
    events, begin = [], 0.0
    for number in range(12):
        is_slow = number % 4 == 3
        length = 50_000 if is_slow else 10_000
        events += [event("train", begin, length, step_num=number), event(OP, begin, computing if is_slow else 9_000)]
        begin += length
    found = diagnosis(tmp_path, host(*events))
    assert found.causes[0].code == code
    assert "every fourth step takes 50.0 ms, the others 10.0 ms" in found.causes[0].detail
    if code == "slow_steps":
        cause = found.causes[0]
        assert (cause.of, cause.cost_percent) == ("wall", Range(48.75, 48.75))
        assert cause.detail.endswith("the additional time is Host compute")


def test_slow_steps_in_which_the_program_waits_for_the_device(tmp_path: Path) -> None:
    """Every fourth step of 10 ms waits 40 ms more for a copy to the host, with the device idle."""
    events, kernels, begin = [], [], 0.0
    for number in range(12):
        length = 50_000 if number % 4 == 3 else 10_000
        events += [event("train", begin, length, step_num=number), event("PjitFunction(step)", begin, 8_900)]
        events += [event("cuLaunchKernel", begin + 10, 5, correlation_id=number + 1)]
        events += [event("np.asarray(jax.Array)", begin + 9_000, length - 9_000)]
        kernels.append(event("kernel", begin + 20, 8_900, correlation_id=number + 1))
        begin += length
    cause = the_cause(diagnosis(tmp_path, host(*events), gpu(*kernels)), "slow_steps")
    assert cause.detail.endswith("the additional time is waiting for results")


def test_large_kernels_of_eager_ops_are_not_the_cost_of_running_ops_one_by_one(tmp_path: Path) -> None:
    # Every fifth step writes a picture in 80 ms; a busy machine makes another step a little slower.
    events, begin = [], 0.0
    for number in range(30):
        pictures, slow = number % 5 == 4, number == 12
        length = 100_000 if pictures else 25_000 if slow else 10_000
        events += [event("train", begin, length, step_num=number), event(OP, begin, 8_000)]
        if pictures:
            events += [event("EagerExecute", begin + 10_000, 90_000, is_func=0, eager_op=ref("EncodePng"))]
            kernel = ("EagerKernelExecute", "KernelAndDeviceFunc::Run")
            events += [event(name, begin + 11_000, 80_000) for name in kernel]
        begin += length
    found = diagnosis(tmp_path, host(*events))
    first = found.causes[0]
    assert first.code == "slow_steps"
    assert first.detail.startswith("every fifth step takes 100 ms, the others 10.0 ms; ")
    assert first.detail.endswith("is Host compute (EncodePng)")
    eager = the_cause(found, "eager_ops")
    whole_us = 6 * 100_000 + 23 * 10_000 + 25_000
    assert most(eager) == pytest.approx(100 * 6 * 10_000 / whole_us, abs=0.1)
    assert eager.detail.endswith(", as they would inside a function")
    assert "small_work_per_step" not in {*codes_of(found.causes)}


def test_evaluation_of_a_fifth_of_the_time_is_a_cause(tmp_path: Path) -> None:
    training = steps(*((100 * n, 100) for n in range(5)), *((1500 + 100 * n, 100) for n in range(5)))
    testing = steps(*((500 + 100 * n, 100) for n in range(10)), kind="test", first=10)
    gradient = [event("gradient_tape/MatMul:MatMul", start + 1, 5) for start in (0, 100, 200, 300, 400, 1500, 1600)]
    found = diagnosis(tmp_path, in_order([*training, *testing, *gradient]))
    cause = the_cause(found, "evaluation")
    assert cause.cost_percent == Range(50.0, 50.0)
    assert cause.detail == "10 steps in 1 phase, compared with 10 training steps"


def test_the_start_of_an_evaluation_is_time_between_steps(tmp_path: Path) -> None:
    """Training for 500 us, twice, and after each 400 us until an evaluation of 100 us."""
    training = steps(*((start + 100 * n, 100) for start in (0, 1000) for n in range(5)))
    testing = [event("test", start, 100, step_num=start) for start in (900, 1900)]
    making = [event("MakeIterator:MakeIterator", start, 390) for start in (501, 1501)]
    gradient = [event("gradient_tape/MatMul:MatMul", begin + 100 * n + 1, 5) for begin in (0, 1000) for n in range(5)]
    found = diagnosis(tmp_path, in_order([*training, *testing, *making, *gradient]))
    assert not found.named("evaluation")
    cause = the_cause(found, "between_steps")
    assert cause.cost_percent == Range(40.0, 40.0)
    assert cause.detail.startswith("2 gaps of 0.400 ms on average, each at the start of an epoch or an evaluation; ")
    assert actions_of(cause) == ["longer_epochs", "evaluate_less"]


@pytest.mark.parametrize(("evaluations", "share"), [(1, None), (2, 100 * 1200 / 5700)])
def test_what_only_one_evaluation_compiles_is_no_cost_of_evaluation(
    evaluations: int, share: float | None, tmp_path: Path
) -> None:
    # Two evaluations of 600 us between trainings of 1500 us; one or both compile for 400 us.
    training = steps(*((start + 100 * n, 100) for start in (0, 2100, 4200) for n in range(15)))
    testing = [event("test", start, 600, step_num=start) for start in (1500, 3600)]
    inside = [event("XlaCompile" if n < evaluations else OP, 1500 + 2100 * n, 400) for n in range(2)]
    rest = [event(OP, start + 400, 200) for start in (1500, 3600)]
    gradient = [event("gradient_tape/MatMul:MatMul", begin + 100 * n + 1, 5) for begin in (0, 2100) for n in range(15)]
    found = diagnosis(tmp_path, in_order([*training, *testing, *inside, *rest, *gradient]))
    assert [cause.cost_percent for cause in found.named("evaluation")] == (
        [] if share is None else [Range(share, share)]
    )


def test_the_wall_time_per_step_can_be_limited(tmp_path: Path) -> None:
    path = logdir_of(tmp_path, host=space(host(*epochs(3, 750))))
    for limit, code in (("0.3ms", 0), ("0.15ms", 3)):
        outcome = CliRunner().invoke(main, ["check", str(path), "--max-wall-step-time", limit])
        assert outcome.exit_code == code, outcome.output
    assert CliRunner().invoke(main, ["check", str(path), "--max-step-time", "0.15ms"]).exit_code == 0
