"""The ledger blames each part of a step once, whatever is claimed in whatever order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.sections.diagnosis.case import Ledger, ledger_of
from tfperf.sections.diagnosis.cause import Range
from tfperf.sections.overview.summary import Summary

PARTS = ("compilation", "input_wait", "kernel_launch", "host_compute", "all_others")


def test_a_claim_takes_what_is_left() -> None:
    ledger = Ledger(20.0, {"kernel_launch": 30.0, "host_compute": 50.0})
    assert ledger.claim("kernel_launch", "host_compute", most=40.0) == Range(40.0, 40.0)
    assert (ledger.left("kernel_launch"), ledger.left("host_compute")) == (0.0, 40.0)
    assert ledger.claim("host_compute", most=90.0, least=10.0) == Range(10.0, 40.0)
    assert ledger.left("host_compute") == 0.0


def test_a_share_of_the_step_in_milliseconds() -> None:
    assert Ledger(20.0, {}).ms(Range(10.0, 50.0)) == Range(2.0, 10.0)


def test_what_is_unknown_is_blamed_on_nothing() -> None:
    ledger = Ledger(20.0, {"input_wait": 30.0}, frozenset({"input_wait"}))
    assert ledger.claim("input_wait") == Range(0.0, 0.0)


def test_without_steps_there_is_no_ledger() -> None:
    with pytest.raises(ValueError, match="steps"):
        ledger_of(Summary(kind="train", step_count=0, averaged_count=0), frozenset())


@given(
    st.lists(st.floats(0, 20), min_size=5, max_size=5),
    st.lists(st.tuples(st.lists(st.sampled_from(PARTS), min_size=1), st.none() | st.floats(0, 200)), max_size=8),
)
def test_claims_never_exceed_the_step(shares: list[float], claims: list[tuple[list[str], float | None]]) -> None:
    ledger = Ledger(10.0, dict(zip(PARTS, shares, strict=True)))
    claimed = sum(ledger.claim(*parts, most=most).high for parts, most in claims)
    assert claimed <= sum(shares) + 1e-6
    assert ledger.left(*PARTS) >= 0.0
