"""The flight recorder: servers record without pause, and only the last recordings are kept."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from tfperf.capture import remote
from tfperf.capture.client import ProfilerClient
from tfperf.capture.ending import MUTE_SECONDS, Ending, on_each, on_each_within
from tfperf.capture.outcomes import Captured
from tfperf.capture.remote import CaptureRequest, Say
from tfperf.capture.replies import Replies, TimeLimits
from tfperf.capture.run_folder import RunFolder


class _Recording(Struct, frozen=True):
    """The traces of all workers over one interval, in a run folder of their own."""

    folder: RunFolder
    captured: tuple[Captured, ...]

    def delete(self) -> None:
        with contextlib.suppress(OSError):
            for result in self.captured:
                if result.path:
                    result.path.unlink()
        self.folder.drop_if_empty()


def record(
    request: CaptureRequest,
    logdir: str | Path,
    say: Say = lambda _: None,
    *,
    keep: int = 5,
    is_wanted: Callable[[Sequence[Captured]], bool] = lambda _: True,
) -> list[Captured]:
    """Profile continuously until Ctrl-C, or until no worker answers.

    Every `request.duration_s`, the traces since the last time are fetched into a run folder; of the recordings that
    are wanted, the last `keep` stay on disk. Returns the results of these, the newest last, then of failed workers.
    """
    RunFolder(logdir)  # Raises before any worker is asked if the logdir cannot be used.
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(remote.stop_on_signal())
        clients, kept = remote.open_clients(stack, request), deque[_Recording]()
        lost = _start(clients, request, logdir, stop)
        running = [client for client in clients if client not in lost]
        if running:
            say(f"recording: a trace every {request.duration_s:g} s, the last {keep} are kept; Ctrl-C ends it")
        try:
            while running and not stop.is_set():
                stop.wait(request.duration_s)
                recording, failures = _fetch(running, request, logdir, stop)
                lost.update(failures)
                running = [client for client in running if client not in failures]
                if not recording.captured:
                    continue
                if not is_wanted(recording.captured):
                    recording.delete()
                    continue
                kept.append(recording)
                say(f"kept {recording.folder.path}")
                if len(kept) > keep:
                    kept.popleft().delete()
        finally:
            on_each_within(MUTE_SECONDS, running, ProfilerClient.stop_continuous)
        if running and not kept:
            say("no recording was worth keeping, so nothing was kept")
        results = [result for recording in kept for result in recording.captured]
        return [*results, *(lost[client] for client in clients if client in lost)]


def _start(
    clients: Sequence[ProfilerClient], request: CaptureRequest, logdir: str | Path, stop: threading.Event
) -> dict[ProfilerClient, Captured]:
    """Start recording on every server; return the failures."""

    def start(client: ProfilerClient) -> None:
        client.connect()
        client.start_continuous(remote.profile_request_for(client, request, RunFolder(logdir)))

    _, errors = on_each(clients, start, stop)
    return {client: remote.failed(client, error) for client, error in errors.items()}


def _fetch(
    clients: Sequence[ProfilerClient], request: CaptureRequest, logdir: str | Path, stop: threading.Event
) -> tuple[_Recording, dict[ProfilerClient, Captured]]:
    """Fetch what all servers recorded since the last time; return it and the failures. An idle job is not a failure."""
    folder = RunFolder(logdir)
    limits = TimeLimits(request.timeout_s, request.timeout_s)
    pending = {client: client.snapshot(limits.of_call(len(clients))) for client in clients}
    replies = Replies(pending, partial(remote.receive, folder=folder, request=request), limits)
    captured, failures = [], {}
    try:
        for client, result in replies.as_they_come(Ending(pending, folder.name, stop)):
            if result.path:
                captured.append(result)
            elif result.reason != "idle":
                failures[client] = result
    finally:
        folder.drop_if_empty()
    return _Recording(folder, tuple(captured)), failures
