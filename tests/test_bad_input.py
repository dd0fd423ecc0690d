"""Whatever is given to the command line: a report, or one line on stderr that says what, where and what to try."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import STEPS_LINE, Plane, event, host, line, logdir_of, plane, ref, space, u64
from click.testing import Result
from places import TRACES
from protobytes import field, message, nested_groups

Run = Callable[..., Result]

FORMATS = ("table", "markdown", "csv", "json")
NOW_NS = 1_700_000_000 * 10**9

TRAINING = space(host(*[event("train", 100 * n, 80, step_num=n) for n in range(5)]))
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(data)
    return path


def shared(folder: str) -> Path:
    if not (TRACES / folder).is_dir():
        pytest.skip(f"{TRACES / folder} is not there: it is no part of the project")
    return TRACES / folder


def assert_refused(result: Result, *words: str) -> None:
    """Assert exit code 1, an empty stdout, and one line on stderr with these words."""
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"Error: [^\n]+\n", result.stderr)
    assert not CONTROL.search(result.stderr)
    for word in words:
        assert word in result.stderr


def assert_reported(result: Result) -> str:
    """Assert exit code 0 and an empty stderr; return stdout."""
    assert result.exception is None, result.exception
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout
    return result.stdout


# What is no profile at all


@pytest.mark.parametrize("command", ["analyze", "check", "export-csv", "timeline", "flamegraph", "query", "diff"])
def test_an_empty_path_is_not_the_current_folder(command: str, run_tfperf: Run) -> None:
    result = run_tfperf(command, "")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "the path is empty (unset variable?); use . for the current folder" in result.stderr


def test_named_pipes_are_left_alone(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, vm=TRAINING)
    os.mkfifo(next(logdir.rglob("vm.xplane.pb")).with_name("pipe.xplane.pb"))
    assert_reported(run_tfperf("analyze", logdir))
    (tmp_path / "pipes").mkdir()
    os.mkfifo(tmp_path / "pipes" / "pipe.xplane.pb")
    assert_refused(run_tfperf("analyze", tmp_path / "pipes"), "no *.xplane.pb file below")
    assert_refused(
        run_tfperf("check", logdir, "--baseline", tmp_path / "pipes" / "pipe.xplane.pb"), "not a regular file"
    )


def test_a_path_without_profiles(tmp_path: Path, run_tfperf: Run) -> None:
    nowhere = r"no\nwhere\x1b[31m does not exist"
    assert_refused(run_tfperf("analyze", tmp_path / "no\nwhere\x1b[31m"), nowhere, "pass a logdir")
    assert_refused(run_tfperf("analyze", tmp_path), str(tmp_path), "profiles are in LOGDIR/plugins/profile/RUN")
    (tmp_path / "vm.xplane.pb").mkdir()
    assert_refused(run_tfperf("analyze", tmp_path), "no *.xplane.pb file below")


FOREIGN = {
    "nothing": (b"", "is empty (0 bytes)"),
    "zeros": (bytes(1000), "damaged or not an XSpace"),
    "HTML": (b"<!DOCTYPE html><html></html>", "is an HTML page (of a login, or an error?), not an XSpace"),
    "a graph": (field(1, field(1, b"x") + field(2, b"Const")), "is a TensorFlow graph (GraphDef), not an XSpace"),
    "nameless planes": (field(1, field(3, b"")) * 2, "its planes have no names"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_files_of_another_kind(case: str, tmp_path: Path, run_tfperf: Run) -> None:
    data, words = FOREIGN[case]
    path = written(tmp_path, data)
    assert_refused(run_tfperf("analyze", path), str(path), words)


def test_a_real_profile_that_went_through_a_text(run_tfperf: Run) -> None:
    assert_refused(run_tfperf("analyze", shared("corrupt_tpu")), "corrupted by a text-mode copy")


# What cannot be read


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize(("pattern", "mode"), [("**/*.xplane.pb", 0), ("plugins", 0), ("plugins/profile/*", 0o600)])
def test_no_permission(pattern: str, mode: int, tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, vm=TRAINING)
    (locked,) = logdir.glob(pattern)
    locked.chmod(mode)
    try:
        assert_refused(run_tfperf("analyze", logdir), str(locked), "its permissions")
    finally:
        locked.chmod(0o755)


def test_a_link_to_nowhere(tmp_path: Path, run_tfperf: Run) -> None:
    (tmp_path / "vm.xplane.pb").symlink_to(tmp_path / "gone")
    assert_refused(run_tfperf("analyze", tmp_path), "cannot open", "vm.xplane.pb", "check the path")


# What is a profile, but an odd one


def test_a_jax_profile_of_one_call_reports_what_it_can_and_cannot_tell(tmp_path: Path, run_tfperf: Run) -> None:
    jax = host(event("PjitFunction(f)", 0, 50), event("Execute", 10, 30)), plane("/host:metadata")
    out = assert_reported(run_tfperf("analyze", written(tmp_path, space(*jax)), "--full"))
    assert "1 of 1 iterations" in " ".join(out.split())
    assert "Input-bound is unknown" in " ".join(out.split())


def test_a_real_jax_profile_has_iterations_and_says_nothing_of_tensorflow_functions(run_tfperf: Run) -> None:
    for path in sorted(shared("jax_mi300x").iterdir()):
        out = " ".join(assert_reported(run_tfperf("analyze", path, "--full")).split())
        assert "no program computes gradients, so these are not training steps" in out
        assert "Jitted functions" in out
        assert "tf.function" not in out


def test_a_host_without_steps_beside_one_with_steps_is_named(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, busy=TRAINING, lazy=space(host(event("op", 0, 1))))
    out = " ".join(assert_reported(run_tfperf("analyze", logdir, "--full")).split())
    assert re.search(r"Steps: the profile has no step markers[^:]* Hosts: lazy\.", out)


def steps_with(**stats: Any) -> Plane:
    return host(*[event("train", 100 * n, 80, step_num=n, **stats) for n in range(4)])


def line_of(*events: bytes) -> bytes:
    """A space with one line of these events; metadata id 1 is `train`."""
    name = field(4, message(field(1, 1), field(2, field(2, b"train"))))
    return field(1, message(field(2, b"/host:CPU"), field(3, message(*(field(4, made) for made in events))), name))


ODD = {
    "no line": space(plane("/host:CPU")),
    "no event": space(plane("/host:CPU", line("a"), line("b"))),
    "only an empty device": space(plane("/device:GPU:0"), plane("/device:TPU:0", line("Steps"))),
    "events without names": line_of(*[message(field(1, 99), field(2, n), field(3, 7)) for n in range(5)]),
    "negative duration": line_of(message(field(1, 1), field(3, -5)), message(field(1, 1), field(3, 5))),
    "zero durations": line_of(*[message(field(1, 1), field(2, 9))] * 3),
    "times out of range": line_of(message(field(2, -(1 << 63)), field(3, (1 << 63) - 1))),
    "times that add up to more than an int64": space(
        plane("/host:CPU", *[line("t", event("a/b:MatMul", 0, 1e12), id=n + 1) for n in range(30)]),
        plane("/device:GPU:0", *[line("s", event("kernel", 0, 1e12), id=n + 1) for n in range(30)]),
    ),
    "overlapping times": space(host(*[event("a/b:MatMul", n, 1000 - n % 7) for n in range(50)])),
    "a device with derived lines only": space(
        steps_with(), plane("/device:GPU:0", line("Steps", event("1", 0, 9), id=STEPS_LINE))
    ),
    "different clocks": space(
        plane("/host:CPU", *[line("t", event("a", 0, 9), id=n + 1, timestamp_ns=n * NOW_NS) for n in range(4)])
    ),
    "plane stats that are no numbers": space(
        steps_with(),
        plane("/device:GPU:0", line("s", event("k", 0, 1)), stats={"core_count": float("nan"), "memory_size": 1e999}),
    ),
    "huge step numbers": space(host(*[event("train", 9 * n, 5, step_num=(1 << 63) - 4 + n) for n in range(4)])),
    "a step cut off before a huge number": space(
        host(
            event("f", 0, 5, tf_function_call=ref("traced")),
            *[event("train", 9 * n + 9, 5, step_num=(1 << 63) - 4 + n) for n in range(4)],
            event("f", 60, 5, tf_function_call=ref("traced")),
        )
    ),
    "huge ids": space(steps_with(group_id=u64((1 << 64) - 1), id=-(1 << 63), correlation_id=u64(1 << 63), _r=-1)),
    "texts where numbers belong": space(steps_with(group_id="x", tracing_count=1.5, tf_function_call=7, step_name=3)),
    "very many names": field(
        1,
        message(
            field(2, b"/host:CPU"),
            field(3, field(4, message(field(1, 5), field(3, 7)))),
            *[field(4, message(field(1, n), field(2, field(2, b"op %d" % n)))) for n in range(5_000)],
        ),
    ),
    "names that are no UTF-8": space(host(*[event("a\udcff/b\udcfe:MatMul", 9 * n, 5, step_num=n) for n in range(3)])),
    "very long names": space(host(*[event("日本" * 20_000, 9 * n, 5, step_num=n) for n in range(3)])),
    "very deep nesting": space(host(*[event("a/b:MatMul", n / 1000, 40 - n / 500) for n in range(5_000)])),
    "very many kinds of steps": space(host(*[event(f"name {n} x", 9 * n, 5, step_num=n) for n in range(100)])),
}


@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
@pytest.mark.parametrize("case", ODD)
def test_odd_profiles_are_reported(case: str, attribution: str, tmp_path: Path, run_tfperf: Run) -> None:
    path = written(tmp_path, ODD[case])
    assert_reported(run_tfperf("analyze", path, "--attribution", attribution))
    json.loads(assert_reported(run_tfperf("analyze", path, "--attribution", attribution, "--format", "json")))


# Names that mean harm

EVIL = "</script><script>alert(1)</script>\x1b]0;title\x07\x1b[31m\x9b2J\r\u202e\u2028\x00 ok"


def evil_logdir(tmp_path: Path) -> Path:
    """A logdir in which every text that a profile can hold is hostile."""
    texts = {"tf_function_call": EVIL, "graph_type": EVIL, "step_name": EVIL, "device_type_string": EVIL}
    steps = [event(f"{EVIL}{n % 2}", 100 * n, 80, step_num=n, **texts) for n in range(4)]
    ops = [event(f"{EVIL}/MatMul:MatMul", 100 * n + 10, 5) for n in range(4)]
    kernels = [event(EVIL, 100 * n + 20, 9, tf_op=f"{EVIL}:{EVIL}", hlo_op=EVIL) for n in range(4)]
    gpu = plane("/device:GPU:0", line(EVIL, *kernels), stats={"gpu_device_name": EVIL, "device_vendor": EVIL})
    data = space(plane("/host:CPU", line(EVIL, *steps, *ops)), gpu, hostname=EVIL, errors=(EVIL,))
    logdir = logdir_of(tmp_path, vm=data)
    (folder,) = logdir.glob("plugins/profile/*")
    folder.rename(folder.with_name("run\x1b[31m\r</b>".replace("/", "_")))
    return logdir


@pytest.mark.parametrize("attribution", ["corrected", "tensorflow"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_no_name_reaches_a_terminal_or_a_page_raw(
    format_name: str, attribution: str, tmp_path: Path, run_tfperf: Run
) -> None:
    logdir = evil_logdir(tmp_path)
    asked = ("analyze", logdir, "--format", format_name, "--attribution", attribution)
    out = "".join(
        assert_reported(run_tfperf(*asked, *more)) for more in ((), ("--full",))[: 2 if format_name == "table" else 1]
    )
    if format_name in ("table", "markdown"):
        assert "alert(1)" in re.sub(r"[\\\n ]", "", out)
        assert not CONTROL.search(out)
        assert "\u2028" not in out
    if format_name == "markdown":
        assert not re.search(r"(?<!\\)</?script", out)
    if format_name == "json":
        assert not CONTROL.search(out)
        assert "</" not in out
        assert any(EVIL in text for text in texts_in(json.loads(out)))


def texts_in(value: Any) -> list[str]:
    """Every text of a JSON document."""
    if isinstance(value, (dict, list)):
        return [text for item in (value.values() if isinstance(value, dict) else value) for text in texts_in(item)]
    return [value] if isinstance(value, str) else []


# As a process of its own


@pytest.mark.parametrize("data", [TRAINING[:-9], line_of(field(3, 7) + nested_groups(300_000))], ids=["cut", "nested"])
def test_as_a_process_a_damaged_file_is_one_line_on_stderr(tmp_path: Path, data: bytes) -> None:
    command = [sys.executable, "-m", "tfperf", "analyze", str(written(tmp_path, data))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("Error: ")
