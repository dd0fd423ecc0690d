"""Pairs of ops of a TPU core that begin and await a copy or an exchange, and copies that the host makes to TPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from builders import event, host, known, line, plane, read_back, trace_of
from synthetic_tpu import ARRAY_BYTES, F_COPIES, F_OPS, Offload, offload_tpu

from tfperf.trace.device.tpu_copies import (
    AsyncOp,
    async_op,
    async_runs,
    bytes_of,
    copies_own_arrays,
    shows_transfers,
    transfers_to_devices,
)
from tfperf.trace.host_trace import HostTrace

MS = 10**9
US = 10**6
HBM, HOST, VMEM = "f32[8,128]{1,0:T(8,128)}", "f32[8,128]{1,0:T(8,128)S(5)}", "f32[8,128]{1,0:T(8,128)S(1)}"
U32 = "u32[]{:S(2)}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"%copy-start.1 = ({HBM}, {HOST}, {U32}) copy-start({HOST} %p)", "start to_device copy-start.1 copy-start.1"),
        (f"%copy-start.1 = ({HOST}, {HBM}, {U32}) copy-start({HBM} %f.2)", "start to_host copy-start.1 copy-start.1"),
        (
            f"%copy-done.7 = {HBM} copy-done(({HBM}, {HOST}, {U32}) %copy-start.1)",
            "done to_device copy-done.7 copy-start.1",
        ),
        (f"%copy-done = {HOST} copy-done(({HOST}, {HBM}, {U32}) %copy-start)", "done to_host copy-done copy-start"),
        (f"%copy-done = {VMEM} copy-done(({VMEM}, {HBM}, {U32}) %copy-start)", "done on_device copy-done copy-start"),
        (f"%slice = {HBM} dynamic-slice-done((({HOST}, s32[]), {HBM}, {U32}) %begin)", "done to_device slice begin"),
        (
            f"%update = {HOST} dynamic-update-slice-done((({HOST}, {HBM}, s32[]), {HOST}, u32[]) %begin)",
            "done to_host update begin",
        ),
        (
            f"%all-gather-done = {HBM} all-gather-done(({VMEM}, {HBM}) %all-gather-start)",
            "done exchange all-gather-done all-gather-start",
        ),
        ("copy-done.3", "done on_device copy-done.3 copy-start.3"),
        ("all-reduce-start", "start exchange all-reduce-start all-reduce-start"),
    ],
)
def test_an_instruction_says_what_it_begins_or_awaits(text: str, expected: str) -> None:
    """Which end, which way, its name, and the name of the op that begins it."""
    assert known(async_op(text))[:4] == tuple(expected.split())


@pytest.mark.parametrize(
    "text",
    ["fusion.1", f"%f = {HBM} fusion({HBM} %copy-done), kind=kLoop", "%send-done = token[] send-done(() %send.1)"],
)
def test_other_ops_await_neither_a_copy_nor_an_exchange(text: str) -> None:
    assert async_op(text) is None


def test_a_stat_may_say_what_an_op_yields() -> None:
    assert async_op("copy-done.3", HOST) == AsyncOp("done", "to_host", "copy-done.3", "copy-start.3", HOST)


@pytest.mark.parametrize(
    ("shape", "size"), [(HBM, 4096), ("(bf16[3,5]{1,0}, s8[])", 31), ("s4[3]{0}", 2), ("", None), ("strange[4]", None)]
)
def test_shapes_have_bytes(shape: str, size: int | None) -> None:
    assert bytes_of(shape) == size


def offload(folder: Path) -> HostTrace:
    return read_back(folder, offload_tpu(Offload(own_clock="none", steps_line=True)), instants=True)


def test_copies_are_found_in_the_ops_of_each_core(tmp_path: Path) -> None:
    """Chip 1 has no line of asynchronous ops."""
    trace = offload(tmp_path)
    found = async_runs(trace)
    waits = {name: length for name, _, length in F_OPS}
    for place, kind in enumerate(found.kinds):
        rows = found.kind == place
        assert Counter(found.plane[rows].tolist()) == dict.fromkeys(trace.devices, 5)
        assert found.is_paired[rows].all()
        flight_ps, waited_ps = (found.end_ps - found.begun_ps)[rows], (found.end_ps - found.awaited_ps)[rows]
        assert flight_ps.tolist() == [F_COPIES[kind.start][1] * MS] * 10
        assert waited_ps.tolist() == [waits[kind.done] * MS] * 10
        assert bytes_of(kind.shape) == ARRAY_BYTES
    ways = {kind.done: kind.way for kind in found.kinds}
    assert [ways[f"copy-done{number}"] for number in ("", ".1", ".2", ".3")] == ["to_device", "to_host"] * 2


def pairs(
    folder: Path, ops: Sequence[tuple[str, float]], *runs: tuple[float, float]
) -> list[tuple[float, float, bool]]:
    """When copies began and were awaited, in us: ops are names and starts, and last 2."""
    modules = line("XLA Modules", *(event("jit_f(7)", *run) for run in runs), id=1)
    made = plane("/device:TPU:0", modules, line("XLA Ops", *(event(name, at, 2) for name, at in ops), id=2))
    found = async_runs(trace_of(folder, made))
    columns = (found.begun_ps / US, found.awaited_ps / US, found.is_paired)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_loop_that_begins_the_next_copy_before_it_awaits_one(tmp_path: Path) -> None:
    ops = [("copy-start", 0), ("copy-start", 10), ("copy-done", 20), ("copy-done", 30)]
    assert pairs(tmp_path, ops, (0, 40)) == [(0, 20, True), (10, 30, True)]


def test_where_the_capture_begins_in_a_run_its_copies_are_not_paired(tmp_path: Path) -> None:
    ops = [("copy-start", 0), ("copy-done", 5), ("copy-done", 10), ("copy-start", 50), ("copy-done", 60)]
    assert pairs(tmp_path, ops, (0, 40), (45, 40)) == [(5, 5, False), (10, 10, False), (50, 60, True)]


TO_DEVICE = "tpu::System::TransferToDevice"
THERE = f"%copy-done = {HBM} copy-done(({HBM}, {HOST}, {U32}) %copy-start)"


def test_copies_of_the_host_last_until_they_are_done(tmp_path: Path) -> None:
    begins = line("pool/1", event(TO_DEVICE, 0, 5), event(TO_DEVICE, 10, 5), id=1)
    ends = line("pool/2", *(event(f"{TO_DEVICE}=>IssueEvent=>Done", at, 1) for at in (30, 40)))
    trace = trace_of(tmp_path, plane("/host:CPU", begins, ends))
    assert shows_transfers(trace)
    assert [times.tolist() for times in transfers_to_devices(trace)] == [[0], [41 * US]]


def test_copies_whose_end_is_missing_count_as_long_as_they_are_handed_over(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event(TO_DEVICE, 0, 5), event("H2D Dispatch", 7, 1)))
    assert [times.tolist() for times in transfers_to_devices(trace)] == [[0, 7 * US], [5 * US, 8 * US]]
    trace = trace_of(tmp_path, host(event("f", 0, 5)))
    assert not shows_transfers(trace), "without a runtime of TPUs nothing shows copies"
    assert not len(transfers_to_devices(trace).start)


@pytest.mark.parametrize(("sizes", "is_own"), [((), True), ((100,), True), ((3000,), False), ((100, None), False)])
def test_arrays_that_come_from_host_memory_are_input_if_the_host_transfers_as_much(
    sizes: tuple[int | None, ...], is_own: bool, tmp_path: Path
) -> None:
    """A copy of 4,096 bytes is awaited from 10 to 20."""
    chip = plane("/device:TPU:0", line("XLA Ops", event(THERE, 10, 10)))
    stats = [{} if size is None else {"size": size} for size in sizes]
    transfers = [event(TO_DEVICE, 5 + place, 1, **each) for place, each in enumerate(stats)]
    trace = trace_of(tmp_path, chip, host(*transfers, event(TO_DEVICE, 90, 1, size=10**9)))
    assert copies_own_arrays(trace, trace.devices[0], np.array([0]), np.array([50 * US])) is is_own
    assert not copies_own_arrays(trace, trace.devices[0], np.array([50 * US]), np.array([80 * US]))


def test_arrays_that_go_back_to_host_memory_are_no_input_whatever_the_host_transfers(tmp_path: Path) -> None:
    back = f"%copy-done.1 = {HOST} copy-done(({HOST}, {HBM}, {U32}) %copy-start.1)"
    chip = plane("/device:TPU:0", line("XLA Ops", event(THERE, 10, 10), event(back, 30, 10)))
    trace = trace_of(tmp_path, chip, host(event(TO_DEVICE, 5, 1, size=4096)))
    assert copies_own_arrays(trace, trace.devices[0], np.array([0]), np.array([50 * US]))
    assert not copies_own_arrays(trace, trace.devices[0], np.array([0]), np.array([25 * US]))
