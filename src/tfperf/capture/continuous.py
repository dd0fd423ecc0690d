"""The flight recorder: a server records without pause, and the last snapshots of it are kept."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfperf.capture.client import ProfilerClient
from tfperf.capture.interrupt import stop_on_signal
from tfperf.capture.remote import Request, as_they_come, failed, open_clients, receive, session_for
from tfperf.capture.store import RunFolder
from tfperf.errors import CaptureError
from tfperf.outcomes import Captured


@dataclass(frozen=True)
class Snapshot:
    """What the workers recorded in one stretch of time, in a run folder of its own."""

    run: RunFolder
    captured: tuple[Captured, ...]

    @property
    def folder(self) -> Path:
        """Return the run folder that the traces lie in."""
        return self.run.path

    def remove(self) -> None:
        """Delete the traces of this snapshot, which nobody wants to keep."""
        with contextlib.suppress(OSError):
            for one in self.captured:
                if one.path:
                    one.path.unlink()
        self.run.drop_if_empty()


def record(
    request: Request,
    logdir: str | Path,
    say: Callable[[str], object] = lambda _: None,
    *,
    keep: int = 5,
    is_wanted: Callable[[Snapshot], bool] = lambda _: True,
) -> tuple[list[Snapshot], list[Captured]]:
    """Profile continuously until Ctrl-C, or until no worker answers any more.

    Every `request.duration_s` the traces since the last time are fetched into a run folder; of those that `is_wanted`,
    the last `keep` stay. Returns them, the newest last, and an entry for each worker that failed.
    """
    RunFolder(logdir)  # Says before anything is asked if the logdir cannot be used.
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(stop_on_signal())
        recorder = _Recorder(request, logdir, say, stop, is_wanted, deque(), keep)
        clients = open_clients(stack, request)
        lost = recorder.start(clients)
        running = [client for client in clients if client not in lost]
        try:
            while running and not stop.is_set():
                stop.wait(request.duration_s)
                gone = recorder.fetch(running)
                lost.update(gone)
                running = [client for client in running if client not in gone]
        finally:
            for client in running:
                with contextlib.suppress(CaptureError):
                    client.stop_continuous()
        if running and not recorder.kept:
            say("nothing was recorded that is wanted, so nothing was kept")
        return list(recorder.kept), [lost[client] for client in clients if client in lost]


@dataclass(frozen=True)
class _Recorder:
    request: Request
    logdir: str | Path
    say: Callable[[str], object]
    stop: threading.Event
    is_wanted: Callable[[Snapshot], bool]
    kept: deque[Snapshot]
    keep: int

    def start(self, clients: list[ProfilerClient]) -> dict[ProfilerClient, Captured]:
        """Begin on every server; return the failures."""
        lost = {}
        for client in clients:
            try:
                client.connect()
                client.start_continuous(session_for(client, self.request, RunFolder(self.logdir)))
            except CaptureError as error:
                lost[client] = failed(client, error)
        if len(lost) < len(clients):
            self.say(
                f"recording; a trace every {self.request.duration_s:g} s, the last {self.keep} are kept; Ctrl-C ends"
            )
        return lost

    def fetch(self, clients: list[ProfilerClient]) -> dict[ProfilerClient, Captured]:
        """Fetch a snapshot of all; return the workers that failed. An idle one only has nothing to keep."""
        folder = RunFolder(self.logdir)
        pending = {client: client.snapshot(self.request.timeout_s) for client in clients}
        came, lost = [], {}
        try:
            for client, call in as_they_come(pending):
                one = receive(client, call, folder, self.request)
                if one.path:
                    came.append(one)
                elif one.reason != "idle":
                    lost[client] = one
        finally:
            folder.drop_if_empty()
        if came:
            self._keep(Snapshot(folder, tuple(came)))
        return lost

    def _keep(self, snapshot: Snapshot) -> None:
        """Keep a snapshot if it is wanted, and let go of the oldest then."""
        if not self.is_wanted(snapshot):
            snapshot.remove()
            return
        self.kept.append(snapshot)
        self.say(f"kept {snapshot.folder}")
        if len(self.kept) > self.keep:
            self.kept.popleft().remove()
