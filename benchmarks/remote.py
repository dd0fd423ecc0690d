"""Measure a profile in an object store beside a bare download of it and an analysis of the file on this machine.

    python benchmarks/remote.py [--cache DIR] [--trace FILE] [--rounds N]

The store is moto's S3 server, in a process of its own on this machine. Every figure is a process of its own, from start
to exit; the ways take turns, and the median counts. A server between the two counts requests and bytes, in a run that
is not timed. All must write the same JSON, but for the folder that it names. Exits with 1 if a bar is missed. The bars
are for two cores and nothing else on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import FULL_STEPS, Bar, bar_line, captured, default_cache, say, seconds, trace_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

RUN = "logs/plugins/profile/run"
DOWNLOAD = """
import sys
import s3fs
files = s3fs.S3FileSystem(endpoint_url=sys.argv[1])
files.get_file(sys.argv[2], sys.argv[3])
"""
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "*",
    "no_proxy": "*",
}


@contextmanager
def store(trace: Path) -> Iterator[int]:
    """Run an S3 server that holds the trace; give its port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        upload(trace, port)
        yield port
    finally:
        process.kill()
        process.wait()


def upload(trace: Path, port: int) -> None:
    """Put the trace into the store, as soon as it answers."""
    import s3fs

    files = s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + 60
    while True:
        try:
            files.mkdir("bucket")
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    files.put_file(str(trace), f"bucket/{RUN}/vm.xplane.pb")


def report_of(output: Path) -> str:
    """Return a report without the name of its folder."""
    text = output.read_text()
    return text.replace(json.loads(text)["source"]["folder"], "FOLDER")


def asked(command: Sequence[str], port: int) -> tuple[int, int]:
    """Return how many requests a program makes for files of the store, and how many bytes it gets."""
    from storage_servers import web_server

    with web_server(behind=port) as server:
        seconds([word.replace(f"http://127.0.0.1:{port}", server.url) for word in command])
        return len(server.answered), sum(each.body_bytes for each in server.answered)


def main() -> int:
    """Measure, print the figures and the bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the trace (%(default)s)")
    parser.add_argument("--trace", type=Path, help="measure this trace instead")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.update(CREDENTIALS)
    trace: Path = arguments.trace or trace_file(captured(arguments.cache.resolve(), FULL_STEPS))
    size = trace.stat().st_size
    print(f"{size / 1e6:.0f} MB; load before: {os.getloadavg()[0]:.2f}")
    with tempfile.TemporaryDirectory(prefix="tfperf-remote-") as name, store(trace) as port:
        folder, url = Path(name), f"http://127.0.0.1:{port}"
        local = folder / RUN
        local.mkdir(parents=True)
        (local / "vm.xplane.pb").symlink_to(trace.resolve())
        analyze = [sys.executable, "-m", "tfperf", "-q", "analyze"]
        commands = {
            "download": [sys.executable, "-c", DOWNLOAD, url, f"bucket/{RUN}/vm.xplane.pb", str(folder / "copy.pb")],
            "local": [*analyze, str(folder / "logs"), "-o", str(folder / "local.json"), "--force"],
            "s3": [*analyze, "s3://bucket/logs", "--endpoint-url", url, "-o", str(folder / "s3.json"), "--force"],
        }
        requests, received = asked(commands["s3"], port)
        taken: dict[str, list[float]] = {way: [] for way in commands}
        for number in range(arguments.rounds):
            for way, command in commands.items():
                say(f"round {number + 1} of {arguments.rounds}: {way}")
                taken[way].append(seconds(command))
        if report_of(folder / "local.json") != report_of(folder / "s3.json"):
            sys.exit("the report of the object store differs from that of the file")
    wall = {way: statistics.median(each) for way, each in taken.items()}
    for way, wall_s in wall.items():
        print(f"{way:15} {wall_s:6.2f} s")
    print(f"{requests} requests, {received:,} of {size:,} bytes\n")
    bars = [
        Bar("requests, all of them", requests, 6),
        Bar("of the bytes of the file", received / size, 1.02),
        Bar("of a bare download and an analysis of the file", wall["s3"] / (wall["download"] + wall["local"]), 1.3),
    ]
    print(*map(bar_line, bars), sep="\n")
    return 0 if all(bar.held for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
