"""The screen in a pseudo-terminal: it is left clean however it ends, at any size, whatever a job is called."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, line, plane, space
from capture.double import response
from live.fake_jobs import FakeJob, fake_job, gives, steps_trace, wait_until

pexpect = pytest.importorskip("pexpect", reason="there is no pseudo-terminal")
pytest.importorskip("textual", reason="the live view is optional")

_IN_SHELL = """
before=$(stty -g)
{command}
code=$?
[ "$before" = "$(stty -g)" ] && same=yes || same=no
echo "<code $code, same $same>"
"""
_ESCAPES = re.compile(r"\x1b\[[<>?0-9;]*\$?[A-Za-z]|\x1b\]22;default\x07")
_LEFT, _CURSOR = "\x1b[?1049l", "\x1b[?25h"


class Terminal:
    """`tfperf top` in a shell in a pseudo-terminal, in an empty folder."""

    def __init__(self, folder: Path, *arguments: object, columns: int = 80, lines: int = 24, **variables: str) -> None:
        self.folder, self.columns = folder, columns
        (folder / "work").mkdir()
        (folder / "temporary").mkdir()
        command = " ".join([sys.executable, "-m", "tfperf", "top", *map(str, arguments)])
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **variables}
        environment["TMPDIR"] = str(folder / "temporary")
        self.child: Any = pexpect.spawn(
            "bash",
            ["--norc", "-c", _IN_SHELL.format(command=command)],
            cwd=folder / "work",
            env=environment,
            dimensions=(lines, columns),
            timeout=60,
            encoding="utf-8",
        )
        self.shown = ""

    def wait_for(self, text: str) -> None:
        """Wait until a text is drawn."""
        self.child.expect(re.escape(text))
        self.shown += self.child.before + self.child.after

    def press(self, keys: str) -> None:
        self.child.send(keys)

    def quit(self) -> None:
        self.press("q")
        self.end()

    def resize(self, columns: int, lines: int) -> None:
        self.columns = columns
        self.child.setwinsize(lines, columns)

    def end(self, code: int = 0) -> None:
        """Wait until the program has ended; what it changed of the terminal is as it was, and nothing is written."""
        self.child.expect(r"<code (\d+), same (\w+)>")
        self.shown += self.child.before
        assert self.child.match.groups() == (str(code), "yes"), self.shown
        assert _LEFT in self.shown, "the first page of the terminal is back"
        assert self.shown.rindex(_CURSOR) > self.shown.rindex("\x1b[?25l"), "the cursor is back"
        assert "Traceback" not in self.shown
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert [*(self.folder / "work").iterdir(), *(self.folder / "temporary").iterdir()] == []


@pytest.fixture
def job() -> Iterator[FakeJob]:
    with fake_job(gives(steps_trace(2000))) as job:
        yield job


def test_ctrl_c_ends_it_and_the_terminal_is_as_before(job: FakeJob, tmp_path: Path) -> None:
    """As q does in the other tests."""
    terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms")
    terminal.wait_for(f"localhost:{job.port}")
    terminal.wait_for("whole train steps")
    terminal.press("\x03")
    terminal.end()


def test_it_ends_in_the_middle_of_a_sample(tmp_path: Path) -> None:
    """The server gives its answer only after the end. (benchmarks/top.py measures how long the end takes.)"""
    has_ended = threading.Event()

    def give(number: int) -> bytes:
        has_ended.wait(60)
        return response(steps_trace())

    with fake_job(give) as job:
        terminal = Terminal(tmp_path, "--port", job.port)
        assert job.begun.wait(60)
        terminal.wait_for("sampling now")
        terminal.quit()
        wait_until(lambda: job.ended == 1)
        has_ended.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_as_well(number: int, job: FakeJob, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "< /dev/tty & echo started $!; wait $!")
    terminal.child.expect(r"started (\d+)")
    process = int(terminal.child.match[1])
    terminal.wait_for("2.00")
    os.kill(process, number)
    terminal.end()


def test_a_process_that_was_stopped_goes_on_and_ends(job: FakeJob, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "< /dev/tty & echo started $!; wait $!")
    terminal.child.expect(r"started (\d+)")
    process = int(terminal.child.match[1])
    terminal.wait_for("2.00")
    os.kill(process, signal.SIGSTOP)
    os.kill(process, signal.SIGCONT)
    terminal.child.expect_exact(_LEFT)
    terminal.child.expect_exact("\x1b[?1049h")
    terminal.wait_for("2.00")
    terminal.press("q")
    terminal.end()


def test_the_key_that_quits_programs_gives_the_terminal_back(job: FakeJob, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "|| (exit $?)")
    terminal.wait_for("2.00")
    terminal.press("\x1c")
    terminal.end()


def test_a_terminal_that_is_gone_ends_it_without_a_traceback(job: FakeJob, tmp_path: Path) -> None:
    """A session of its own gets no SIGHUP, so it notices only what it writes."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "tfperf", "top", "--port", str(job.port), "--duration", "10ms"]
    environment, errors = {**os.environ, "TERM": "xterm-256color"}, tmp_path / "errors"
    with errors.open("wb") as file:
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=file, env=environment, cwd=tmp_path, start_new_session=True
        )
    os.close(theirs)
    text = b""
    while b"whole train steps" not in text:
        text += os.read(ours, 65536)
    os.close(ours)
    assert (process.wait(60), errors.read_text()) == (0, "")


def test_a_smaller_window_is_drawn_again_and_r_records_the_sample_that_is_shown(tmp_path: Path) -> None:
    trace, kept = steps_trace(3000), tmp_path / "kept"
    with fake_job(gives(trace)) as job:
        terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "--logdir", kept, columns=132)
        terminal.wait_for("whole train steps")
        terminal.resize(60, 20)
        terminal.wait_for(f"tfperf top: 1 worker{' ' * 31}")
        terminal.press("r")
        terminal.wait_for("recorded")
        wait_until(lambda: [*kept.rglob("*.xplane.pb")])
        terminal.quit()
    (file,) = kept.rglob("*.xplane.pb")
    assert file.read_bytes() == trace


def test_a_hostile_job_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    name = "kernel\x1b]0;title\x07\x1b[31m\x9b2J\r\u202e\u2028\x00"
    steps = [event(name, 1000 * place, 900, step_num=place, _r=1) for place in range(5)]
    kernels = [event(name, 1000 * place + 20, 90, tf_op=f"{name}:{name}") for place in range(5)]
    gpu = plane("/device:GPU:0", line(name, *kernels), stats={"gpu_device_name": name})
    with fake_job(gives(space(host(*steps), gpu, hostname=name, errors=(name,)))) as job:
        terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms")
        terminal.wait_for("whole")
        terminal.press("\r")
        terminal.wait_for("KERNELS")
        terminal.wait_for(r"kernel\x1b]0;title")
        terminal.press("q")
        terminal.wait_for("q quit")
        terminal.quit()
    allowed = re.sub(r"[\r\n]", "", _ESCAPES.sub("", terminal.shown))
    assert [char for char in allowed if not char.isprintable()] == []


def test_a_terminal_without_colours_that_has_ascii_only(tmp_path: Path) -> None:
    steps = [event("train", 1000 * place, 900, step_num=place, _r=1) for place in range(5)]
    gpu = plane("/device:GPU:0", line("stream", *[event("kérnel", 1000 * place, 90) for place in range(5)]))
    with fake_job(gives(space(host(*steps), gpu))) as job:
        terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", PYTHONIOENCODING="ascii", NO_COLOR="1")
        terminal.wait_for("whole train steps")
        terminal.press("\r")
        terminal.wait_for(r"k\xe9rnel")
        terminal.press("q")
        terminal.wait_for("q quit")
        terminal.quit()
    assert terminal.shown.isascii()
    # Bold, dim, reverse, and the terminal's own colors.
    assert {*re.findall(r"\x1b\[([0-9;]*)m", terminal.shown)} <= {"0", "39;49", "1;39;49", "2;39;49", "7;39;49"}


def test_ctrl_z_gives_the_terminal_back_for_a_while(job: FakeJob, tmp_path: Path) -> None:
    command = f"{sys.executable} -m tfperf top --port {job.port} --duration 10ms"
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": "ready> "}
    child: Any = pexpect.spawn("bash", ["--norc", "-i"], env=environment, timeout=60, encoding="utf-8", cwd=tmp_path)
    child.expect_exact("ready> ")
    child.sendline(command)
    child.expect_exact("whole train steps")
    child.send("\x1a")
    child.expect_exact(_LEFT)
    child.expect_exact("Stopped")
    child.sendline("fg")
    child.expect_exact("\x1b[?1049h")
    child.expect_exact("whole train steps")
    child.send("q")
    child.expect_exact(_LEFT)
    child.sendline("exit $?")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
