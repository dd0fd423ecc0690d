"""What a running job can deliver: who it is, whether its profiler answers, and what a very short trace of it holds."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfperf.capture.gpu import gpu_event_count, has_gpu_plane, missing_gpu
from tfperf.capture.listeners import Listener, can_tell, find_listener
from tfperf.capture.machine import Machine
from tfperf.capture.options import TracerOptions
from tfperf.errors import CaptureError, TraceFormatError
from tfperf.outcomes import Check

if TYPE_CHECKING:
    from tfperf.capture.address import Address
    from tfperf.capture.client import ProfilerClient
    from tfperf.wire.contents import Contents

_LOOKS_MS = (50, 500)
"""How long to profile; longer only if nothing came."""
_ANSWER_SECONDS = 30.0
_IDLE_FIX = "look while it works; tfperf capture --wait-for-activity waits for that"


@dataclass(frozen=True, slots=True)
class _Look:
    """A very short trace; no contents: an older server wrote it to its own disk."""

    duration_ms: int
    contents: Contents | None
    place: Path


def job_checks(address: Address, machine: Machine, *, tls_ca: Path | None = None) -> list[Check]:
    """Look who listens at the address, and ask its profiler for a very short trace."""
    from tfperf.capture.client import ProfilerClient

    listener = _listener(address, machine)
    checks = [Check("port", "ok", f"{listener} listens on {address.port}")] if listener else []
    try:
        with ProfilerClient(address, tls_ca=tls_ca) as client, tempfile.TemporaryDirectory() as folder:
            client.connect()
            look = _look(client, Path(folder))
    except CaptureError as error:
        return [*checks, _no_trace(error)]
    except TraceFormatError as error:
        found = f"{address} sent no whole trace: {error}"
        return [*checks, Check("profiler", "fail", found, "is this TensorFlow's profiler, or tfperf.serve()?")]
    except OSError as error:
        found = f"no place for temporary files: {error.strerror}"
        return [*checks, Check("profiler", "fail", found, "make room in /tmp, or set TMPDIR")]
    return [*checks, *_trace_checks(look, address, machine, listener)]


def _listener(address: Address, machine: Machine) -> Listener | None:
    """Return who listens, if that is to be seen from here."""
    if address.path or not address.is_here or not can_tell(machine):
        return None
    return find_listener(machine, address.port)


def _no_trace(error: CaptureError) -> Check:
    """Return why the profiler gave nothing; that somebody else uses it is no fault."""
    found, _, fix = str(error).partition("; ")
    return Check("profiler", "warn" if error.reason == "busy" else "fail", found, fix)


def _look(client: ProfilerClient, folder: Path) -> _Look:
    """Profile the job for a moment, and once more for a longer one if it did nothing."""
    for number, duration_ms in enumerate(_LOOKS_MS):
        look = _take(client, folder / str(number), duration_ms)
        if look.contents is None or look.contents.event_count:
            break
    return look


def _take(client: ProfilerClient, folder: Path, duration_ms: int) -> _Look:
    from tfperf.capture.client import Session
    from tfperf.wire.contents import look_into

    # Where an older server writes the trace; it makes the folders, here or on its own machine.
    place = folder / "doctor" / "job.xplane.pb"
    session = Session(TracerOptions(), duration_ms, place.parent.name, "job", str(folder))
    reply = client.profile(session, duration_ms / 1000 + _ANSWER_SECONDS).result()
    if reply.xspace is None and not place.is_file():
        return _Look(duration_ms, _nothing() if reply.empty_trace else None, place)
    if reply.xspace is not None:
        place.parent.mkdir(parents=True)
        place.write_bytes(reply.xspace)
    return _Look(duration_ms, look_into(place), place)


def _nothing() -> Contents:
    from tfperf.wire.contents import Contents

    return Contents(0, {}, frozenset(), (), ())


def _trace_checks(look: _Look, address: Address, machine: Machine, listener: Listener | None) -> list[Check]:
    contents = look.contents
    if contents is None:
        return [
            Check(
                "profiler", "warn", f"answers, but writes traces on its own disk (just now {look.place})",
                "update the job's TensorFlow, or copy traces from there",
            )
        ]  # fmt: skip
    answers, name = Check("profiler", "ok", f"{address} answers"), "trace of the job"
    if not contents.event_count:
        return [
            answers,
            Check(
                name,
                "warn",
                f"nothing in {look.duration_ms} ms: the job is idle, or waits outside TensorFlow",
                _IDLE_FIX,
            ),
        ]
    known = listener.process if listener else None
    gpu = _gpu(contents, machine if address.is_here else None, known)
    return [answers, Check(name, "ok", f"{contents.event_count:,} events in {look.duration_ms} ms"), gpu]


def _gpu(contents: Contents, machine: Machine | None, process: int | None) -> Check:
    """Return what the trace says about the job's GPUs."""
    name = "job's GPU"
    missing = missing_gpu(contents, machine, "self" if process is None else process)
    if missing:
        return Check(name, "fail", missing.why, missing.fix)
    if count := gpu_event_count(contents):
        return Check(name, "ok", f"{count:,} events")
    if has_gpu_plane(contents):
        return Check(name, "ok", "no events: it did nothing meanwhile, or the job does not use it")
    return Check(name, "ok", "no GPU in the trace, and no sign that the job uses one")
