"""Names in a profile are no commands: what CI runners act on never reaches a log."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from pathlib import Path

import pytest
from builders import event, host, line, logdir_of, plane, ref, space
from hypothesis import given
from hypothesis import strategies as st
from printed import Run

from tfperf.report.render.values import without_commands

NAMES = (
    "::set-output name=deploy::true",
    "##[set-env name=PATH]/tmp",
    "a ##vso[task.setvariable variable=x]y",
    "##teamcity[buildStatus status='SUCCESS']",
)


def commands_in(log: str) -> list[str]:
    """Return the lines on which a runner acts: as actions/runner (ActionCommand) and Azure's agent read them."""

    def is_command(line: str) -> bool:
        new = re.match(r"::(?P<name>[^\s:]+)(?: [^:]*)?::", line.lstrip())
        return bool(new or re.search(r"(?i)##(?:vso|teamcity)?\[", line))

    return [line for line in re.split(r"\r\n|[\r\n]", log) if is_command(line)]


def job(name: str) -> bytes:
    """Five steps, with this name wherever a profile has names."""
    events = []
    for n in range(5):
        events += [
            event("train", 1000 * n, 1000, step_num=n, graph_type=ref(name)),
            event(name, 1000 * n, 300, tf_function_call=ref("traced-nonXla"), tracing_count=n + 1),
            event(f"{name}:MatMul", 1000 * n + 400, 200),
        ]
    return space(host(*events))


def test_the_grammar_finds_commands() -> None:
    for name in NAMES:
        assert commands_in(f"one\n  {name}\ntwo") == [f"  {name}"]
        assert not commands_in(without_commands(f"one\n  {name}\ntwo"))
    assert not commands_in("std::vector::push_back\nhalf:: of a command")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "command",
    [
        *(("analyze", "--format", format_name) for format_name in ("table", "markdown", "csv", "json", "html")),
        ("analyze", "--full"),
        ("analyze", "--step-marker", "::warning::x"),
        ("check", "--max-step-time", "1us"),
        ("check", "--max-step-time", "1us", "--format", "json"),
        ("check", "--max-retraces", "0", "--github"),
        ("diff",),
    ],
    ids=" ".join,
)
def test_no_command_acts_on_a_log(command: tuple[str, ...], name: str, tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, vm=job(name))
    paths = [logdir, logdir] if command[0] == "diff" else [logdir]
    result = run_tfperf(command[0], *paths, *command[1:])
    assert result.exit_code in (0, 1, 3), result.stderr
    own = [line for line in commands_in(result.stderr) if line.startswith(("::error title=", "::warning title="))]
    assert commands_in(result.stdout) == []
    assert commands_in(result.stderr) == own
    assert not own or "--github" in command


def test_errors_name_paths_without_commands(tmp_path: Path, run_tfperf: Run) -> None:
    result = run_tfperf("analyze", tmp_path / "##[error]x")
    assert result.exit_code == 1
    assert commands_in(result.stderr) == []


def test_json_means_the_same(tmp_path: Path, run_tfperf: Run) -> None:
    text = run_tfperf("analyze", logdir_of(tmp_path, vm=job(NAMES[1])), "--format", "json").stdout
    assert NAMES[1] not in text
    assert NAMES[1] in str(json.loads(text))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_names_as_they_are(name: str, tmp_path: Path, run_tfperf: Run) -> None:
    result = run_tfperf("analyze", logdir_of(tmp_path, vm=job(name)), "--format", "html")
    shown = unescape(re.sub(r"<script.*?</script>", "", result.stdout, flags=re.DOTALL))
    assert name in shown
    for script in re.findall(r"<script>(.*?)</script>", result.stdout, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"sha256-{digest}" in result.stdout


@given(st.lists(st.sampled_from([":", "::", "#", "##", "[", "vso[", " ", "\n", "a", "\t"]), max_size=30).map("".join))
def test_whatever_the_text(text: str) -> None:
    assert commands_in(without_commands(text)) == []


# --- names of half a megabyte in a profile ---


_MOST_CHARACTERS = 60_000


def profile(folder: Path, letter: str, kernel_us: float) -> Path:
    """Write a profile of ten steps, whose function, op, kernel and stage have names of 500,000 letters."""
    long = letter * 500_000
    steps, kernels = [], []
    for number in range(10):
        at = 1000.0 * number
        steps.append(event("train", at, 900, step_num=number, _r=1))
        steps.append(event(f"{long}/op:{long}", at + 10, 400))
        kernels.append(event(f"{long}_kernel", at + 20, kernel_us, tf_op=f"{long}/op:{long}"))
    folder.mkdir()
    path = folder / "host.xplane.pb"
    path.write_bytes(space(host(*steps), plane("/device:GPU:0", line("Stream #1", *kernels, id=1))))
    return path


@pytest.mark.parametrize("format_name", ["table", "markdown"])
def test_reports_cut_long_names(tmp_path: Path, run_tfperf: Run, format_name: str) -> None:
    before, after = profile(tmp_path / "before", "x", 50), profile(tmp_path / "after", "y", 700)
    limits = ("--limit", "max(kernels.total_us) < 1us", "--limit", "host_ops.self_ms < 0.001ms")
    for command in (
        ("diff", before, after),
        ("check", after, *limits),
        ("analyze", after),
        ("analyze", after, "--full"),
    ):
        result = run_tfperf(*command, "--format", format_name)
        assert result.exit_code in (0, 3)
        shown = (result.stdout + result.stderr).replace("\n", "")
        assert len(shown) < _MOST_CHARACTERS, command
        assert not any(letter * 500 in shown for letter in "xy"), command


@pytest.mark.parametrize("option", ["--host", "--run", "--step-marker", "--filter"])
def test_errors_cut_long_names(samples: Path, run_tfperf: Run, option: str) -> None:
    result = run_tfperf("analyze", samples / "input_bound", option, "(" * 100_000)
    assert len(result.stderr) < 5000
