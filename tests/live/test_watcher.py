"""Workers that are asked again and again: one request at a time, whatever the servers do, and nothing on disk."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from builders import event, host, known, space
from capture.conftest import free_port
from capture.double import refuse, response, serving
from capture.handmade import listening, silent
from live.fake_jobs import AnalystHere, fake_job, gives, request_to, steps_trace, wait_until

from tfperf.capture.address import Address
from tfperf.live.board import WorkerView
from tfperf.live.sample import Sample
from tfperf.live.watcher import Watch


@pytest.fixture
def own_process() -> None:
    """Analyze in a process, as a user does."""


@pytest.fixture(autouse=True)
def analyst(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "own_process" not in request.fixturenames:
        monkeypatch.setattr("tfperf.live.watcher.Analyst", AnalystHere)


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that is current, and where temporary files would be, and that is empty in the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def only(watch: Watch) -> WorkerView:
    (view,) = watch.board.views()
    return view


def last(watch: Watch) -> Sample:
    return known(only(watch).last)


def test_samples_come_again_and_again(empty: Path, own_process: None) -> None:
    with fake_job(gives(steps_trace(2000))) as job, Watch(request_to(job)) as watch:
        wait_until(lambda: only(watch).samples >= 3)
        view = only(watch)
        process = known(watch._shared.analyst._process)
        assert os.getpriority(os.PRIO_PROCESS, process._process.pid) >= 10, "it leaves the processor to others"
    assert known(known(view.shown).measured).step_ms == pytest.approx(2.0)
    assert [point.step_ms for point in view.history][:3] == pytest.approx([2.0] * 3)
    assert job.most_at_once == 1
    assert set(job.durations_ms) == {10}
    assert known(view.shown).slowdown_percent is None, "nothing tells it"


def test_a_server_that_answers_slowly_is_never_asked_a_second_time_meanwhile(empty: Path) -> None:
    """Its answers take ten intervals."""
    with fake_job(gives(steps_trace(), after_s=0.5)) as job, Watch(request_to(job)) as watch:
        wait_until(lambda: only(watch).samples >= 2)
        assert last(watch).answer_s >= 0.5
    assert job.most_at_once == 1


def test_a_server_that_is_silent_but_there_is_waited_for(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    """Meanwhile it is looked whether it is there, which is no request."""
    monkeypatch.setattr("tfperf.live.watcher._LOOK_S", 0.1)
    release = threading.Event()

    def give(number: int) -> bytes:
        release.wait(60)
        return response(steps_trace())

    with fake_job(give) as job, Watch(request_to(job)) as watch:
        wait_until(lambda: (only(watch).asked_s or 0.0) > 0.5)
        assert (job.asked, only(watch).last) == (1, None)
        release.set()
        wait_until(lambda: only(watch).samples)
    assert job.most_at_once == 1


def test_a_server_that_dies_is_gone_and_one_that_comes_back_is_asked_again(empty: Path) -> None:
    port = free_port()
    with Watch(request_to(Address("127.0.0.1", port))) as watch:
        wait_until(lambda: only(watch).is_gone)
        assert last(watch).reason == "not_listening"
        assert only(watch).shown is None, "no figure of a worker that is gone is shown as if it were new"
        for _ in range(2):
            with fake_job(gives(steps_trace()), port):
                wait_until(lambda: only(watch).shown is not None)
                assert not only(watch).is_gone
            wait_until(lambda: only(watch).is_gone)
        assert only(watch).known is not None
    assert only(watch).failures >= 2


def test_a_server_that_dies_in_the_middle_of_a_sample(empty: Path) -> None:
    with Watch(request_to(Address("127.0.0.1", port := free_port()))) as watch:
        with fake_job(gives(steps_trace(), after_s=5), port) as job:
            assert job.begun.wait(60)
        wait_until(lambda: only(watch).last is not None and only(watch).is_gone)


ODD: dict[str, tuple[Callable[[int], bytes], str]] = {
    "no message": (lambda number: b"\x42\xff\xff", "bad_reply"),
    "no trace": (gives(b"nonsense"), "bad_reply"),
    "cut off": (gives(steps_trace()[:-3]), "bad_reply"),
    "idle": (lambda number: response(empty=True), "idle"),
    "too old": (lambda number: response(), "unsupported"),
}


@pytest.mark.parametrize(("give", "reason"), ODD.values(), ids=ODD)
def test_odd_answers_are_said_and_survived(give: Callable[[int], bytes], reason: str, empty: Path) -> None:
    is_odd = True

    def answer(number: int) -> bytes:
        return give(number) if is_odd else response(steps_trace())

    with fake_job(answer) as job, Watch(request_to(job)) as watch:
        wait_until(lambda: only(watch).last is not None)
        assert last(watch).reason == reason
        assert "127.0.0.1" in last(watch).message
        assert "\n" not in last(watch).message
        is_odd = False
        wait_until(lambda: only(watch).samples)


def test_a_job_without_steps_is_sampled_for_longer_and_its_step_time_stays_unknown(empty: Path) -> None:
    trace = space(host(event("layer/MatMul:MatMul", 0, 5)))
    with fake_job(gives(trace)) as job, Watch(request_to(job)) as watch:
        wait_until(lambda: only(watch).samples >= 3)
        assert (last(watch).is_known, only(watch).known) == (False, None)
        assert {point.step_ms for point in only(watch).history} == {None}
    assert job.durations_ms[:3] == [10, 20, 40]


def test_a_server_that_somebody_else_profiles_is_asked_again(empty: Path) -> None:
    answers = {"Profile": refuse(grpc.StatusCode.ALREADY_EXISTS, "Another profiling session is active")}
    with serving(answers) as port, Watch(request_to(Address("127.0.0.1", port))) as watch:
        wait_until(lambda: only(watch).failures >= 2)
        assert last(watch).reason == "busy"
        assert last(watch).message.endswith("; retrying")


def test_what_accepts_connections_and_says_nothing_holds_nobody_up(empty: Path) -> None:
    with listening(silent) as port, fake_job(gives(steps_trace())) as job:
        with Watch(request_to(Address("127.0.0.1", port), job)) as watch:
            wait_until(lambda: watch.board.views()[1].samples >= 3)
            begin_s = time.monotonic()
        assert time.monotonic() - begin_s < 5.0, "or it waited for the silent one"


@pytest.mark.stress
def test_24_workers(empty: Path) -> None:
    with ExitStack() as servers:
        jobs = [servers.enter_context(fake_job(gives(steps_trace(1000 + 10 * number)))) for number in range(24)]
        with Watch(request_to(*jobs, interval_s=1.0)) as watch:
            wait_until(lambda: all(view.samples >= 2 for view in watch.board.views()), 120)
            views = watch.board.views()
    assert {job.most_at_once for job in jobs} == {1}
    shown = [view.shown.measured.step_ms for view in views if view.shown and view.shown.measured]
    assert shown == pytest.approx([1.0 + 0.01 * number for number in range(24)])


def test_a_pause_asks_nobody(empty: Path) -> None:
    with fake_job(gives(steps_trace())) as job, Watch(request_to(job)) as watch:
        wait_until(lambda: only(watch).samples)
        watch.pause(True)
        wait_until(lambda: only(watch).asked_s is None)
        asked = job.asked
        time.sleep(0.5)
        assert job.asked <= asked + 1, "one may have been on its way"
        watch.pause(False)
        wait_until(lambda: job.asked > asked + 1)


def test_the_latest_sample_is_recorded_if_it_is_chosen(tmp_path: Path) -> None:
    trace = steps_trace()
    with fake_job(gives(trace)) as job, Watch(request_to(job, logdir=tmp_path / "logs")) as watch:
        watch.choose(job.address)
        wait_until(lambda: only(watch).is_kept)
        watch.pause(True)
        watch.record(job.address)
        wait_until(lambda: watch.board.note)
    (file,) = (tmp_path / "logs").rglob("*.xplane.pb")
    assert file.read_bytes() == trace
    assert str(file) in watch.board.note


def test_else_the_next_one_is_recorded(tmp_path: Path) -> None:
    with fake_job(gives(steps_trace())) as job, Watch(request_to(job, logdir=tmp_path / "logs")) as watch:
        wait_until(lambda: only(watch).samples)
        assert not only(watch).is_kept
        watch.record(job.address)
        assert watch.board.note.endswith("will be recorded")
        wait_until(lambda: list((tmp_path / "logs").rglob("*.xplane.pb")))
        asked = job.asked
        wait_until(lambda: job.asked > asked + 2)
    assert len(list((tmp_path / "logs").rglob("*.xplane.pb"))) == 1


def test_the_page_of_the_latest_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "1 2 3 4")
    with fake_job(gives(steps_trace())) as job, Watch(request_to(job, logdir=tmp_path / "logs")) as watch:
        watch.open_page(job.address)
        assert watch.board.note.endswith("press o after the next one")
        watch.choose(job.address)
        wait_until(lambda: only(watch).is_kept)
        watch.pause(True)
        watch.open_page(job.address)
        wait_until(lambda: watch.board.note.endswith("no browser can open on this machine"))
    (page,) = (tmp_path / "logs").rglob("*.html")
    assert "</html>" in page.read_text(encoding="utf-8")
    assert len(list(page.parent.glob("*.xplane.pb"))) == 1


def test_a_sample_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    with fake_job(gives(steps_trace())) as job, Watch(request_to(job, logdir=tmp_path / "logs")) as watch:
        wait_until(lambda: only(watch).samples)
        watch.record(job.address)
        wait_until(lambda: watch.board.note.startswith("not recorded: "))
        asked = job.asked
        wait_until(lambda: job.asked > asked)


def test_the_end_ends_the_session_of_the_server(empty: Path) -> None:
    with fake_job(gives(steps_trace(), after_s=2)) as job:
        with Watch(request_to(job)):
            assert job.begun.wait(60)
        wait_until(lambda: job.ended == 1)


def test_an_analysis_that_dies_fails_one_sample(empty: Path, own_process: None) -> None:
    """The process of the analysis is killed, as the system does where memory is short; the next sample has another."""
    with fake_job(gives(steps_trace())) as job, Watch(request_to(job)) as watch:
        watch._watchers[
            job.address
        ]._pace.is_here = False  # as often as it can: importing takes a second of a processor
        wait_until(lambda: only(watch).samples)
        process = known(watch._shared.analyst._process)
        process._process.kill()
        samples = only(watch).samples
        wait_until(lambda: only(watch).samples > samples + 1)
        assert watch.board.failure is None


@pytest.mark.stress
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is of Linux")
def test_many_samples_take_no_memory(empty: Path, own_process: None) -> None:
    """After the 30th of 80 samples, neither this process nor that of the analysis grows by more than a little.

    Of this process, the objects of Python count: what it holds of freed memory depends on the tests before.
    """

    def measured(watch: Watch) -> tuple[int, int]:
        gc.collect()
        analyst = known(watch._shared.analyst._process)
        pages = int(Path(f"/proc/{analyst._process.pid}/statm").read_text().split()[1])
        return tracemalloc.get_traced_memory()[0], pages * os.sysconf("SC_PAGE_SIZE")

    trace = steps_trace(count=1000)
    with fake_job(gives(trace)) as job, Watch(request_to(job, duration_s=0.001, interval_s=0.002)) as watch:
        watch.choose(job.address)
        watch._watchers[job.address]._pace.is_here = False  # as often as it can
        tracemalloc.start()
        try:
            wait_until(lambda: only(watch).samples >= 30, 300)
            before = measured(watch)
            wait_until(lambda: only(watch).samples >= 80, 300)
            after = measured(watch)
        finally:
            tracemalloc.stop()
    grown = [late - early for early, late in zip(before, after, strict=True)]
    assert max(grown) < 50 * 24_000, "a trace that stayed would take 47 kB"
