"""Which events are collectives, and by which keys hosts share them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import Event, Plane, event, host, known, line, plane, programs, trace_of
from hypothesis import given
from hypothesis import strategies as st

from tfperf.trace.device.collectives import (
    MOST_COLLECTIVES,
    ClockOffset,
    Collectives,
    clock_offsets,
    find_collectives,
    match_collectives,
)
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.find_steps import find_steps

REDUCE = "CollectiveReduceV2:CollectiveReduceV2"


def found_in(trace: HostTrace) -> Collectives:
    return known(find_collectives(trace, find_steps(trace)))


def keys(found: Collectives) -> list[tuple[str, int, int]]:
    labels = [found.labels[label] for label in found.label.tolist()]
    return list(zip(labels, found.instance.tolist(), found.occurrence.tolist(), strict=True))


def test_ops_of_tensorflow_are_known_by_group_and_instance(tmp_path: Path) -> None:
    events = (event(REDUCE, 10, 5, group_key=1, instance_key=7), event(REDUCE, 30, 4, group_key=2, instance_key=8))
    trace = trace_of(tmp_path, host(event("CollectiveExecutor::CompleteParams", 5, 1, group_key=1), *events))
    found = found_in(trace)
    assert keys(found) == [("group 1", 7, 0), ("group 2", 8, 0)]
    assert (found.start_ps / 1e6).tolist() == [10, 30]
    assert (found.end_ps / 1e6).tolist() == [15, 34]


def test_of_the_participants_on_a_host_the_last_one_counts(tmp_path: Path) -> None:
    """Two devices of the host take part in one collective: one is there at 10 us, the other one at 13 us."""
    early, late = (event(REDUCE, start, 20 - start, group_key=1, instance_key=7) for start in (10, 13))
    found = found_in(trace_of(tmp_path, plane("/host:CPU", line("a", early, id=1), line("b", late, id=2))))
    assert len(found) == 1
    assert (found.start_ps[0], found.duration_ps[0]) == (13e6, 7e6)


def test_a_key_that_is_used_again_is_none(tmp_path: Path) -> None:
    """Ops of TensorFlow 1 have one key for all runs, and a capture does not tell which run it begins with."""
    again = [event(REDUCE, start, 5, group_key=1, instance_key=7) for start in (0, 10, 20)]
    found = found_in(trace_of(tmp_path, host(*again, event(REDUCE, 30, 5, group_key=1, instance_key=8))))
    assert (keys(found), found.without_key) == ([("group 1", 8, 0)], 3)


def test_programs_of_xla_are_known_by_op_and_run(tmp_path: Path) -> None:
    def op(name: str, start: float, run: int) -> Event:
        return event(name, start, 5, hlo_op=name, run_id=run, program_id=3)

    events = [op("all-reduce", 0, 1), op("all-reduce", 10, 1), op("dot.1", 20, 1), op("all-gather.2", 30, 2)]
    started = op("all-reduce-start.1", 40, 2)
    trace = trace_of(tmp_path, host(event("PjitFunction(f)", 0, 99), *events, started), programs())
    assert keys(found_in(trace)) == [("all-reduce", 1, 0), ("all-reduce", 1, 1), ("all-gather.2", 2, 0)]


def steps_of_a_gpu(*kernels: tuple[str, float, float], devices: int = 1) -> tuple[Plane, ...]:
    marks = [event("train", 100 * n, 100, step_num=n + 5) for n in range(3)]
    stream = [line("Stream #1", *(event(*kernel) for kernel in kernels), id=1)]
    return (host(*marks), *(plane(f"/device:GPU:{number}", *stream) for number in range(devices)))


def test_kernels_are_known_by_their_place_in_a_numbered_step(tmp_path: Path) -> None:
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    kernels = ((name, 10, 5), ("sgemm", 20, 50), (name, 80, 5), (name, 110, 7))
    found = found_in(trace_of(tmp_path, *steps_of_a_gpu(*kernels, devices=2)))
    assert keys(found) == [(name, 5, 0), (name, 5, 1), (name, 6, 0)], "participants of two devices are one"
    assert found.without_key == 0


def test_kernels_without_numbered_steps_are_nobodys(tmp_path: Path) -> None:
    _, gpu = steps_of_a_gpu(("ncclKernel_AllReduce", 10, 5))
    found = found_in(trace_of(tmp_path, host(event("train", 0, 9)), gpu))
    assert (len(found), found.without_key) == (0, 1)
    trace = trace_of(tmp_path, host(event("MatMul:MatMul", 0, 5)))
    assert find_collectives(trace, find_steps(trace)) is None, "no collective at all"


def test_too_many_are_cut_and_counted(tmp_path: Path) -> None:
    count = MOST_COLLECTIVES + 3
    events = [event(REDUCE, 10 * n, 5, group_key=1, instance_key=n) for n in range(count)]
    found = found_in(trace_of(tmp_path, host(*events)))
    assert (len(found), found.cut) == (MOST_COLLECTIVES, 3)


def test_the_clock_is_that_of_the_session(tmp_path: Path) -> None:
    work = host(event(REDUCE, 10, 5, group_key=1, instance_key=7))
    session = plane("Task Environment", stats={"profile_start_time": 1_795_314_224_676_555_723})
    assert found_in(trace_of(tmp_path, work, session)).clock_start_ns == 1_795_314_224_676_555_723
    stamped = line("t", event(REDUCE, 10, 5, group_key=1, instance_key=7), timestamp_ns=1_700_000_000_000_000_000)
    absolute = trace_of(tmp_path, plane("/host:CPU", stamped), session)
    assert absolute.clock_start_ns == 1_700_000_000_000_000_000
    assert trace_of(tmp_path, work).clock_start_ns is None


def test_steps_of_times(tmp_path: Path) -> None:
    steps = find_steps(trace_of(tmp_path, host(*(event("train", 100 * n, 100, step_num=n) for n in range(3)))))
    times_ps = np.array([-1, 0, 99, 100, 299, 300], np.int64) * 1_000_000
    assert steps.at(times_ps).tolist() == [-1, 0, 0, 1, 2, -1]


# --- waiting for the last host, by durations alone; and clocks, by ends ---

US = 1_000_000


def timed(*runs: tuple[int, float, float], label: str = "group 1", clock_ns: int | None = 0) -> Collectives:
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
    assert waited_us(timed((1, 0, 30), (2, 40, 5)), timed((1, 20, 10), (2, 35, 10))) == [[20, 0], [0, 5]]


def test_one_that_a_capture_does_not_hold_is_not_matched() -> None:
    first, second = match_collectives([timed((1, 0, 30), (2, 40, 50)), timed((1, 20, 10), (3, 50, 10))])
    assert (first.matched.tolist(), second.matched.tolist()) == ([True, False], [True, False])
    assert first.wait_ps.tolist() == [20 * US, 0]
    assert first.run[0] == second.run[0]


def test_groups_have_their_own_participants() -> None:
    """Hosts a and b exchange in one group, c and d in another one, with the same instance."""
    ab, cd = ([timed((1, 0, 30)), timed((1, 20, 10))], [timed((1, 0, 9), label="g2"), timed((1, 5, 4), label="g2")])
    assert waited_us(*ab, *cd) == [[20], [0], [5], [0]]


def test_a_host_alone_waits_for_nobody() -> None:
    (alone,) = match_collectives([timed((1, 0, 30))])
    assert (alone.matched.tolist(), alone.wait_ps.tolist()) == ([False], [0])
    assert match_collectives([]) == ()
    assert [len(wait.run) for wait in match_collectives([timed(), timed()])] == [0, 0]


durations = st.lists(st.lists(st.integers(0, 1 << 40), min_size=5, max_size=5), min_size=2, max_size=6)


@given(durations)
def test_waiting_and_exchange_are_the_time_in_the_collective(hosts: list[list[int]]) -> None:
    made = [timed(*((n, 0, ps / US) for n, ps in enumerate(of_host))) for of_host in hosts]
    exact = np.array([each.duration_ps for each in made])
    waits = np.array([wait.wait_ps for wait in match_collectives(made)])
    exchange = exact - waits
    assert (exchange == exchange[0]).all(), "the exchange takes as long on all hosts"
    assert (waits >= 0).all()
    assert (waits.min(axis=0) == 0).all(), "the last host waits for nobody"


def test_clocks_differ_by_the_ends() -> None:
    """The clock of b is 138 ms ahead; single ends differ by 10 us."""
    start, ahead = 1_795_314_224_000_000_000, 138_000_000
    first = timed((1, 0, 30), (2, 40, 10), (3, 60, 10), clock_ns=start)
    second = timed((1, 20, 10), (2, 40, 20), (3, 60, 10), clock_ns=start + ahead)
    assert clock_offsets([first, second], match_collectives([first, second])) == (
        ClockOffset(0, 0, 0),
        ClockOffset(ahead, 0, 3),
    )


def test_a_clock_that_nothing_tells() -> None:
    hosts = [timed((1, 0, 30)), timed((1, 0, 30), clock_ns=None), timed((2, 0, 30), label="other")]
    assert clock_offsets(hosts, match_collectives(hosts)) == (ClockOffset(0, 0, 0), None, None)
