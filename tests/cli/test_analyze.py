"""`tfperf analyze`, and pages in the browser."""

from __future__ import annotations

import csv
import json
import re
import shutil
import stat
import webbrowser
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from builders import Event, event, host, known, logdir_of, space
from click.testing import Result
from printed import Run

from tfperf.analysis.registry import By, View, find_table
from tfperf.cli import main
from tfperf.cli.analyze import new_page, show_page


def steps_waiting(wait_us: float, *, step_us: float = 1000, name: str = "train", marked: bool = True) -> bytes:
    """Four steps in a row, each of which waits for its batch first."""
    events: list[Event] = []
    for number in range(4):
        stats = {"step_num": number} if marked else {}
        events.append(event(name, step_us * number, step_us, **stats))
        events.append(event("IteratorGetNextOp::DoCompute", step_us * number, wait_us))
    return space(host(*events))


@pytest.fixture
def two_hosts(tmp_path: Path) -> Path:
    """Host `a` waits 10 % of each 1 ms step, host `b` 30 %."""
    return logdir_of(tmp_path, a=steps_waiting(100), b=steps_waiting(300))


def document(result: Result) -> dict[str, Any]:
    assert (result.exit_code, result.stderr) == (0, "")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def summary(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = document(result)["summary"]
    return found


def rows(result: Result, section: str, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document(result)["sections"][section]["tables"][table]["rows"]
    return found


# --- what is shown, and where it goes ---


def test_section_picks(samples: Path, run_tfperf: Run) -> None:
    found = document(run_tfperf("analyze", samples / "input_bound", "--format", "json", "-s", "gaps", "-s", "ops"))
    assert list(found["sections"]) == ["ops", "gaps"]
    assert found["summary"]["input_class"] == "high", "the summary is there whatever is picked"


@pytest.mark.parametrize(
    ("name", "format_name", "start"),
    [
        ("r.json", "json", "{"),
        ("r.csv", "csv", "# causes"),
        ("r.md", "markdown", "## Diagnosis"),
        ("r.txt", "table", "2026_11_21_12_00_00"),
        ("r.html", "html", "<!DOCTYPE html>"),
    ],
)
def test_suffix_of_the_output_chooses_the_format(
    name: str, format_name: str, start: str, samples: Path, tmp_path: Path, run_tfperf: Run
) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "-o", tmp_path / name)
    said = f"wrote {tmp_path / name}: report ({format_name})\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", said)
    assert (tmp_path / name).read_text().startswith(start)


def test_format_option_wins_over_the_suffix(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    run_tfperf("analyze", samples / "input_bound", "--format", "json", "-o", tmp_path / "r.txt")
    assert json.loads((tmp_path / "r.txt").read_text())["format"] == 1


def test_top_cuts_rankings_only(samples: Path, run_tfperf: Run) -> None:
    tables = {}
    for top in ((), ("--top", 3)):
        sections = document(run_tfperf("analyze", samples / "input_bound", "--format", "json", *top))["sections"]
        tables[top] = {name: table for part in sections.values() for name, table in part["tables"].items()}
    whole, cut = tables.values()
    shorter = {name for name in whole if len(cut[name]["rows"]) < len(whole[name]["rows"])}
    assert shorter == {name for name in whole if find_table(name)[1].ranked and len(whole[name]["rows"]) > 3}
    assert "host_ops" in shorter


def test_steps_are_all_shown_where_they_are_asked_for(samples: Path, run_tfperf: Run) -> None:
    path = samples / "input_bound"
    assert "showing 10 of 20; -s steps shows all" in run_tfperf("analyze", path, "--full", "--top", 3).stdout
    assert "showing" not in run_tfperf("analyze", path, "-s", "steps", "--top", 3).stdout


@pytest.mark.parametrize("format_name", ["table", "markdown", "html"])
def test_of_many_hosts_people_see_five_and_programs_all(tmp_path: Path, run_tfperf: Run, format_name: str) -> None:
    """Host n waits for 100 (n + 1) of 1000 us: the first three wait least."""
    logdir = logdir_of(tmp_path, **{f"worker-{n}": steps_waiting(100 * (n + 1)) for n in range(8)})
    text = run_tfperf("analyze", logdir, "--full", "--format", format_name).stdout
    if format_name != "html":
        by_host = text.split("By host")[1]
        assert "showing 5 of 8, the largest Input" in by_host
        assert "p90 of 8" in text.split("By host: percentiles of all hosts")[1]
        assert [f"worker-{n}" in by_host for n in range(8)] == [False] * 3 + [True] * 5
    assert "percentiles of all hosts" in text
    for name, section in (("steps_by_host", "overview"), ("environment", "environment"), ("input_hosts", "input")):
        assert len(rows(run_tfperf("analyze", logdir, "--format", "json"), section, name)) == 8


def test_the_choices_of_by_are_those_of_the_library() -> None:
    command = known(main.get_command(click.Context(main), "analyze"))
    option = next(parameter for parameter in command.params if parameter.name == "by")
    declared = [name for part in get_args(By) for name in get_args(part)]
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == declared
    assert option.default == View().by


# --- runs and hosts ---


def test_list_names_runs_and_hosts(two_hosts: Path, run_tfperf: Run) -> None:
    result = run_tfperf("analyze", two_hosts, "--list", "--format", "json")
    folder, path = "plugins/profile/2026_01_01_00_00_00", two_hosts / "plugins" / "profile" / "2026_01_01_00_00_00"
    sizes = [(path / f"{name}.xplane.pb").stat().st_size for name in "ab"]
    (run,) = rows(result, "runs", "runs")
    assert list(run.values()) == [path.name, "2026-01-01 00:00:00", 2, sum(sizes), True, str(path)]
    assert [tuple(row.values()) for row in rows(result, "runs", "files")] == [
        (name, size, f"{folder}/{name}.xplane.pb", str(path / f"{name}.xplane.pb"), "2026_01_01_00_00_00")
        for name, size in zip("ab", sizes, strict=True)
    ]


def test_of_runs_with_one_name_none_is_the_default(tmp_path: Path, run_tfperf: Run) -> None:
    for job, wait_us in (("a", 100), ("b", 300)):
        logdir_of(tmp_path / job, vm=steps_waiting(wait_us))
    listed_runs = rows(run_tfperf("analyze", tmp_path, "--list", "--format", "json"), "runs", "runs")
    names = [row["run"] for row in listed_runs]
    assert sorted(names) == [f"{job}/logs/plugins/profile/2026_01_01_00_00_00" for job in "ab"]
    assert not any(row["is_default"] for row in listed_runs)
    refused = run_tfperf("analyze", tmp_path)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == f"Error: 2 runs are named 2026_01_01_00_00_00; select one with --run: {', '.join(names)}\n"
    chosen = summary(run_tfperf("analyze", tmp_path, "--format", "json", "--run", names[0]))["input_percent"]
    assert chosen == pytest.approx(10 if names[0].startswith("a") else 30)


def test_the_newest_run_unless_named(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, a=steps_waiting(100))
    older = logdir / "plugins" / "profile" / "2025_12_31_00_00_00"
    older.mkdir()
    (older / "a.xplane.pb").write_bytes(steps_waiting(500))
    assert summary(run_tfperf("analyze", logdir, "--format", "json"))["input_percent"] == pytest.approx(10)
    named = run_tfperf("analyze", logdir, "--format", "json", "--run", older.name)
    assert summary(named)["input_percent"] == pytest.approx(50)
    folder = run_tfperf("analyze", older, "--format", "json")
    assert summary(folder) == summary(named), "a run folder can be given itself"
    file = run_tfperf("analyze", older / "a.xplane.pb", "--format", "json")
    assert summary(file) == summary(named), "and so can a file"


def test_one_host_alone(two_hosts: Path, run_tfperf: Run) -> None:
    found = document(run_tfperf("analyze", two_hosts, "--format", "json", "--host", "a"))
    assert found["source"]["hosts"] == ["a"]
    assert found["summary"]["input_percent"] == pytest.approx(10)
    assert found["summary"]["worst_host"] is None
    assert summary(run_tfperf("analyze", two_hosts, "--format", "json"))["worst_host"] == "b"


# --- steps ---


def test_step_marker_names_the_steps(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, a=steps_waiting(100, name="my/step one", marked=False))
    exact = summary(run_tfperf("analyze", logdir, "--format", "json", "--step-marker", "my/step one"))
    wildcard = summary(run_tfperf("analyze", logdir, "--format", "json", "--step-marker", "my/*"))
    for found in (exact, wildcard):
        assert (found["step_count"], found["step_source"]) == (4, "markers")
        assert found["step_time_ms"]["average"] == pytest.approx(1)


def test_step_marker_without_such_events_finds_no_steps(tmp_path: Path, run_tfperf: Run) -> None:
    logdir = logdir_of(tmp_path, a=steps_waiting(100))
    found = summary(run_tfperf("analyze", logdir, "--format", "json", "--step-marker", "other"))
    assert (found["step_count"], found["input_percent"], found["input_class"]) == (0, None, "unknown")
    assert set(found["step_time_ms"].values()) == {None}
    assert "'other'" in found["step_explanation"]


def test_a_report_of_some_steps_says_which(two_hosts: Path, tmp_path: Path, run_tfperf: Run) -> None:
    printed = run_tfperf("analyze", two_hosts, "--steps", "1..2").stdout
    assert " i Only steps 1..2 are included: 2 of 4 steps per host.\n" in printed
    assert f"More: tfperf analyze {two_hosts} --steps 1..2 --full" in " ".join(printed.split())
    document = json.loads(run_tfperf("analyze", two_hosts, "--steps", "1..", "--format", "json", "-s", "steps").stdout)
    assert document["source"]["steps"] == {"first": 1, "last": 3, "hosts_without_steps": []}
    assert document["summary"]["step_count"] == 3
    run_tfperf("export-csv", two_hosts, "--steps", "2", "-o", tmp_path / "csv")
    rows = [*csv.DictReader((tmp_path / "csv" / "selected_steps.csv").read_text().splitlines())]
    assert [(row["host"], row["first_step"], row["last_step"], row["steps"], row["all_steps"]) for row in rows] == [
        ("a", "2", "2", "1", "4"),
        ("b", "2", "2", "1", "4"),
    ]
    assert [float(row["duration_ms"]) for row in rows] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (("analyze", "--steps", "3-5"), 2, "'3-5' is not a range of steps: use 3..5, 3.., ..5 or 3"),
        (("analyze", "--steps", ".."), 2, "'..' is not a range of steps"),
        (("analyze", "--steps", "12 13"), 2, "'12 13' is not a range of steps"),
        (("check", "--steps", "5..3", "--max-input-bound", "5%"), 2, "'5..3' ends before it starts: use 3..5"),
        (("analyze", "--steps", "1", "--attribution", "tensorflow"), 2, "cannot be used with --attribution tensorflow"),
        (("analyze", "--steps", "4.."), 1, "Error: steps 4.. do not exist; the steps are 0..3"),
        (("timeline", "--steps", "9", "-o", "t.json"), 1, "Error: step 9 does not exist; the steps are 0..3"),
    ],
)
def test_wrong_ranges_of_steps(
    arguments: tuple[str, ...], exit_code: int, words: str, two_hosts: Path, run_tfperf: Run
) -> None:
    command, *others = arguments
    result = run_tfperf(command, two_hosts, *others)
    assert (result.exit_code, words in result.stderr) == (exit_code, True), result.stderr


def test_a_capture_needs_both_ends_of_a_range(run_tfperf: Run) -> None:
    result = run_tfperf("run", "--steps", "50..", "train.py")
    assert (result.exit_code, "--steps requires both ends to profile: use A..B" in result.stderr) == (2, True)


@pytest.mark.parametrize("first", [-7, 10**18, (1 << 63) - 4])
def test_any_number_of_a_step_can_be_selected(first: int, tmp_path: Path, run_tfperf: Run) -> None:
    marks = [event("train", 100 * row, 90, step_num=first + row) for row in range(4)]
    logdir = logdir_of(tmp_path / "logs", a=space(host(*marks)))
    steps = f"{first + 1}..{first + 2}"
    printed = run_tfperf("analyze", logdir, "--steps", steps, "-s", "steps", "--format", "json").stdout
    rows = json.loads(printed)["sections"]["steps"]["tables"]["steps"]["rows"]
    assert [row["step"] for row in rows] == [first + 1, first + 2]
    missing = run_tfperf("analyze", logdir, f"--steps={first - 1}" if first < 0 else "--steps=5")
    assert missing.stderr.endswith(f"does not exist; the steps are {first}..{first + 3}\n")
    drawn = run_tfperf("timeline", logdir, "--step", first + 1, "-o", tmp_path / "one.json")
    assert (drawn.exit_code, drawn.stderr.count("Error")) == (0, 0)


def test_a_capture_starts_at_step_0_or_later(run_tfperf: Run) -> None:
    result = run_tfperf("run", "--steps", "-3..5", "train.py")
    assert (result.exit_code, "--steps requires a first step of 0 or more" in result.stderr) == (2, True)


def test_a_gate_and_a_comparison_of_some_steps_say_which(two_hosts: Path, run_tfperf: Run) -> None:
    checked = run_tfperf("check", two_hosts, "--steps", "0..2", "--max-input-bound", "50%")
    assert (checked.exit_code, "Only steps 0..2 are included: 3 of 4 steps per host." in checked.stdout) == (0, True)
    compared = run_tfperf("diff", two_hosts, two_hosts, "--steps", "0..2")
    assert "Only steps 0..2 of each run are compared." in compared.stdout
    assert "mean of 3 and 3 steps" in compared.stdout


def test_attribution_tensorflow_finds_no_steps_in_a_keras_3_profile(samples: Path, run_tfperf: Run) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "--format", "json", "--attribution", "tensorflow")
    assert summary(result)["input_class"] == "unknown"


# --- a trace is only read ---


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_nothing_is_written_beside_the_trace(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    logdir = tmp_path / "logs"
    shutil.copytree(samples / "custom_loop", logdir)
    folders = [path for path in (logdir, *logdir.rglob("*")) if path.is_dir()]
    for folder in folders:
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    before = listing(logdir)
    for attribution in ("corrected", "tensorflow"):
        assert run_tfperf("analyze", logdir, "--attribution", attribution).exit_code == 0
    assert run_tfperf("export-csv", logdir, "-o", tmp_path / "tables").exit_code == 0
    assert listing(logdir) == before
    for folder in folders:
        folder.chmod(stat.S_IRWXU)


def test_ops_are_grouped_also_in_a_whole_report(samples: Path, run_tfperf: Run) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "--full", "--by", "layer")
    assert result.exit_code == 0
    assert "Ops by layer: host" in result.stdout


def test_filters_keep_ops_and_say_of_how_many(samples: Path, run_tfperf: Run) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "-s", "ops", "--filter", "matmul", "--filter", "relu$")
    assert result.exit_code == 0
    assert re.search(r"\d+ of \d+ host ops", " ".join(result.stdout.split()))
    whole = run_tfperf("analyze", samples / "input_bound", "--format", "json", "--filter", "matmul")
    found = rows(whole, "ops", "host_ops")
    assert found
    assert all("matmul" in f"{row['op_name']} {row['op_type']}".lower() for row in found)


def test_a_job_without_a_device_has_a_section_of_devices_if_it_is_asked_for(samples: Path, run_tfperf: Run) -> None:
    assert "Device idle time" in run_tfperf("analyze", samples / "input_bound", "-s", "idle").stdout


def test_a_page_says_what_to_do_next_at_once_and_nothing_of_devices_that_are_not_there(
    samples: Path, run_tfperf: Run
) -> None:
    text = run_tfperf("analyze", samples / "input_bound", "--format", "html").stdout
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", text)
    assert titles[:3] == ["Diagnosis", "Overview", "Steps"]
    assert "GPU kernels" not in titles


def test_control_characters_in_the_path_of_a_file_to_write_are_shown_as_escapes(
    run_tfperf: Run, samples: Path, tmp_path: Path
) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "-o", tmp_path / "no\x1b[31m" / "report.json")
    assert result.exit_code == 1
    assert r"no\x1b[31m does not exist; create it first" in result.stderr
    assert result.stderr.removesuffix("\n").isprintable()


def test_the_summary_has_the_batch_size_whatever_sections_there_are(samples: Path, run_tfperf: Run) -> None:
    found = document(run_tfperf("analyze", samples / "input_bound", "-s", "steps", "--format", "json"))
    assert (found["summary"]["batch_size"], list(found["sections"])) == (8, ["steps"])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser, which is in front of the user, is asked to open."""
    addresses: list[str] = []

    class Browser(webbrowser.BaseBrowser):
        def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
            addresses.append(url)
            return True

    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "_tryorder", ["test"])
    monkeypatch.setattr(webbrowser, "_browsers", {"test": [None, Browser("test")]})
    return addresses


def test_over_ssh_the_page_is_to_be_copied(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    show_page(Path("report.html"))
    assert opened == []
    said = "cannot open a browser on this machine (no display, or an ssh session): copy report.html to your machine\n"
    assert capsys.readouterr().err == said


def test_each_page_has_a_place_of_its_own() -> None:
    pages = new_page("run"), new_page("run")
    assert pages[0] != pages[1]
    for page in pages:
        assert page.name == "run.html"
        page.parent.rmdir()


def test_analyze_opens_the_page_that_it_says_it_wrote(samples: Path, run_tfperf: Run, opened: list[str]) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "--open")
    assert (result.exit_code, result.stdout) == (0, "")
    said = re.fullmatch(r"wrote (.*): report \(html\)\nopened (.*)\n", result.stderr)
    assert said
    page = Path(said[1])
    assert opened == [said[2]] == [page.as_uri()]
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    page.unlink()
    page.parent.rmdir()


def test_analyze_opens_the_page_of_the_user(samples: Path, run_tfperf: Run, opened: list[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run_tfperf("analyze", samples / "input_bound", "--open", "-o", page).exit_code == 0
    assert opened == [page.as_uri()]


@pytest.mark.parametrize("options", [("-o", "x.json"), ("--format", "json"), ("-o", "-")], ids=" ".join)
def test_only_a_page_can_be_opened(options: tuple[str, ...], samples: Path, run_tfperf: Run, opened: list[str]) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "--open", *options)
    assert (result.exit_code, result.stdout, opened) == (2, "", [])
    assert "--open requires an HTML report" in result.stderr


def test_the_earlier_run_of_a_logdir_is_named_with_the_command_that_compares_it(
    samples: Path, tmp_path: Path, run_tfperf: Run
) -> None:
    runs = tmp_path / "plugins" / "profile"
    for name, sample in (("2026_11_20_12_00_00", "input_bound"), ("2026_11_21_12_00_00", "input_fixed")):
        shutil.copytree(next((samples / sample / "plugins" / "profile").iterdir()), runs / name)
    newest = " ".join(run_tfperf("analyze", tmp_path).stdout.split())
    assert f"Earlier run: 2026_11_20_12_00_00. To compare: tfperf diff {tmp_path}" in newest
    for arguments in (
        (runs / "2026_11_21_12_00_00",),
        (tmp_path, "--run", "2026_11_20_12_00_00"),
        (tmp_path, "--full"),
    ):
        assert "Earlier run" not in run_tfperf("analyze", *arguments).stdout


def test_one_table_sorted_by_a_column(samples: Path, run_tfperf: Run) -> None:
    logdir = samples / "input_bound"
    lines = run_tfperf("analyze", logdir, "--table", "host_ops", "--sort", "op_name", "--format", "csv").stdout
    rows = list(csv.DictReader(lines.splitlines()))
    assert len(rows) > 20
    names = [row["op_name"] for row in rows]
    assert names == sorted(names)
    shown = run_tfperf("analyze", logdir, "-s", "ops", "--sort", "total_ms", "--top", "3").stdout
    assert "Total" in shown
    for arguments, why in (
        (("--table", "kernel"), "'kernel' is not a table of reports: did you mean kernels, kernels_by_name"),
        (("--sort", "total_ms"), "--sort applies only to tables"),
        (("-s", "ops", "--sort", "totl_ms"), "did you mean total_ms?"),
        (("--table", "ops_of_none"), "is not a table of reports"),
        (("--full", "--table", "kernels"), "--full cannot be used with --table"),
    ):
        result = run_tfperf("analyze", logdir, *arguments)
        assert result.exit_code == 2
        assert why in result.stderr
    missing = run_tfperf("analyze", logdir, "--table", "kernels")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "this profile has no table kernels" in missing.stderr
