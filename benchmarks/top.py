"""What `tfperf top` costs the job that it watches, at its default settings, on the machine of the job.

    python benchmarks/top.py [--pairs 20] [--seconds 10] [--interval 5s] [--duration 500ms]

A Keras job that keeps all cores busy trains all the time; it counts its steps in a file of eight bytes. Beside it runs
`tfperf top` on a terminal, and is stopped and let go on in turn. The bar: with it, the job is at most 5 % slower than
in the stretches of time just before and after, by the median over all.

Other programs on the machine disturb that by more than top does. So it also says by how much more CPU time the job
takes for a step, which they hardly change, and what top itself takes of processors and memory; then how long
`tfperf top --help` takes (the bar: 0.15 s), and how long the end takes in the middle of a sample (the bar: 1 s).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple

MOST_SLOWER_PERCENT = 5.0
HELP_SECONDS = 0.15
END_SECONDS = 1.0
_SETTLE_S = 7.0
"""Until the analysis has loaded all that it needs."""
_TOP = [sys.executable, "-m", "tfperf", "top"]

_JOB = """
import mmap, struct, sys
import keras
import tensorflow as tf

port, counter = int(sys.argv[1]), open(sys.argv[2], "r+b")
steps = mmap.mmap(counter.fileno(), 8)
tf.profiler.experimental.server.start(port)
batch = tf.random.normal((64, 128)), tf.zeros((64, 10))

def image(number):
    return tf.math.sin(batch[0] + tf.cast(number, tf.float32)), batch[1]

data = tf.data.Dataset.range(10**9).map(image, num_parallel_calls=2).prefetch(2)
layers = [keras.layers.Dense(512, activation="relu") for _ in range(3)]
model = keras.Sequential([keras.Input((128,)), *layers, keras.layers.Dense(10)])
model.compile("sgd", "mse")

class Count(keras.callbacks.Callback):
    count = 0
    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        steps[:] = struct.pack("<Q", self.count)

model.fit(data, steps_per_epoch=10**8, verbose=0, callbacks=[Count()])
"""


class Pace(NamedTuple):
    """Steps per second, and milliseconds of CPU time for each."""

    rate: float
    cpu_ms: float


class Job:
    """The job, and how many steps it has made."""

    def __init__(self, folder: Path) -> None:
        counter = folder / "steps"
        counter.write_bytes(bytes(8))
        with socket.socket() as plain:
            plain.bind(("127.0.0.1", 0))
            self.port = int(plain.getsockname()[1])
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _JOB, str(self.port), str(counter)], env=environment, stderr=subprocess.DEVNULL
        )
        with counter.open("r+b") as file:
            self._steps = mmap.mmap(file.fileno(), 8)

    @property
    def steps(self) -> int:
        """Return how many steps it has made."""
        if self._process.poll() is not None:
            raise SystemExit("the job has ended: is TensorFlow installed?")
        return int(struct.unpack("<Q", self._steps[:])[0])

    def pace(self, seconds: float) -> Pace:
        """Return how fast the job is over the next seconds."""
        begin, begin_s, begin_cpu_s = self.steps, time.monotonic(), _cpu_s(self._process.pid)
        time.sleep(seconds)
        steps = max(self.steps - begin, 1)
        return Pace(steps / (time.monotonic() - begin_s), 1000 * (_cpu_s(self._process.pid) - begin_cpu_s) / steps)

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


class Top:
    """`tfperf top` in a pseudo-terminal, whose text nobody reads."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
        self._process = subprocess.Popen(
            [*_TOP, *arguments], stdin=theirs, stdout=theirs, cwd=folder, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._terminal, self.text = ours, b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._terminal, 65536):
                self.text = (self.text + data)[-100_000:]

    def processes(self) -> list[int]:
        """Return its process, and that of the analysis."""
        children = set[int]()
        for path in Path(f"/proc/{self._process.pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # the thread has ended
                children.update(map(int, path.read_text().split()))
        return [self._process.pid, *sorted(children)]

    def cpu_s(self) -> float:
        """Return the CPU time that both have taken."""
        return sum(_cpu_s(process) for process in self.processes())

    def resident_bytes(self) -> int:
        """Return the memory of both."""
        pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in self.processes())
        return pages * os.sysconf("SC_PAGE_SIZE")

    def let_go_on(self, is_running: bool) -> None:
        """Stop the process, or let it go on."""
        self._process.send_signal(signal.SIGCONT if is_running else signal.SIGSTOP)

    def end(self) -> float:
        """Press q; return how long the end takes."""
        begin_s = time.monotonic()
        os.write(self._terminal, b"q")
        self._process.wait(60)
        seconds = time.monotonic() - begin_s
        self._reader.join(5)
        os.close(self._terminal)
        return seconds

    def wait_for(self, words: bytes, seconds: float = 60.0) -> None:
        """Wait until something is on the screen."""
        until_s = time.monotonic() + seconds
        while words not in self.text:
            if time.monotonic() > until_s or self._process.poll() is not None:
                raise SystemExit(f"{words!r} never came: {self.text[-2000:]!r}")
            time.sleep(0.01)


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running_job(folder: Path) -> Iterator[Job]:
    """Run the job, which has made its first hundred steps."""
    job = Job(folder)
    try:
        until_s = time.monotonic() + 120
        while job.steps < 100:
            if time.monotonic() > until_s:
                raise SystemExit("the job makes no steps")
            time.sleep(0.1)
        yield job
    finally:
        job.end()


def compare(job: Job, arguments: Sequence[str], folder: Path, pairs: int, seconds: float) -> dict[str, object]:
    """Measure the job with and without top in turn; return the figures."""
    top = Top(["--port", str(job.port), *arguments], folder)
    top.wait_for(b" steps, median")
    time.sleep(_SETTLE_S)
    slower, more_cpu, cores = [], [], []
    top.let_go_on(False)
    before = job.pace(seconds)
    for _ in range(pairs):
        begin_cpu_s = top.cpu_s()
        top.let_go_on(True)
        watched = job.pace(seconds)
        top.let_go_on(False)
        cores.append((top.cpu_s() - begin_cpu_s) / seconds)
        after = job.pace(seconds)
        # Of the stretches before and after, since the machine may become slower or faster meanwhile.
        slower.append(100.0 * (1.0 - watched.rate / ((before.rate + after.rate) / 2)))
        more_cpu.append(100.0 * (watched.cpu_ms / ((before.cpu_ms + after.cpu_ms) / 2) - 1.0))
        rates = " ".join(f"{each.rate:.1f}" for each in (before, watched, after))
        print(f"steps/s {rates}: {slower[-1]:+.1f}% slower, {more_cpu[-1]:+.1f}% more CPU time for a step", flush=True)
        before = after
    top.let_go_on(True)
    resident_bytes = top.resident_bytes()
    top.end()
    return {
        "slower_percent": round(median(slower), 2),
        "slower_percent_quartiles": [round(each, 1) for each in quantiles(slower, n=4)],
        "more_cpu_for_a_step_percent": round(median(more_cpu), 2),
        "more_cpu_for_a_step_percent_quartiles": [round(each, 1) for each in quantiles(more_cpu, n=4)],
        "top_cores": round(median(cores), 3),
        "top_megabytes": round(resident_bytes / 1e6),
    }


def help_seconds() -> float:
    """Return the shortest time of `tfperf top --help`: what else runs only adds to it."""
    seconds = []
    for _ in range(9):
        begin_s = time.monotonic()
        subprocess.run([*_TOP, "--help"], stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.monotonic() - begin_s)
    return min(seconds)


def end_seconds(job: Job, folder: Path) -> float:
    """Return how long the end takes at worst in the middle of samples of two seconds."""
    seconds = []
    for wait_s in (0.1, 0.5, 1.0):
        top = Top(["--port", str(job.port), "--duration", "2s"], folder)
        top.wait_for(b"sampling now")
        time.sleep(wait_s)
        seconds.append(top.end())
        time.sleep(2.5)  # The session may go on for as long.
    return max(seconds)


def main() -> int:
    """Measure, print, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--interval")
    parser.add_argument("--duration")
    options = parser.parse_args()
    asked = {"--interval": options.interval, "--duration": options.duration}
    arguments = [word for name, value in asked.items() if value for word in (name, value)]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures: dict[str, object] = {"help_seconds": round(help_seconds(), 3)}
        with running_job(folder) as job:
            time.sleep(5)
            figures |= compare(job, arguments, folder, options.pairs, options.seconds)
            figures["end_seconds"] = round(end_seconds(job, folder), 2)
        figures["files_left"] = sorted(path.name for path in folder.iterdir() if path.name != "steps")
    print(json.dumps(figures, indent=2))
    bars = (
        ("the job is at most 5 % slower", float(str(figures["slower_percent"])) <= MOST_SLOWER_PERCENT),
        ("--help takes at most 0.15 s", float(str(figures["help_seconds"])) <= HELP_SECONDS),
        ("it ends within 1 s in the middle of a sample", float(str(figures["end_seconds"])) <= END_SECONDS),
        ("no file is written", not figures["files_left"]),
    )
    for bar, holds in bars:
        print("PASS" if holds else "FAIL", bar)
    return 0 if all(holds for _, holds in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
