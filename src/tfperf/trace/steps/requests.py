"""Requests that a server records, and the batches that process them.

The events are those of TensorFlow's batching (`batching_session.cc`, `shared_batch_scheduler.h`,
`adaptive_shared_batch_scheduler.h`, `batch_resource_base.cc`) and of its runtimes (`direct_session.cc`, TFRT's
`graph_executor.cc`). XProf reads the same ones (`inference_stats.cc`).
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Int64s
from tfperf.trace.event_names import BATCH_SIZES, SERVERS, SESSIONS, is_gradient, mask, processes_batch
from tfperf.trace.host_trace import HostTrace, once
from tfperf.trace.nesting import hold, last_around, outermost
from tfperf.trace.steps.step_calls import find_calls
from tfperf.trace.steps.steps import Steps, no_steps


class Served(Struct, frozen=True, eq=False):
    """Requests and batches of a host: rows of events, in time order, and the name of each request.

    `source` is the event that the requests are; both it and `rows` are empty if only batches are recorded.
    """

    source: str
    rows: Int64s
    names: tuple[str, ...]
    batches: Int64s


@once
def find_requests(trace: HostTrace) -> Served | None:
    """Return the requests that a server records; None without any, or if the job trains."""
    batches = trace.host_events(mask(trace.names, processes_batch))
    batches = np.sort(outermost(trace, batches[trace.duration_ps[batches] > 0]))
    if not hold(trace, batches, trace.host_events(mask(trace.names, BATCH_SIZES.__contains__))).any():
        batches = NO_NUMBERS  # an event of the program with the same name
    found, source = NO_NUMBERS, ""
    for source in (*SERVERS, *SESSIONS):
        found = trace.host_events(mask(trace.names, source.__eq__))
        found = found[(trace.duration_ps[found] > 0) & (last_around(trace, batches, found) < 0)]
        if source in SESSIONS and not len(batches):
            found = found[trace.number_at("model_id", found, -1) >= 0]
        if len(found):
            break
    if not len(found) and not len(batches):
        return None
    if len(trace.host_events(mask(trace.names, is_gradient))):
        return None
    batches = batches[np.argsort(trace.start_ps[batches], kind="stable")]
    if len(found):
        found = outermost(trace, found)
        models = trace.stat("model_id").texts
        numbers = trace.number_at("model_id", found, -1).tolist()
        return Served(source, found, tuple(models[each] if each >= 0 else source for each in numbers), batches)
    # A server in Python calls functions that batch inside.
    calls = find_calls(trace)
    names = tuple(calls.names[name] for name in calls.name.tolist())
    return Served("tf.function calls" if names else "", calls.row, names, batches)


def from_requests(trace: HostTrace) -> Steps | None:
    """Return no steps if the job is a server: its requests overlap, and the time between them depends on clients."""
    if find_requests(trace) is None:
        return None
    return no_steps("the job is a server, whose requests are not steps (-s requests)")
