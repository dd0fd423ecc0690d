"""`tfperf check`: exit codes, formats, and what CI systems are told."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from builders import host, logdir_of, marks, space
from cli.example_package import run_with_package
from click.testing import Result
from hostile.soundness import lost_tfdata
from places import SAMPLES
from printed import Run

from tfperf.judge.limits import NAMED

HOLDS = ("--max-input-bound", "10%")


@pytest.fixture(autouse=True)
def _no_config_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder of its own, so that no limits of this project count."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)


@pytest.fixture
def two_hosts(tmp_path: Path) -> Path:
    """Nine steps of 10 ms on one host, of 12 ms on the other."""
    return logdir_of(tmp_path, fast=space(host(*marks(9, 10_000))), slow=space(host(*marks(9, 12_000))))


# --- exit codes ---


def test_exit_code_3_where_a_limit_is_breached_for_a_reason_that_is_named(run_tfperf: Run, samples: Path) -> None:
    result = run_tfperf("check", samples / "input_bound", *HOLDS, "--max-step-time", "10s")
    assert (result.exit_code, result.stderr) == (3, "")
    assert "FAIL: max-input-bound 10%. 1 of 2 limits passed." in result.stdout
    assert "Map" in result.stdout.split("\nWhy\n")[1]
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.filterwarnings("always::tfperf.TfperfWarning")
def test_exit_code_1_where_the_newest_run_holds_no_profile(run_tfperf: Run, samples: Path, tmp_path: Path) -> None:
    logdir = tmp_path / "logs"
    shutil.copytree(samples / "input_fixed", logdir)
    (run,) = logdir.glob("plugins/profile/*")
    newer = run.with_name("2026_11_22_12_00_00")
    newer.mkdir()
    limit = ("check", logdir, "--max-input-bound", "50%")
    done = run_tfperf(*limit)
    assert done.exit_code == 1
    assert f"the newest run has no profile: {newer.name} (empty)" in done.stderr
    assert "to check this run, pass it with --run" in " ".join(done.stdout.split())
    assert run_tfperf(*limit, "--run", run.name).exit_code == run_tfperf(*limit[:1], run, *limit[2:]).exit_code == 0
    assert f"{newer.name} (empty)" in run_tfperf("analyze", logdir, "--list").stdout
    # What was newest becomes readable, also as users of TensorBoard store it.
    (trace,) = run.glob("*.xplane.pb")
    (newer / f"{trace.name}.gz").write_bytes(gzip.compress(trace.read_bytes()))
    done = run_tfperf(*limit)
    assert (done.exit_code, newer.name in done.stdout, done.stderr) == (0, True, "")


def test_a_profile_without_half_of_its_input_passes_no_limit_on_input(run_tfperf: Run, tmp_path: Path) -> None:
    (sample,) = (SAMPLES / "input_bound").rglob("*.xplane.pb")
    logdir = logdir_of(tmp_path, sample=dict(lost_tfdata(sample.read_bytes()))["without every other event"])
    done = run_tfperf("check", logdir, "--max-input-bound", "50%")
    said = " ".join(done.stdout.split())
    assert (done.exit_code, "0 of 1 limits passed" in said) == (1, True)
    assert "the profile may be incomplete or wrong" in said
    assert "or check it anyway with --allow-doubt." in said
    done = run_tfperf("check", logdir, "--max-input-bound", "50%", "--allow-doubt")
    assert (done.exit_code, "Checked despite doubt: max-input-bound 50%." in done.stdout) == (0, True)
    config = tmp_path / "tfperf.toml"
    config.write_text('[check]\nmax-input-bound = "50%"\nallow-doubt = true\n', encoding="utf-8")
    document = json.loads(run_tfperf("check", logdir, "--config", config, "--format", "json").stdout)
    assert (document["summary"]["exit_code"], document["summary"]["despite_doubt"]) == (0, 1)
    (row,) = document["sections"]["check"]["tables"]["limits"]["rows"]
    assert 30 < row["measured"] < 35, "64.4 % in the whole profile"
    assert row["doubt"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--max-input-bound", "0.1"), "may mean 10% or 0.1%"),
        (("--max-step-time", "50"), "no unit"),
        (("--limit", "input_bound"), "command line"),
        (("--fail-on", "input_wait,warm_up"), "'input_wait,warm_up' lists several causes"),
        (("--max-cost", "compilation"), "compilation has no bound: use compilation=10%"),
        (("--max-input-cost", "0.2"), "may mean 20% or 0.2%"),
        (("--limit", "kernels.totl_us < 5"), "total_us"),
        (("--stat", "mode", *HOLDS), "'mode' is not one of"),
        (("--min-steps", "0", *HOLDS), "--min-steps"),
        (("--skip-first", "-1", *HOLDS), "--skip-first"),
        (("--max-regression", "5%", *HOLDS), "max-regression requires a baseline"),
        (("--config", "a.toml", "--no-config", *HOLDS), "--config cannot be used with --no-config"),
        (("--junit", "x", "-o", "x", *HOLDS), "-o and --junit must be different files"),
    ],
)
def test_exit_code_2_for_wrong_usage(arguments: tuple[str, ...], message: str, run_tfperf: Run, samples: Path) -> None:
    result = run_tfperf("check", samples / "input_fixed", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    errors = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert message in errors[0]


# --- limits ---


def test_there_is_an_option_for_each_named_limit(run_tfperf: Run) -> None:
    text = run_tfperf("check", "--help").stdout
    assert [name for name, limit in NAMED.items() if f"--{name} {limit.metavar}" not in text] == []
    assert "Example:" in text


@pytest.mark.parametrize(
    ("sample", "arguments", "exit_code"),
    [
        ("retracing", ("--fail-on", "compilation"), 3),
        ("retracing", ("--max-cost", "compilation=10%"), 3),
        ("retracing", ("--fail-on", "input_wait"), 0),
        ("input_fixed", ("--max-cost", "compilation=10%", "--fail-on", "input_wait", "--max-input-cost", "20%"), 0),
        ("input_fixed", ("--fail-on", "launch_bound"), 1),
        ("retracing", ("--fail-on", "launch_bound", "--fail-on", "compilation"), 3),
        ("input_bound", ("--max-input-cost", "20%"), 3),
    ],
)
def test_limits_on_causes(
    sample: str, arguments: tuple[str, ...], exit_code: int, run_tfperf: Run, samples: Path
) -> None:
    result = run_tfperf("check", samples / sample, *arguments)
    assert (result.exit_code, result.stderr) == (exit_code, "")
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_cause_explains_itself_to_every_reader(run_tfperf: Run, samples: Path) -> None:
    limits = ("--fail-on", "compilation", "--max-cost", "launch_bound=10%")
    arguments = ("check", samples / "retracing", *limits, "--junit", "a.xml", "--github")
    result = run_tfperf(*arguments, "--format", "json")
    assert result.exit_code == 3
    breach, unjudged = result.stderr.splitlines()[1:3]
    assert breach.startswith("::error title=fail-on compilation was breached::")
    assert "Compilation takes 96.2%25 of the step: train_step was traced in 10 of 10 calls." in breach
    assert unjudged.startswith("::warning title=max-cost launch_bound=10%25 could not be checked::")
    unknown, named = ElementTree.parse("a.xml").getroot().iter("testcase")
    assert (named.get("name"), [child.tag for child in named]) == ("fail-on compilation", ["failure"])
    assert "Compilation takes 96.2% of the step" in str(named[0].text)
    assert (unknown.get("name"), [child.tag for child in unknown]) == ("max-cost launch_bound=10%", ["error"])
    cost, cause = json.loads(result.stdout)["sections"]["check"]["tables"]["limits"]["rows"]
    assert (cause["measured"], cause["measured_text"], cause["bound"], cause["margin"]) == (1.0, "reported", 0.0, None)
    assert cause["evidence"].startswith("Compilation takes 96.2% of the step")
    assert (cost["result"], cost["measured"], cost["unit"]) == ("unknown", None, "%")


def test_limits_of_a_file(run_tfperf: Run, two_hosts: Path) -> None:
    Path("tfperf.toml").write_text('[check]\nmax-step-time = "11ms"\nmin-steps = 2\n')
    assert run_tfperf("check", two_hosts).exit_code == 3
    assert run_tfperf("check", two_hosts, "--max-step-time", "20ms").exit_code == 0
    assert run_tfperf("check", two_hosts, "--no-config").exit_code == 2
    Path("other.toml").write_text('[check]\nmax-step-time = "13ms"\n')
    assert run_tfperf("check", two_hosts, "--config", "other.toml").exit_code == 0


def test_a_file_that_counts_is_named(run_tfperf: Run, two_hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("tfperf.toml").write_text('[check]\nmax-step-time = "11ms"\n')
    Path(".git").mkdir()
    Path("below").mkdir()
    monkeypatch.chdir("below")
    done = run_tfperf("check", two_hosts, "--format", "json", "--quiet")
    report = json.loads(done.stdout)
    file = str(Path("../tfperf.toml").resolve())
    assert done.stderr == f"limits from {file}\n"
    assert report["source"]["limits_from"] == file
    assert "\nLimits from  /" in run_tfperf("check", two_hosts, "--junit", "a.xml").stdout
    properties = {each.get("name"): each.get("value") for each in ElementTree.parse("a.xml").getroot().iter("property")}
    assert properties["limits from"] == file
    assert "Limits from" not in run_tfperf("check", two_hosts, "--no-config", *HOLDS).stdout


def test_a_setting_of_the_command_line_comes_before_the_file(run_tfperf: Run, two_hosts: Path) -> None:
    Path("tfperf.toml").write_text('[check]\nmax-step-time = "20ms"\nmin-steps = 50\nskip-first = 8\n')
    assert run_tfperf("check", two_hosts).exit_code == 1
    assert run_tfperf("check", two_hosts, "--min-steps", "3", "--skip-first", "0").exit_code == 0


# --- the baseline ---


def test_a_run_is_compared_with_a_baseline(run_tfperf: Run, tmp_path: Path) -> None:
    before = logdir_of(tmp_path / "before", a=space(host(*marks(60, 10_000))))
    after = logdir_of(tmp_path / "after", a=space(host(*marks(60, 11_000))))
    assert run_tfperf("analyze", before, "--save-baseline", "base.json").exit_code == 0
    assert run_tfperf("check", before, "--baseline", "base.json").exit_code == 0
    slower = run_tfperf("check", after, "--baseline", "base.json", "--format", "json")
    assert slower.exit_code == 3
    (row,) = json.loads(slower.stdout)["sections"]["baseline"]["tables"]["baseline"]["rows"]
    assert (row["verdict"], row["ratio"], row["allowed"]) == ("slower", pytest.approx(1.1), "5%")
    assert run_tfperf("check", after, "--baseline", "base.json", "--max-regression", "20%").exit_code == 0


# --- formats and files ---


def test_a_report_in_a_file_is_not_replaced(run_tfperf: Run, samples: Path) -> None:
    arguments = ("check", samples / "input_fixed", *HOLDS, "-o", "report.json")
    assert run_tfperf(*arguments).exit_code == 0
    assert json.loads(Path("report.json").read_text())["summary"]["verdict"] == "pass"
    again = run_tfperf(*arguments)
    assert (again.exit_code, "--force" in again.stderr) == (1, True)
    assert run_tfperf(*arguments, "--force").exit_code == 0


def test_the_exit_code_stays_if_the_report_cannot_be_written(run_tfperf: Run, samples: Path) -> None:
    for option in ("-o", "--junit"):
        for sample, code in (("input_bound", 3), ("input_fixed", 1)):
            result = run_tfperf("check", samples / sample, *HOLDS, option, "missing/report.json")
            assert (result.exit_code, "create it first" in result.stderr) == (code, True)


# --- CI systems ---


def junit_results() -> list[tuple[str, str, str]]:
    """Tag, message and text below the one test case of `a.xml`."""
    (case,) = ElementTree.parse("a.xml").getroot().iter("testcase")
    return [(each.tag, str(each.get("message")), str(each.text)) for each in case]


def test_a_junit_file_that_tfperf_left_there_is_replaced(run_tfperf: Run, samples: Path) -> None:
    for path, code in ((samples / "input_bound", 3), (samples / "input_fixed", 0), (Path("missing"), 1)):
        result = run_tfperf("check", path, *HOLDS, "--junit", "a.xml")
        assert result.exit_code == code
        assert "wrote a.xml: results (JUnit XML)\n" in result.stderr
        if code == 3:
            ((tag, message, text),) = junit_results()
            assert (tag, "the limit is at most 10.0%" in message, "Map" in text) == ("failure", True, True)
        elif code == 0:
            assert junit_results() == []
    ((tag, message, _),) = junit_results()
    assert (tag, "missing" in message) == ("error", True)


def test_junit_is_replaced_only_by_force(run_tfperf: Run, samples: Path) -> None:
    other = '<?xml version="1.0"?>\n<testsuites>\n  <testsuite name="pytest"/>\n</testsuites>'
    Path("a.xml").write_text(other)
    arguments = ("check", samples / "input_fixed", *HOLDS, "--junit", "a.xml", "--github")
    result = run_tfperf(*arguments)
    assert (result.exit_code, Path("a.xml").read_text()) == (1, other)
    assert "::error title=max-input-bound 10%25 could not be checked::a.xml exists; pass --force" in result.stderr
    assert run_tfperf(*arguments, "--force").exit_code == 0
    assert junit_results() == []


@pytest.mark.parametrize(
    ("sample", "code", "said"),
    [("input_bound", 3, "was breached::Input-bound is "), ("missing", 1, "could not be checked::")],
)
def test_github(
    sample: str, code: int, said: str, run_tfperf: Run, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    result = run_tfperf("check", samples / sample, *HOLDS, "--github")
    assert (result.exit_code, "::error" in result.stdout) == (code, False)
    assert result.stderr.startswith(f"::error title=max-input-bound 10%25 {said}")
    assert said.partition("::")[0] in Path("summary.md").read_text()


def test_github_without_a_file_for_the_summary(run_tfperf: Run, samples: Path) -> None:
    result = run_tfperf("check", samples / "input_fixed", *HOLDS, "--github")
    assert (result.exit_code, result.stderr) == (0, "no job summary was written: GITHUB_STEP_SUMMARY is not set\n")


def test_github_with_a_summary_that_cannot_be_written(
    run_tfperf: Run, samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "missing/summary.md")
    for sample, code in (("input_bound", 3), ("input_fixed", 1)):
        result = run_tfperf("check", samples / sample, *HOLDS, "--github")
        assert (result.exit_code, "cannot write the job summary" in result.stderr) == (code, True)


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("pipe", ["| head -c 1", "2>&1 | head -c 1", ">/dev/full", "2>/dev/full", ">&-", "2>&-"])
def test_the_exit_code_stays_whatever_becomes_of_the_output(pipe: str, samples: Path) -> None:
    if "/dev/full" in pipe and not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    program = "from tfperf.cli import run; run()"
    # A shell without pipefail tells the exit code of the last command only.
    script = f'exec 3>code; {{ "$0" -c \'{program}\' check "$1" {" ".join(HOLDS)} --github; echo $? >&3; }} {pipe}'
    command = ["sh", "-c", script, sys.executable, str(samples / "input_bound")]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert Path("code").read_text().split() == ["3"]
    assert "Traceback" not in result.stderr


def test_a_baseline_with_other_steps_skipped_is_not_compared(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    def checked(*skipped: str | int) -> Result:
        run_tfperf("analyze", samples / "input_bound", "--save-baseline", tmp_path / "b.json", "--force", *skipped)
        limits = ("--baseline", tmp_path / "b.json", "--max-regression", "50%", "--no-config")
        return run_tfperf("check", samples / "input_bound", *limits, "--skip-first", 4)

    assert checked("--skip-first", 4).exit_code == 0
    other = checked()
    assert other.exit_code == 1
    assert "save the baseline with the same --skip-first" in " ".join(other.stdout.split())


def test_a_baseline_of_other_steps_is_not_compared(samples: Path, tmp_path: Path, run_tfperf: Run) -> None:
    logs, baseline = samples / "input_bound", tmp_path / "b.json"
    run_tfperf("analyze", logs, "--save-baseline", baseline, "--steps", "5..14")

    def checked(*selected: str) -> Result:
        return run_tfperf("check", logs, "--baseline", baseline, "--max-regression", "50%", "--no-config", *selected)

    assert checked("--steps", "5..14").exit_code == 0
    for selected, now in (((), "all"), (("--steps", "5..15"), "5..15")):
        other = checked(*selected)
        assert other.exit_code == 1
        text = " ".join(other.stdout.split())
        assert f"Selected steps: 5..14 before, {now} now" in text
        assert "select the same ones in both runs with --steps" in text
    # The explanation of a regression compares the same steps.
    same = run_tfperf("diff", baseline, logs, "--steps", "5..14").stdout
    assert "Only steps 5..14 of each run are compared." in " ".join(same.split())
    assert "NOT COMPARABLE: selected steps 5..14 -> all" in " ".join(run_tfperf("diff", baseline, logs).stdout.split())


# --- sections of other packages ---


def test_a_limit_on_a_failing_section_of_another_package_is_unknown(samples: Path, tmp_path: Path) -> None:
    result = run_with_package(tmp_path, "check", samples / "input_bound", "--limit", "acme.rows < 5")
    assert result.returncode == 1, result.stderr
    assert "section acme is omitted: ZeroDivisionError: division by zero" in " ".join(result.stdout.split())


def test_a_column_in_picoseconds_can_be_limited(samples: Path, tmp_path: Path) -> None:
    limits = [word for relation in ("<=", "<") for word in ("--limit", f"acme_times.longest_ps {relation} 2us")]
    done = run_with_package(tmp_path, "check", samples / "input_bound", *limits)
    assert done.returncode == 3, done.stderr
    said = " ".join(done.stdout.split())
    assert "1 of 2 limits passed" in said
    assert "acme_times.longest_ps is 2000000 ps; the limit is less than 2000000 ps" in said


def test_formats_of_ci_systems_are_spelled_as_in_lint(run_tfperf: Run, samples: Path, tmp_path: Path) -> None:
    logdir, junit = samples / "input_bound", tmp_path / "a.xml"
    printed = run_tfperf("check", logdir, *HOLDS, "--format", "junit")
    assert (printed.exit_code, ElementTree.fromstring(printed.stdout).tag) == (3, "testsuites")
    for _ in range(2):  # A file of an earlier run is replaced.
        written = run_tfperf("check", logdir, *HOLDS, "--format", "junit", "-o", junit)
        assert (written.exit_code, written.stdout) == (3, "")
    assert junit.read_text() == printed.stdout
    github = run_tfperf("check", logdir, *HOLDS, "--format", "github")
    assert (github.exit_code, github.stdout) == (3, "")
    assert github.stderr == run_tfperf("check", logdir, *HOLDS, "--github").stderr
    both = run_tfperf("check", logdir, *HOLDS, "--format", "junit", "--junit", junit)
    assert both.exit_code == 2
