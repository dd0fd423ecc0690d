"""Waiting for the last host, by durations alone; and clocks, by ends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tfperf.trace.device.collectives import ClockOffset, Collectives, clock_offsets, match_collectives

US = 1_000_000


def host(*runs: tuple[int, float, float], label: str = "group 1", clock_ns: int | None = 0) -> Collectives:
    """Collectives (instance, start, duration) in microseconds."""
    columns = np.array(runs, np.float64).reshape(-1, 3)
    return Collectives(
        labels=(label,),
        label=np.zeros(len(runs), np.int32),
        instance=columns[:, 0].astype(np.int64),
        occurrence=np.zeros(len(runs), np.int64),
        start_ps=(columns[:, 1] * US).astype(np.int64),
        duration_ps=(columns[:, 2] * US).astype(np.int64),
        clock_start_ns=clock_ns,
    )


def waited_us(*hosts: Collectives) -> list[list[float]]:
    return [(wait.wait_ps / US).tolist() for wait in match_collectives(hosts)]


def test_the_shortest_came_last() -> None:
    """The others wait for b in the first collective, and for a in the second one."""
    assert waited_us(host((1, 0, 30), (2, 40, 5)), host((1, 20, 10), (2, 35, 10))) == [[20, 0], [0, 5]]


def test_one_that_a_capture_does_not_hold_is_not_matched() -> None:
    first, second = match_collectives([host((1, 0, 30), (2, 40, 50)), host((1, 20, 10), (3, 50, 10))])
    assert (first.matched.tolist(), second.matched.tolist()) == ([True, False], [True, False])
    assert first.wait_ps.tolist() == [20 * US, 0]
    assert first.run[0] == second.run[0]


def test_groups_have_their_own_participants() -> None:
    """Hosts a and b exchange in one group, c and d in another one, with the same instance."""
    ab, cd = [host((1, 0, 30)), host((1, 20, 10))], [host((1, 0, 9), label="g2"), host((1, 5, 4), label="g2")]
    assert waited_us(*ab, *cd) == [[20], [0], [5], [0]]


def test_a_host_alone_waits_for_nobody() -> None:
    (alone,) = match_collectives([host((1, 0, 30))])
    assert (alone.matched.tolist(), alone.wait_ps.tolist()) == ([False], [0])
    assert match_collectives([]) == ()
    assert [len(wait.run) for wait in match_collectives([host(), host()])] == [0, 0]


durations = st.lists(st.lists(st.integers(0, 1 << 40), min_size=5, max_size=5), min_size=2, max_size=6)


@given(durations)
def test_waiting_and_exchange_are_the_time_in_the_collective(hosts: list[list[int]]) -> None:
    made = [host(*((n, 0, ps / US) for n, ps in enumerate(of_host))) for of_host in hosts]
    exact = np.array([each.duration_ps for each in made])
    waits = np.array([wait.wait_ps for wait in match_collectives(made)])
    exchange = exact - waits
    assert (exchange == exchange[0]).all(), "the exchange takes as long on all hosts"
    assert (waits >= 0).all()
    assert (waits.min(axis=0) == 0).all(), "the last host waits for nobody"


def test_clocks_differ_by_the_ends() -> None:
    """The clock of b is 138 ms ahead; single ends differ by 10 us."""
    start, ahead = 1_795_314_224_000_000_000, 138_000_000
    first = host((1, 0, 30), (2, 40, 10), (3, 60, 10), clock_ns=start)
    second = host((1, 20, 10), (2, 40, 20), (3, 60, 10), clock_ns=start + ahead)
    assert clock_offsets([first, second], match_collectives([first, second])) == (
        ClockOffset(0, 0, 0),
        ClockOffset(ahead, 0, 3),
    )


def test_a_clock_that_nothing_tells() -> None:
    hosts = [host((1, 0, 30)), host((1, 0, 30), clock_ns=None), host((2, 0, 30), label="other")]
    assert clock_offsets(hosts, match_collectives(hosts)) == (ClockOffset(0, 0, 0), None, None)
