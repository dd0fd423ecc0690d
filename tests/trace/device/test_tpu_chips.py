"""Which chips of a TPU a trace has, and on which its main program runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import event, line, plane, trace_of
from places import SHARED
from protobytes import field, message
from synthetic_tpu import Offload, offload_tpu

from tfperf.trace.device.tpu_runs import TpuChips, find_chips, join_chips, ranges_of
from tfperf.trace.read import read_host

ON_HOST = SHARED / "traces" / "tpu_v6e" / "offload" / "tpu.xplane.pb"


def chips_of(tmp_path: Path, made: Offload) -> TpuChips | None:
    path = tmp_path / "tpu.xplane.pb"
    path.write_bytes(offload_tpu(made))
    return find_chips(read_host(path))


@pytest.mark.parametrize("large_ids", [True, False])
def test_chips_of_the_main_program_that_are_on_another_host(large_ids: bool, tmp_path: Path) -> None:
    chips = chips_of(tmp_path, Offload(large_ids=large_ids))
    assert chips == TpuChips(2, (2, 3), True, "jit_f", (0, 1, 2, 3))
    assert (chips.missing, chips.noun) == (2, "chip")
    assert chips.sentence == (
        "only 2 of the 4 chips of jit_f are in this profile; the others (0 to 1) are on another host, or were not "
        "recorded"
    )


def test_hosts_that_have_all_chips_together(tmp_path: Path) -> None:
    second = chips_of(tmp_path, Offload())
    whole = join_chips([TpuChips(2, (0, 1), True, "jit_f", (0, 1, 2, 3)), second, None])
    assert whole is not None
    assert (whole.recorded, whole.numbers, whole.missing, whole.sentence) == (4, (0, 1, 2, 3), 0, "")
    assert join_chips([None]) is None


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ([field(5, 0) + field(6, 0), field(5, 0) + field(6, 1)], ((0, 1), False)),  # two cores of a chip
        ([b"", b""], ((), True)),  # the same number twice says nothing
        ([b"\xff\xff", b"\x0a\x01x"], ((), True)),
    ],
)
def test_planes_say_which_core_of_which_chip_they_are(
    details: list[bytes], expected: tuple[tuple[int, ...], bool], tmp_path: Path
) -> None:
    cores = [
        plane(f"/device:TPU:{at}", line("XLA Modules", event("jit_f(9)", 0, 1)), stats={"core_details": message(each)})
        for at, each in enumerate(details)
    ]
    chips = find_chips(trace_of(tmp_path, *cores))
    numbers, are_chips = expected
    assert chips == TpuChips(2, numbers, are_chips, "jit_f", ())
    assert chips.sentence == ""


def test_without_a_tpu_there_are_no_chips(tmp_path: Path) -> None:
    assert find_chips(trace_of(tmp_path, plane("/host:CPU", line("python", event("a", 0, 1))))) is None


def test_numbers_in_words() -> None:
    assert ranges_of([0, 1, 2, 5, 7, 8]) == "0 to 2, 5, 7 to 8"
    assert ranges_of([]) == ""


@pytest.mark.skipif(not ON_HOST.exists(), reason="the real profile is not here")
def test_four_of_eight_chips_of_a_real_profile() -> None:
    assert find_chips(read_host(ON_HOST)) == TpuChips(4, (4, 5, 6, 7), True, "jit_f", tuple(range(8)))
