"""The diagnosis over several samples: it changes only if another cause is clearly larger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from live.views import measured, sample

from tfperf.capture.address import Address
from tfperf.live.board import Board
from tfperf.live.sample import FirstCause, Sample
from tfperf.live.verdict import Verdict, judged, pooled_ms


def of(number: int, gains: Mapping[str, float], **fields: object) -> Sample:
    causes = tuple(FirstCause(code, code.title(), f"{code} {number}", "", gain) for code, gain in gains.items())
    return sample(measured(causes=causes, **fields), number=number, time_s=100.0 + 10 * number)


def judged_in_turn(samples: Sequence[Sample]) -> list[Verdict]:
    verdicts: list[Verdict] = []
    for count in range(1, len(samples) + 1):
        verdicts.append(judged(verdicts[-1] if verdicts else None, samples[:count]))
    return verdicts


def test_causes_of_nearly_the_same_gain_do_not_take_turns() -> None:
    first, second = {"input": 10.0, "launch": 9.0}, {"launch": 11.0, "input": 10.0}
    verdicts = judged_in_turn([of(number, second if number % 2 else first) for number in range(8)])
    assert {each.code for each in verdicts} == {"input"}
    assert {each.since_s for each in verdicts} == {100.0}


def test_a_cause_that_stays_larger_replaces_the_first_one() -> None:
    samples = [of(number, {"input": 20.0} if number < 4 else {"launch": 20.0}) for number in range(12)]
    verdicts = judged_in_turn(samples)
    codes = [each.code for each in verdicts]
    assert codes == ["input"] * 7 + ["launch"] * 5
    assert verdicts[-1].since_s == samples[7].time_s
    assert verdicts[8].gains == (0.0, 20.0, 20.0, 20.0, 20.0, 20.0)


def test_the_sentence_is_of_the_latest_sample_with_the_cause() -> None:
    verdict = judged_in_turn([of(0, {"input": 20.0}), of(1, {"input": 20.0}), of(2, {})])[-1]
    assert verdict.cause is not None
    assert verdict.cause.text == "input 1"
    assert round(verdict.gain_percent, 2) == 13.33


def test_small_causes_are_no_advice() -> None:
    assert judged(None, [of(0, {"input": 2.9})]).cause is None
    assert judged(None, [of(0, {})]).gains == (0.0,)


def test_each_kind_of_steps_has_its_own_diagnosis() -> None:
    worker = Address("w0", 1)
    board = Board((worker,))
    for number in range(8):
        is_eval = number % 2 == 1
        board.add(
            worker, of(number, {"launch" if is_eval else "input": 20.0}, step_kind="eval" if is_eval else "train")
        )
        (view,) = board.views()
        assert view.verdict is not None
        assert view.verdict.code == ("launch" if is_eval else "input")
    board.add(worker, sample(None, reason="busy"))
    (view,) = board.views()
    assert view.verdict is not None, "a failed sample keeps it"
    assert view.verdict.gains == (20.0,) * 4


def test_the_median_step_time_of_one_kind() -> None:
    samples = [
        of(number, {}, step_ms=float(number), step_kind="eval" if number == 3 else "train") for number in range(1, 10)
    ]
    assert pooled_ms(samples, "train") == 6.5
    assert pooled_ms(samples, "train", 171.0) == 8.5
    assert pooled_ms(samples, "test") is None
