"""A made TPU profile: two cores, and what each does in a step of 100 us, to be checked by hand.

Core 0 starts its steps at 0, 105, 210, ... and takes 100 us: infeed 20, a loop of 40 with two fusions inside (15 each),
convolution 20, all-reduce 10, outfeed 5; 5 us it does nothing. Core 1 starts 2 us later and takes 90 us: infeed 10, and
the rest alike. There is no SparseCore. Without the line of steps, `marked` says where the program began each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from builders import Event, Plane, event, line, plane, space
from hlo_builders import F32, computation, instruction, program, shape
from protobytes import field, message

STEPS = 6
EVERY_US = 105
CATEGORIES = {
    "infeed.1": "infeed",
    "while.2": "while",
    "fusion.3": "loop fusion",
    "convolution.4": "convolution",
    "all-reduce.5": "all-reduce",
    "outfeed.6": "outfeed",
}
TF_OPS = {"fusion.3": "jit(step)/while/body/mul:", "convolution.4": "jit(step)/dot_general:"}


def _ops(start: float, infeed: float) -> Iterator[Event]:
    begin = start + infeed
    yield event("infeed.1", start, infeed)
    yield event("while.2", begin, 40)
    yield event("fusion.3", begin + 5, 15)
    yield event("fusion.3", begin + 22, 15)
    yield event("convolution.4", begin + 40, 20)
    yield event("all-reduce.5", begin + 60, 10)
    yield event("outfeed.6", begin + 70, 5)


WORK = {
    "fusion.3": {"flops": 9_000_000, "bytes_accessed": 9_000_000},
    "convolution.4": {"flops": 1_000_000_000, "bytes_accessed": 2_000_000},
}
"""Of each run: 600 GB/s, and 50 TFLOP/s at 500 flop/byte."""
PEAKS = {"peak_teraflops_per_second": 100.0, "peak_hbm_bw_gigabytes_per_second": 1000.0}
PROGRAM = program(
    computation(
        "main",
        instruction(1, "x", "parameter", shape(F32, 500, 100, 100)),
        instruction(2, "y", "parameter", shape(F32, 500, 100, 100), extra=field(9, 1)),
        instruction(
            3,
            "convolution.4",
            "dot",
            shape(F32, 500, 100, 100),
            [1, 2],
            extra=field(30, message(field(1, 2), field(2, 1), field(3, 0), field(4, 0)))
            + field(7, message(field(2, b"jit(step)/transpose(jvp(mlp))/dot_general"))),
        ),
        root=3,
    )
)
"""The program of the step, of which only the product is known: 500 times 100 x 100, padded to 104 x 128."""


def core(
    number: int,
    *,
    with_categories: bool = True,
    with_ops: bool = True,
    infeed: bool = True,
    steps: bool = True,
    with_work: bool = False,
) -> Plane:
    """One core; without an infeed, it does nothing in that time."""
    first, waits, takes = ((0, 20, 100), (2, 10, 90))[number]
    starts = [first + EVERY_US * step for step in range(STEPS)]
    ops = [op for start in starts for op in _ops(start, waits) if infeed or op.name != "infeed.1"]
    lines = [line("XLA Modules", *(event("jit_step(7)", start, takes, program_id=7) for start in starts), id=2)]
    if steps:
        lines.append(line("Steps", *(event(str(step), start, takes) for step, start in enumerate(starts)), id=1))
    facts: dict[str, dict[str, Any]] = {}
    for name, category in CATEGORIES.items():
        facts[name] = {"hlo_category": category} if with_categories else {"program_id": 7}
        facts[name] |= {"tf_op": TF_OPS[name]} if name in TF_OPS else {}
        facts[name] |= {**WORK.get(name, {}), "program_id": 7} if with_work else {}
    return plane(
        f"/device:TPU:{number}",
        *lines,
        *([line("XLA Ops", *ops, id=3)] if with_ops else []),
        stats={"device_type_string": "TPU v5 lite", **(PEAKS if with_work else {})},
        name_stats=facts,
    )


def _host(*, fetches: bool, marked: bool, jax: bool) -> Plane:
    calls = [event("PjitFunction(step)" if jax else "EagerExecute", EVERY_US * step, 10) for step in range(STEPS)]
    marks = [event("train", EVERY_US * step, 11, step_num=step) for step in range(STEPS)]
    waits = [event("IteratorGetNextOp::DoCompute", EVERY_US * step + 1, 9, _r=0) for step in range(STEPS)]
    python = sorted([*calls, *(marks if marked else ())], key=lambda each: (each.start_us, -each.duration_us))
    return plane("/host:CPU", line("python", *python, id=1), line("reader", *(waits if fetches else ()), id=2))


def synthetic_tpu(*, fetches: bool = False, marked: bool = False, jax: bool = True, **parts: bool) -> bytes:
    """Return the profile; `parts` are those of `core`."""
    known = plane("/host:metadata", name_stats={"jit_step(7)": {"program_id": 7, "Hlo Proto": PROGRAM}})
    return space(core(0, **parts), core(1, **parts), _host(fetches=fetches, marked=marked, jax=jax), known)


PRODUCT = "%dot.1 = bf16[8] dot(bf16[8] %p)"


def core_with_work() -> Plane:
    """A core whose profile states its peak, and the work of the only op, a product of 1 ms."""
    work = {"program_id": 7, "hlo_category": "dot", "flops": 50_000_000_000, "bytes_accessed": 123_400_000}
    return plane(
        "/device:TPU:0",
        line("XLA Ops", event(PRODUCT, 0, 1000)),
        stats={"device_type_string": "TPU v5 lite", "peak_teraflops_per_second": 100.0},
        name_stats={PRODUCT: work},
    )
