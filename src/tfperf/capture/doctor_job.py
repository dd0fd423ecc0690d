"""What can be profiled of a running job: whether its profiler answers, and what a very short trace of it holds."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tfperf.capture.machine import Machine
from tfperf.capture.missing_gpu import gpu_event_count, has_gpu_plane, missing_gpu
from tfperf.capture.outcomes import Check
from tfperf.capture.port_listeners import Listener, can_find_listeners, find_listener
from tfperf.capture.tracer_options import TracerOptions
from tfperf.errors import CaptureError, TraceFormatError

if TYPE_CHECKING:
    from tfperf.capture.address import Address
    from tfperf.capture.client import ProfilerClient
    from tfperf.wire.contents import Contents

_DURATIONS_MS = (50, 500)
"""How long to profile; the second only if the first trace is empty."""
_ANSWER_SECONDS = 30.0


def job_checks(address: Address, machine: Machine, *, tls_ca: Path | None = None) -> list[Check]:
    """Look which process listens at the address, and ask its profiler for a very short trace."""
    from tfperf.capture.client import ProfilerClient

    listener = None
    if address.is_here and not address.path and can_find_listeners(machine):
        listener = find_listener(machine, address.port)
    checks = [Check("port", "ok", f"{listener} listens on {address.port}")] if listener else []
    try:
        with ProfilerClient(address, tls_ca=tls_ca) as client, tempfile.TemporaryDirectory() as folder:
            client.connect()
            for duration_ms in _DURATIONS_MS:
                contents = _take_trace(client, Path(folder) / str(duration_ms), duration_ms)
                if contents is None or contents.event_count:
                    break
    except CaptureError as error:
        return [*checks, Check.of_error("profiler", error)]
    except TraceFormatError as error:
        fix = "is this TensorFlow's profiler, or tfperf.serve()?"
        return [*checks, Check("profiler", "fail", f"the trace of {address} is damaged: {error}", fix)]
    except OSError as error:
        problem = f"no space for temporary files: {error.strerror}"
        return [*checks, Check("profiler", "fail", problem, "free some space in /tmp, or set TMPDIR")]
    checks.append(Check("profiler", "ok", f"{address} answers"))
    if not contents or not contents.event_count:
        idle = f"nothing in {duration_ms} ms: the job is idle, or waits outside TensorFlow"
        fix = "check while it works; tfperf capture --wait-for-activity waits for that"
        return [*checks, Check("trace of the job", "warn", idle, fix)]
    checks.append(Check("trace of the job", "ok", f"{contents.event_count:,} events in {duration_ms} ms"))
    return [*checks, _gpu_check(contents, machine if address.is_here else None, listener)]


def _take_trace(client: ProfilerClient, folder: Path, duration_ms: int) -> Contents | None:
    """Profile the job; return what the trace holds, None if it is empty.

    Raises CaptureError if there is no trace, or none that can be read here; TraceFormatError if it is damaged.
    """
    from tfperf.capture.client import profile_request
    from tfperf.wire.contents import look_into

    # An older server writes the trace there by itself; it makes the folders, here or on its own machine.
    place = folder / "doctor" / "job.xplane.pb"
    request = profile_request(
        TracerOptions(), duration_ms, session_id=place.parent.name, host_name="job", repository_root=str(folder)
    )
    reply = client.profile(request, duration_ms / 1000 + _ANSWER_SECONDS).result()
    if reply.xspace:
        place.parent.mkdir(parents=True)
        place.write_bytes(reply.xspace)
    elif reply.empty_trace:
        return None
    elif not place.is_file():
        raise CaptureError(
            "written_remotely",
            f"{client.address} answers, but writes traces on its own disk (just now {place}); "
            "update the job's TensorFlow, or copy traces from there",
        )
    return look_into(place)


def _gpu_check(contents: Contents, machine: Machine | None, listener: Listener | None) -> Check:
    """Return what the trace says about the job's GPUs."""
    name = "job's GPU"
    process = listener.process if listener else None
    missing = missing_gpu(contents, machine, "self" if process is None else process)
    if missing:
        return Check(name, "fail", missing.cause, missing.fix)
    if count := gpu_event_count(contents):
        return Check(name, "ok", f"{count:,} events")
    if has_gpu_plane(contents):
        return Check(name, "ok", "no events: the GPU did nothing meanwhile, or the job does not use it")
    return Check(name, "ok", "no GPU in the trace, and no sign that the job uses one")
