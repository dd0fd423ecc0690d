"""The screen in a pseudo-terminal: it is left clean however it ends, at any size, whatever a job is called."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, line, plane, space
from capture.conftest import free_port
from capture.double import response
from live.fake_jobs import FakeJob, fake_job, gives, steps_trace, wait_until

from tfperf.report.render.text_table import cells

pexpect = pytest.importorskip("pexpect", reason="there is no pseudo-terminal")

_IN_SHELL = """
before=$(stty -g)
{command}
code=$?
[ "$before" = "$(stty -g)" ] && same=yes || same=no
echo "<code $code, same $same>"
"""
_ESCAPES = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")
_HOME, _LEFT, _CURSOR = "\x1b[H", "\x1b[?1049l", "\x1b[?25h"


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

    def wait_for(self, text: str) -> str:
        """Wait until a text is on the screen; return the frame with it."""
        self.child.expect(re.escape(text))
        self.shown += self.child.before + self.child.after
        return self.frames()[-1]

    def frames(self) -> list[str]:
        """Return what was drawn, without escape codes; the last frame may be the begin of one."""
        return [_ESCAPES.sub("", frame).replace("\r", "") for frame in self.shown.split(_HOME)]

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
        assert self.shown.rindex(_LEFT) > self.shown.rindex(_HOME), "the first page of the terminal is back"
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
    frame = terminal.wait_for("whole steps")
    assert f"> localhost:{job.port}" in frame
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
    terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "& echo started $!; wait $!")
    terminal.child.expect(r"started (\d+)")
    process = int(terminal.child.match[1])
    terminal.wait_for("2.00")
    os.kill(process, number)
    terminal.end()


def test_the_key_that_quits_programs_gives_the_terminal_back(job: FakeJob, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "|| (exit $?)")
    terminal.wait_for("2.00")
    terminal.press("\x1c")
    terminal.end()


def test_no_line_is_wider_than_the_window_also_after_it_changes(job: FakeJob, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "--interval", "1s", columns=132)
    terminal.wait_for("whole steps")
    terminal.resize(60, 20)
    terminal.wait_for(f"tfperf top: 1 worker{' ' * 31}")
    terminal.wait_for("q quit")
    terminal.wait_for("q quit")
    frame = terminal.frames()[-2]
    lines = frame.split("\n")
    assert len(lines) == 20
    assert max(map(cells, lines)) <= 60
    terminal.quit()


def test_keys_change_what_is_shown(job: FakeJob, tmp_path: Path) -> None:
    gone = free_port()
    terminal = Terminal(tmp_path, "--workers", f"127.0.0.1:{job.port},127.0.0.1:{gone}", "--duration", "10ms")
    terminal.wait_for("2 workers, 1 gone")
    terminal.wait_for("whole steps")
    assert f"> 127.0.0.1:{job.port}" in terminal.frames()[-1]
    terminal.press("\x1b[A")
    terminal.wait_for(f"no server listens on 127.0.0.1:{gone}")
    terminal.press("s")
    terminal.wait_for("sorted: name")
    terminal.press("p")
    terminal.wait_for("PAUSED")
    terminal.press("?")
    terminal.wait_for("record the latest sample")
    terminal.quit()


def test_r_records_the_sample_that_is_shown(tmp_path: Path) -> None:
    trace = steps_trace(3000)
    with fake_job(gives(trace)) as job:
        terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", "--logdir", tmp_path / "kept")
        terminal.wait_for("whole steps")
        terminal.press("r")
        terminal.wait_for("recorded")
        wait_until(lambda: [*(tmp_path / "kept").rglob("*.xplane.pb")])
        terminal.quit()
    (file,) = (tmp_path / "kept").rglob("*.xplane.pb")
    assert file.read_bytes() == trace


def test_a_hostile_job_does_nothing_to_the_terminal(tmp_path: Path) -> None:
    name = "kernel\x1b]0;title\x07\x1b[31m\x9b2J\r\u202e\u2028\x00"
    steps = [event(name, 1000 * place, 900, step_num=place, _r=1) for place in range(5)]
    kernels = [event(name, 1000 * place + 20, 90, tf_op=f"{name}:{name}") for place in range(5)]
    gpu = plane("/device:GPU:0", line(name, *kernels), stats={"gpu_device_name": name})
    with fake_job(gives(space(host(*steps), gpu, hostname=name, errors=(name,)))) as job:
        terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms")
        terminal.wait_for("KERNELS")
        terminal.wait_for(r"kernel\x1b]0;title")
        terminal.wait_for("q quit")
        terminal.press("\r")
        terminal.wait_for("q quit")
        terminal.quit()
    allowed = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|[\r\n]", "", terminal.shown.replace("^C", ""))
    assert [char for char in allowed if not char.isprintable()] == []


def test_a_terminal_without_colours_that_has_ascii_only(tmp_path: Path) -> None:
    steps = [event("train", 1000 * place, 900, step_num=place, _r=1) for place in range(5)]
    gpu = plane("/device:GPU:0", line("stream", *[event("kérnel", 1000 * place, 90) for place in range(5)]))
    with fake_job(gives(space(host(*steps), gpu))) as job:
        terminal = Terminal(tmp_path, "--port", job.port, "--duration", "10ms", PYTHONIOENCODING="ascii", NO_COLOR="1")
        terminal.wait_for(r"k\xe9rnel")
        terminal.quit()
    assert terminal.shown.isascii()
    assert not re.search(r"\x1b\[[0-9;]*m", terminal.shown)


def test_ctrl_z_gives_the_terminal_back_for_a_while(job: FakeJob, tmp_path: Path) -> None:
    command = f"{sys.executable} -m tfperf top --port {job.port} --duration 10ms"
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PS1": "ready> "}
    child: Any = pexpect.spawn("bash", ["--norc", "-i"], env=environment, timeout=60, encoding="utf-8", cwd=tmp_path)
    child.expect_exact("ready> ")
    child.sendline(command)
    child.expect_exact("whole steps")
    child.send("\x1a")
    child.expect_exact(_LEFT)
    child.expect_exact("Stopped")
    child.sendline("fg")
    child.expect_exact("\x1b[?1049h")
    child.expect_exact("whole steps")
    child.send("q")
    child.expect_exact(_LEFT)
    child.sendline("exit $?")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
