"""Collectives on traces small enough to check by hand: waiting, transfer, bandwidth and overlap."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import (
    Event,
    Plane,
    event,
    host,
    known,
    line,
    logdir_of,
    marks,
    plane,
    programs,
    results_of,
    rows_of,
    space,
    trace_of,
)
from hlo_builders import F32, computation, instruction, program, shape
from places import SHARED
from protobytes import field, message

import tfperf
from tfperf.report.model import Data
from tfperf.sections.collectives import COLLECTIVES, COLLECTIVES_BY_DEVICE, build
from tfperf.sections.collectives.analysis import BUS_FACTORS, Exchange, HostCollectives, compare

OLD, NEW = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(Args)"


def gpus(*devices: tuple[Event, ...], compute: tuple[Event, ...] = ()) -> list[Plane]:
    """GPUs with a stream of collectives each; the first one also computes, on another stream."""
    first = [line("Stream #2", *compute, id=2)] if compute else []
    return [
        plane(f"/device:GPU:{number}", line("Stream #1", *events, id=1), *(first if number == 0 else []))
        for number, events in enumerate(devices)
    ]


def tables(*hosts: list[Plane], folder: Path) -> tuple[Data, Data]:
    traces = []
    for number, planes in enumerate(hosts):
        (folder / str(number)).mkdir()
        traces.append(trace_of(folder / str(number), *planes))
    results = results_of(*traces, sections=["collectives"])
    return known(COLLECTIVES.data(results)), known(COLLECTIVES_BY_DEVICE.data(results))


def collective(sent: int, got: int, opcode: str, groups: bytes, devices: int = 2) -> bytes:
    """A program for some devices that exchanges arrays of f32: each sends and gets that many numbers."""
    made = instruction(2, f"{opcode}.1", opcode, shape(F32, got), [1], extra=groups)
    main = computation("main", instruction(1, "x", "parameter", shape(F32, sent)), made, root=2)
    ids = field(3, message(*(field(1, number) for number in range(devices))))
    return program(main, extra=field(15, message(field(1, devices), field(2, 1), ids)))


@pytest.mark.parametrize("name", [OLD, NEW, "ncclAllReduceRingLLKernel_sum_f32(ncclColl)"])
def test_the_last_rank_ends_the_waiting(tmp_path: Path, name: str) -> None:
    """GPU 0 begins at 10 us, GPU 1 at 20 us, and both end at 30 us. A kernel of GPU 0 overlaps 15 to 25 us."""
    devices = gpus((event(name, 10, 20),), (event(name, 20, 10),), compute=(event("sgemm", 15, 10),))
    kinds, devices_of = tables([host(*marks(3)), *devices], folder=tmp_path)
    assert rows_of(kinds, "type", "dtype", "count", "total_ms") == [("all-reduce", "f32", 2, pytest.approx(0.03))]
    assert rows_of(kinds, "mean_us", "waits_us", "transfer_us") == [(15, 5, 10)]
    assert rows_of(kinds, "exposed_ms", "overlapped_ms") == [(pytest.approx(0.02), pytest.approx(0.01))]
    assert rows_of(devices_of, "device", "waits_percent", "last_percent", "exposed_percent") == [
        ("GPU:0", 50, 0, 50),
        ("GPU:1", 0, 100, 100),
    ]
    assert kinds["size_bytes"] == kinds["bus_gb_per_second"] == [None], "neither size nor ranks are in the profile"


def test_without_numbered_steps_kernels_are_matched_on_one_host(tmp_path: Path) -> None:
    both = gpus((event(NEW, 10, 20), event(NEW, 50, 10)), (event(NEW, 20, 10), event(NEW, 45, 15)))
    kinds, _ = tables([host(event("f", 0, 99)), *both], folder=tmp_path)
    assert rows_of(kinds, "count", "waits_us", "transfer_us") == [(4, 3.75, 10)]


def test_a_missing_kernel_is_not_matched_with_another_one(tmp_path: Path) -> None:
    """The profile lacks the first kernel of GPU 1, so the kernels at the same position do not overlap."""
    both = gpus((event(NEW, 10, 20), event(NEW, 50, 10)), (event(NEW, 45, 15),))
    kinds, _ = tables([host(event("f", 0, 99)), *both], folder=tmp_path)
    assert rows_of(kinds, "waits_us", "why_unknown") == [(None, "the ranks cannot be matched")]


def test_one_rank_does_not_show_its_waiting(tmp_path: Path) -> None:
    kinds, _ = tables([host(*marks(3)), *gpus((event(NEW, 10, 20),))], folder=tmp_path)
    assert rows_of(kinds, "waits_us", "why_unknown") == [(None, "the profile has one rank")]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclWorkElem)", "broadcast"),
        ("ncclDevKernel_SendRecv(Args)", "permute"),
        ("ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)", None),
    ],
)
def test_ranks_that_need_not_wait_for_the_last_one(tmp_path: Path, name: str, kind: str | None) -> None:
    """A kernel that only moves bytes has no element type, and some of RCCL's kernels have no type at all."""
    kinds, _ = tables([host(*marks(3)), *gpus((event(name, 10, 20),), (event(name, 20, 10),))], folder=tmp_path)
    assert rows_of(kinds, "type", "dtype", "waits_us") == [(kind, None, None)]


LIST = field(49, message(field(1, 0), field(1, 1)))
PAIRS = LIST + field(49, message(field(1, 2), field(1, 3)))
IOTA = field(87, field(2, message(field(1, 1), field(2, 2))))


@pytest.mark.parametrize(
    ("opcode", "sent", "got", "groups", "size", "bus"),
    [
        ("all-reduce", 10_000, 10_000, b"", 40_000, 4.0),  # 40 kB / 10 us, x 2 (2 - 1) / 2
        ("all-gather", 5_000, 10_000, LIST, 40_000, 2.0),  # x (2 - 1) / 2
        ("reduce-scatter", 10_000, 5_000, IOTA, 40_000, 2.0),
        ("all-to-all", 10_000, 10_000, LIST, 40_000, 2.0),
    ],
)
def test_bandwidth_by_type_and_ranks(  # noqa: PLR0913, PLR0917
    tmp_path: Path, opcode: str, sent: int, got: int, groups: bytes, size: int, bus: float
) -> None:
    """XLA's program has the size; the kernel runs for an op of it, which starts the exchange."""
    ran = {"hlo_op": f"{opcode}.1", "program_id": 7}
    devices = gpus((event(NEW, 10, 20, **ran),), (event(NEW, 20, 10, **ran),))
    xla = programs(id_7=collective(sent, got, opcode, groups))
    kinds, _ = tables([host(*marks(3)), *devices, xla], folder=tmp_path)
    assert rows_of(kinds, "type", "dtype", "size_bytes", "ranks", "transfer_us") == [(opcode, "f32", size, 2, 10)]
    assert rows_of(kinds, "algorithm_gb_per_second", "bus_gb_per_second", "is_lower_bound") == [(4, bus, False)]


# Ranks 0 to 3 as 2 x 2, transposed and cut into two: {0, 2} and {1, 3}.
STRIDES = field(87, field(2, message(field(1, 2), field(2, 2), field(3, 2), field(3, 2), field(4, 1), field(4, 0))))


@pytest.mark.parametrize(("groups", "waits"), [(PAIRS, (5, 0, 0, 15)), (STRIDES, (10, 0, 0, 10))])
def test_groups_of_the_devices_of_a_host(tmp_path: Path, groups: bytes, waits: tuple[int, ...]) -> None:
    """GPUs 0 to 3 begin at 10, 15, 20 and 5 us, and all end at 25 us: pairs {0, 1} and {2, 3}, or {0, 2} and {1, 3}."""
    ran = {"hlo_op": "all-reduce.1", "program_id": 7}
    devices = gpus(*[(event(NEW, start, 25 - start, **ran),) for start in (10, 15, 20, 5)])
    xla = programs(id_7=collective(10_000, 10_000, "all-reduce", groups, devices=4))
    kinds, of_devices = tables([host(*marks(3)), *devices, xla], folder=tmp_path)
    assert rows_of(kinds, "ranks", "groups", "transfer_us", "bus_gb_per_second") == [(2, 2, 7.5, 5.333)]
    assert [round(1000 * ms) for ms in of_devices["waits_ms"]] == list(waits)


def test_groups_of_unknown_devices_show_no_waiting(tmp_path: Path) -> None:
    """Two pairs exchange at once, but only one device of each is on this host; the rate is 4 GB/s or more."""
    ran = {"hlo_op": "all-reduce.1", "program_id": 7}
    devices = gpus(*[(event(NEW, 10, 10, **ran),)] * 2)
    xla = programs(id_7=collective(10_000, 10_000, "all-reduce", PAIRS, devices=4))
    kinds, _ = tables([host(*marks(3)), *devices, xla], folder=tmp_path)
    assert rows_of(kinds, "ranks", "groups", "waits_us", "bus_gb_per_second", "is_lower_bound") == [
        (2, 2, None, 4, True)
    ]
    assert kinds["why_unknown"] == ["the profile does not show which devices form a group"]


def test_bus_factors_are_those_of_nccl_tests() -> None:
    """The table at the end of nccl-tests' doc/PERFORMANCE.md, for 8 ranks."""
    factors = {kind: Exchange(type=kind, ranks=8).bus_factor() for kind in (*BUS_FACTORS, "broadcast", "reduce")}
    scatter = dict.fromkeys(("all-gather", "reduce-scatter", "all-to-all"), 7 / 8)
    assert factors == {"all-reduce": 2 * 7 / 8, **scatter, "broadcast": 1, "reduce": 1}
    assert Exchange(type="all-reduce").bus_factor() is None
    assert Exchange(type="").bus_factor() is None


def reducing(start: float, instance: int) -> Event:
    return event("sgd/CollectiveReduceV2:CollectiveReduceV2", start, 40 - start, group_key=1, instance_key=instance)


def test_hosts_wait_for_the_last_one(tmp_path: Path) -> None:
    """Worker 1 begins 30 us later; TensorFlow states the ranks of the group on worker 0 only."""
    setup = event("CollectiveExecutor::CompleteParams", 1, 1, group_key=1, group_size=2)
    kinds, devices = tables([host(setup, reducing(5, 7))], [host(reducing(35, 7))], folder=tmp_path)
    assert rows_of(kinds, "type", "ranks", "group_key", "count") == [("all-reduce", 2, 1, 2)]
    assert rows_of(kinds, "waits_us", "transfer_us", "exposed_percent") == [(15, 5, None)]
    assert rows_of(devices, "device", "waits_percent", "last_percent") == [
        ("CPU", pytest.approx(100 * 30 / 35), 0),
        ("CPU", 0, 100),
    ]


def test_a_limit_measures_all_hosts_together(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=space(host(reducing(5, 7))), b=space(host(reducing(35, 7))))
    result = tfperf.check(logdir, limits=["max(collectives.waits_us) <= 15us", "max(collectives.transfer_us) < 5us"])
    assert [each.status for each in result.judged] == ["pass", "breach"]


def test_a_host_that_was_not_captured_is_missed(tmp_path: Path) -> None:
    setup = event("CollectiveExecutor::CompleteParams", 1, 1, group_key=1, group_size=3)
    kinds, _ = tables([host(setup, reducing(5, 7))], [host(reducing(35, 7))], folder=tmp_path)
    assert rows_of(kinds, "waits_us", "why_unknown") == [(None, "the profile has 2 of 3 ranks")]


ARRAY = "f32[1000]{0}"
TPU_OPS = {
    "start": f"%all-reduce-start.1 = {ARRAY} all-reduce-start({ARRAY} %x), replica_groups=[1,2]<=[2]",
    "done": f"%all-reduce-done.1 = {ARRAY} all-reduce-done({ARRAY} %all-reduce-start.1)",
    "work": f"%fusion.1 = {ARRAY} fusion({ARRAY} %x)",
    "gather": "%all-gather.1 = f32[2000]{0} all-gather(" + ARRAY + " %x), replica_groups={{0,1}}",
}


def core(number: int, done: float) -> Plane:
    """A core that computes for 30 us while it reduces, then waits until `done`, and gathers for 10 us."""
    ops = (event("start", 0, 1), event("work", 1, 30), event("done", 31, done - 31), event("gather", 60, 10))
    stats = {"gather": {"hlo_category": "all-gather"}}
    texts = {key: (text, text.partition(" = ")[0][1:]) for key, text in TPU_OPS.items()}
    return plane(f"/device:TPU:{number}", line("XLA Ops", *ops), name_stats=stats, texts=texts)


def test_a_tpu_core_waits_only_at_the_end(tmp_path: Path) -> None:
    """Both reductions are in flight from 0 us, until 40 and 36 us; the core waits from 31 us on."""
    kinds, devices = tables([core(0, 40), core(1, 36)], folder=tmp_path)
    assert rows_of(kinds, "type", "size_bytes", "ranks", "total_ms", "exposed_ms") == [
        ("all-reduce", 4000, None, pytest.approx(0.076), pytest.approx(0.014)),
        ("all-gather", 8000, 2, pytest.approx(0.02), pytest.approx(0.02)),
    ]
    assert rows_of(kinds, "waits_us", "transfer_us") == [(2, 36), (0, 10)]
    assert len(devices["type"]) == 4


def test_a_profile_without_collectives_says_so(tmp_path: Path) -> None:
    section = build(results_of(trace_of(tmp_path, host(event("MatMul:MatMul", 0, 9))), sections=["collectives"]))
    assert section.tables == ()
    assert section.notes == ("The profile has no collectives on devices or hosts.",)


def test_the_finding_states_the_shares(tmp_path: Path) -> None:
    devices = gpus((event(NEW, 10, 20),), (event(NEW, 20, 10),), compute=(event("sgemm", 15, 10),))
    section = build(results_of(trace_of(tmp_path, host(*marks(3)), *devices), sections=["collectives"]))
    assert section.findings[0].text == (
        "Collectives take 0.015 ms of the capture per device on average: 33.3% of it is waiting for the last rank, "
        "66.7% does not overlap compute."
    )


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real traces are not part of the project")
@pytest.mark.parametrize(
    ("folder", "waited_ms", "within"),
    [("multi_host/jax_2/inside", 402.0, 0.02), ("multi_host/loop_random_4/inside", 482 + 331 + 572 + 422, 0.07)],
)
def test_real_hosts_wait_as_long_as_their_jobs_slept(folder: str, waited_ms: float, within: float) -> None:
    sums = known(tfperf.load(SHARED / "traces" / folder, sections=["collectives"])["collectives"].sums)
    assert sums.waited_ps.sum() / 1e9 == pytest.approx(waited_ms, rel=within)


def test_each_host_may_be_packed(tmp_path: Path) -> None:
    """With many hosts, the result of each is read twice and not kept."""
    results = results_of(trace_of(tmp_path, host(reducing(5, 7))), sections=["collectives"])
    part = results.hosts[0]["collectives"]
    assert isinstance(part, HostCollectives)
    assert known(compare(results).sums).count.tolist() == [1]
