"""Jobs of several hosts whose steps end in an exchange, with a delay of a known host in each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from builders import Event, event, host, logdir_of, plane, space

import tfperf
from tfperf.analysis.load import Analysis
from tfperf.analysis.registry import AnySection

REDUCE = "CollectiveReduceV2:CollectiveReduceV2"
FETCH, OP, COMPILE = "IteratorGetNextOp::DoCompute", "MatMul:MatMul", "XlaCompile"
WORK_US, EXCHANGE_US = 4_000.0, 1_000.0
"""What every host does in a step, and how long the exchange takes when all are there."""


def host_of_job(  # noqa: PLR0913  (each is a property of the job)
    delays_us: Sequence[float],
    longest_us: Sequence[float],
    *,
    what: str = OP,
    first: int = 0,
    marked: bool = True,
    clock_us: float = 0.0,
    exchanges_from: int = 0,
    called: bool = False,
) -> bytes:
    """A host that does `what` for its delay in each step, then its work, then exchanges; None of `what` is a pause.

    `called`: the work and the exchange are inside a call.
    """
    events: list[Event] = []
    start = 0.0
    for number, (delay, longest) in enumerate(zip(delays_us, longest_us, strict=True)):
        step = longest + WORK_US + EXCHANGE_US
        if marked:
            events.append(event("train", start, step, step_num=number + first))
        else:
            events.append(
                event("EagerLocalExecute: __inference_train_step_9", start, step, tf_function_call="notTraced")
            )
        if what and delay:
            events.append(event(what, start, delay))
        if called:
            events.append(event("EagerExecute", start + delay, step - delay))
        events.append(event("Conv2D:Conv2D", start + delay, WORK_US))
        if number >= exchanges_from:
            keys = {"group_key": 1, "instance_key": number + first + 100}
            events.append(event(REDUCE, start + delay + WORK_US, step - delay - WORK_US, **keys))
        start += step
    session = plane("Task Environment", stats={"profile_start_time": 1_795_314_224_000_000_000 + int(1000 * clock_us)})
    return space(host(*events), session)


def job(
    tmp_path: Path, *, sections: Sequence[AnySection] = ("hosts",), what: str = OP, **delays_us: Sequence[float]
) -> Analysis:
    """A job whose hosts are late by these times in each step."""
    longest = [max(of_step) for of_step in zip(*delays_us.values(), strict=True)]
    files: Mapping[str, bytes] = {name: host_of_job(delays, longest, what=what) for name, delays in delays_us.items()}
    return tfperf.load(logdir_of(tmp_path, **files), sections=sections)
