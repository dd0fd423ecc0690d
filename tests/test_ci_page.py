"""docs/ci.md: its tables are those of the program, its limits can be read, and its recipes work.

The recipes are run as scripts, as a CI system runs them, in a folder with a real TensorFlow job. Steps of a `uses:`
action belong to the CI system. Steps that install something are skipped, because tfperf and TensorFlow are installed
already: each recipe has exactly one, and it must be a `pip install`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args
from xml.etree import ElementTree

import pytest
import yaml
from builders import event, host, logdir_of, space
from job_environment import job_environment, needs_tensorflow
from places import ROOT
from shared_runs import make_program

from tfperf.judge import grammar
from tfperf.judge.config import read_config
from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import FIGURES, NAMED, Metric
from tfperf.judge.measure import RESTS_ON, rests_on_steps
from tfperf.trace.flaw import Part

PAGE = ROOT / "docs" / "ci.md"
TEXT = PAGE.read_text(encoding="utf-8")
_PART = re.compile(r"<!-- (limits|doubts|grammar) -->\n.*?<!-- end -->", re.DOTALL)


def fenced(language: str, heading: str) -> str:
    """Return the block in a language below a heading."""
    section = re.split(r"^##+ ", TEXT.split(f" {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1, heading
    return str(blocks[0])


def limit_table() -> str:
    """Table of all named limits."""
    demands = {"<=": "at most ", ">=": "at least "}
    rows = [
        f"| `--{name}` | {named.unit} | {'' if named.of_cause else demands[named.relation]}`{named.example}` "
        f"| {named.meaning} |"
        for name, named in NAMED.items()
    ]
    return "\n".join(["| option | unit | example | measured value |", "|---|---|---|---|", *rows]) + "\n"


def doubt_table() -> str:
    """Parts of a profile that figures and tables depend on."""
    names_of: dict[str, list[str]] = {}
    for name, parts in sorted(RESTS_ON.items(), key=lambda item: bool(item[1])):
        shown = [part for part in get_args(Part) if part in parts]
        over_steps = not parts or (name in FIGURES and rests_on_steps(Metric(name)))
        shown += ["step detection"] if over_steps else []
        names_of.setdefault(", ".join(shown), []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {parts} |" for parts, names in names_of.items()]
    rows.append("| all other tables | all parts |")
    return "\n".join(["| figures and tables | depend on |", "|---|---|", *rows]) + "\n"


def grammar_block() -> str:
    """The grammar of a limit, from the module that reads it."""
    text = str(grammar.__doc__)
    rules = re.findall(r"^    (.*)$", text, re.MULTILINE)
    return "\n".join(["```ebnf", *rules, "```"]) + "\n"


def test_limits_and_grammar_are_those_of_the_program(compare_gold: Callable[[Path, str], None]) -> None:
    generated = {"limits": limit_table, "doubts": doubt_table, "grammar": grammar_block}
    compare_gold(PAGE, _PART.sub(lambda part: f"<!-- {part[1]} -->\n{generated[part[1]]()}<!-- end -->", TEXT))
    assert _PART.findall(TEXT) == ["limits", "doubts", "grammar"]


def example_limits() -> list[str]:
    block = TEXT.split("<!-- examples -->\n```text\n")[1].split("```")[0].splitlines()
    return [*block, *re.findall(r"--limit [\"'](.*?)[\"']", TEXT), *re.findall(r"limits=\[\"(.*?)\"\]", TEXT)]


@pytest.mark.parametrize("text", example_limits())
def test_each_example_of_a_limit_can_be_read(text: str) -> None:
    assert read_limit(text).text == text


def test_the_example_of_a_file_has_every_kind_of_key(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(fenced("toml", "Limits in a file"))
    config = read_config(tmp_path / "pyproject.toml")
    assert [limit.text for limit in config.limits] == [
        "max-input-bound 10%",
        "max-step-time 50ms",
        "max-retraces 0",
        "fail-on compilation",
        "fail-on input_wait",
        "max-cost eager_ops=10%",
        "max-cost python_between_steps=20%",
        "sum(kernels.total_us[name~nccl]) < 500us",
    ]
    assert (config.stat, config.skip_first, config.min_steps, config.max_regression) == ("median", 2, 20, 0.05)
    assert config.baseline == (tmp_path / "performance" / "baseline.json",)


def test_each_exit_code_is_what_the_page_says(samples: Path, run_tfperf: Callable[..., Any]) -> None:
    rows = re.findall(r"^\| (\d) \| (\S+ \S+)", TEXT.split("## Limits")[0], re.MULTILINE)
    cases = {
        "all limits": (samples / "input_fixed", "20%"),
        "a limit": (samples / "input_bound", "20%"),
        "the profile": (samples / "nothing_here", "20%"),
        "wrong usage:": (samples / "input_fixed", "much"),
    }
    for code, meaning in rows:
        path, bound = cases.pop(meaning)
        result = run_tfperf("check", path, "--no-config", "--max-input-bound", bound)
        assert result.exit_code == int(code), result.output
    assert not cases


def test_the_commands_of_the_baseline_work_with_enough_steps(
    tmp_path: Path, run_tfperf: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    section = TEXT.split("## Compare with a baseline")[1]
    blocks = re.findall(r"^```console\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[:2]
    # The recipes below profile real jobs; here a profile is there already.
    commands = [line for block in blocks for line in block.splitlines() if not line.startswith("tfperf run ")]
    assert commands[1:] == ["tfperf check logs --baseline baseline.json --max-regression 5%"]
    # 60 steps of about 1 ms: a run that is compared with itself holds.
    starts_us = [1000 * number + 10 * (number % 3) for number in range(60)]
    marks = [event("train", start, 900, step_num=number) for number, start in enumerate(starts_us)]
    logdir_of(tmp_path, a=space(host(*marks)))
    monkeypatch.chdir(tmp_path)
    for command in commands:
        result = run_tfperf(*command.split()[1:])
        assert result.exit_code == 0, result.output


_JOB = """
import tensorflow as tf
import tfperf

data = tf.data.Dataset.from_tensors(tf.random.normal((400, 400))).repeat(75)
# input
train_step = tf.function(lambda x: tf.reduce_sum(tf.tanh(x @ x)))
batches = iter(data)
for number in range(75):
    with tfperf.step(number):
        train_step(next(batches)).numpy()
"""
"""It takes all elements: when Python ends, TensorFlow waits forever for a Python function of the pipeline."""
_SLOW_INPUT = """
import time

def decode(x):
    tf.py_function(lambda: time.sleep(0.05), [], [])
    return x

data = data.map(decode)
"""


def job(*, slow: bool) -> str:
    """Training with steps of some milliseconds; its input takes almost no time, or more than prefetching can hide."""
    source = _SLOW_INPUT if slow else "data = data.prefetch(tf.data.AUTOTUNE)\n"
    return _JOB.replace("# input\n", source)


NO_TENSORFLOW = "print('trained without TensorFlow')\n"


class Step(NamedTuple):
    """A shell script of a recipe, and how the CI system would run it."""

    script: str
    shell: tuple[str, ...]
    folder: str = "."
    always: bool = False
    """Whether it runs although an earlier step failed."""


@dataclass
class RecipeResult:
    """The result of a recipe: the exit code of the step that failed, and the output of all steps."""

    code: int = 0
    output: str = ""
    scripts: list[str] = field(default_factory=list)


def github_steps(heading: str) -> Iterator[Step]:
    workflow = yaml.safe_load(fenced("yaml", heading))
    # In YAML 1.1, the key `on` is a boolean.
    assert workflow[True] == "pull_request"
    (job,) = workflow["jobs"].values()
    assert job["runs-on"]
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step), step
        if "run" in step:
            always = step.get("if") == "always()"
            yield Step(step["run"], ("bash", "-e", "-c"), step.get("working-directory", "."), always)


def gitlab_steps(heading: str) -> Iterator[Step]:
    pipeline = yaml.safe_load(fenced("yaml", heading))
    (job,) = pipeline.values()
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] == "tfperf.xml"
    for line in (*job["before_script"], *job["script"]):
        yield Step(line, ("bash", "-e", "-o", "pipefail", "-c"))


def jenkins_steps(heading: str) -> Iterator[Step]:
    text = fenced("groovy", heading)
    for opening, closing in ("{}", "()", "[]"):
        assert text.count(opening) == text.count(closing)
    assert "junit 'tfperf.xml'" in text.split("always {")[1]
    for line in re.findall(r"\bsh '(.*)'$", text, re.MULTILINE):
        yield Step(line, ("sh", "-x", "-e", "-c"))


RECIPES = {"GitHub Actions": github_steps, "GitLab": gitlab_steps, "Jenkins": jenkins_steps}


def recipe(name: str) -> list[Step]:
    """Return the steps of a recipe without the one that installs."""
    every = list(RECIPES[name](name) if name in RECIPES else github_steps(name))
    others = [step for step in every if "pip install -r requirements.txt" not in step.script]
    assert len(others) == len(every) - 1
    return others


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a `tfperf` that profiles the same job once: recipes differ in what is around that."""
    return make_program(tmp_path_factory)


def run_recipe(steps: list[Step], folder: Path, program: Path) -> RecipeResult:
    """Run the steps one after the other, as a CI system does: after a failure, only those that always run."""
    environment = {
        **job_environment(keras=False),
        "PATH": os.pathsep.join([str(program), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "GITHUB_ACTIONS": "true",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    ran = RecipeResult()
    for step in steps:
        if ran.code and not step.always:
            continue
        result = subprocess.run(
            [*step.shell, step.script],
            check=False,
            cwd=folder / step.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=180,
        )
        ran.scripts.append(step.script)
        ran.output += result.stdout
        ran.code = ran.code or result.returncode
    assert "Traceback" not in ran.output, ran.output
    return ran


def results(folder: Path) -> list[str]:
    """Return the result of each limit in the JUnit file: passed, or the kind of problem."""
    root = ElementTree.parse(folder / "tfperf.xml").getroot()
    return [case[0].tag if len(case) else "passed" for case in root.iter("testcase")]


@needs_tensorflow
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_passes_a_good_job_and_names_the_stage_of_a_slow_one(name: str, tmp_path: Path, program: Path) -> None:
    steps = recipe(name)
    (tmp_path / "train.py").write_text(job(slow=False))
    # How much of a fast step is input depends on what else the machine does.
    generous = [step._replace(script=step.script.replace("20%", "90%")) for step in steps]
    assert generous != steps
    good = run_recipe(generous, tmp_path, program)
    assert (good.code, results(tmp_path)) == (0, ["passed"]), good.output
    # In the same folder, as on a machine that keeps it: the recipe removes the files of the first run.
    (tmp_path / "train.py").write_text(job(slow=True))
    slow = run_recipe(steps, tmp_path, program)
    assert (slow.code, results(tmp_path)) == (3, ["failure"]), slow.output
    assert "py_function" in slow.output
    for text in (slow.output.split("max-input-bound")[-1], (tmp_path / "tfperf.xml").read_text()):
        assert "the blocking tf.data stage is Map" in " ".join(text.split())
    assert len(list((tmp_path / "logs").rglob("*.xplane.pb"))) == 1
    assert "<html" in (tmp_path / "report.html").read_text()
    if name == "GitHub Actions":
        assert "::error title=max-input-bound 20%25 was breached::" in slow.output
        assert "the blocking tf.data stage is Map" in (tmp_path / "summary.md").read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_fails_without_a_profile(name: str, tmp_path: Path, samples: Path, program: Path) -> None:
    shutil.copytree(samples / "input_fixed", tmp_path / "logs")  # The profile of an earlier run must not count.
    (tmp_path / "train.py").write_text(NO_TENSORFLOW)
    ran = run_recipe(recipe(name), tmp_path, program)
    assert "trained without TensorFlow" in ran.output
    assert ran.code == 1, ran.output
    assert not any("tfperf check" in script for script in ran.scripts), "the profile of the earlier run is judged"


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_stops_at_a_script_that_fails(name: str, tmp_path: Path, program: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(7)\n")
    ran = run_recipe(recipe(name), tmp_path, program)
    assert ran.code == 7
    assert not any("tfperf check" in script for script in ran.scripts)


@needs_tensorflow
def test_the_comparison_of_two_branches_calls_a_slow_input_a_regression(tmp_path: Path, program: Path) -> None:
    steps = recipe("Compare with the target branch, in one job")
    # With fewer steps, and another name of the logdir, these are the jobs of the other recipes.
    same = [step._replace(script=re.sub(r"\b20\.\.119\b", "20..69", step.script)) for step in steps]
    same = [step._replace(script=re.sub(r"\btarget\b", "logs", step.script)) for step in same]
    assert sum("tfperf run --steps 20..69 --logdir logs -o report.html train.py" in step.script for step in same) == 2
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "train.py").write_text(job(slow=False))
    (tmp_path / "train.py").write_text(job(slow=True))
    ran = run_recipe(same, tmp_path, program)
    assert ran.code == 3, ran.output
    summary = (tmp_path / "summary.md").read_text()
    assert "FAIL: max-regression 10%" in summary
    assert "Largest change: Input" in summary.split("Comparison")[-1]


# --- the action and the hook of the repository ---


def expression(text: str, values: dict[str, str]) -> str:
    """Replace the expressions of a workflow, such as `${{ inputs.profile }}`."""
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda match: values[match[1]], text)


ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def run_action(folder: Path, **given: str) -> list[int]:
    """Run the scripts of the action after the installation, and return their exit codes."""
    python, install, *others = ACTION["runs"]["steps"]
    assert (python["uses"], python["with"]["update-environment"]) == ("actions/setup-python@v5", False)
    assert install["run"] == '"$PYTHON" -m pip install "$ACTION"'
    values = {f"inputs.{name}": each.get("default", "") for name, each in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in given.items()}
    values["steps.python.outputs.python-path"] = sys.executable
    codes = []
    for step in others:
        assert step["shell"] == "bash"
        environment = {name: expression(text, values) for name, text in step["env"].items()}
        environment["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            check=False,
            cwd=folder,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "Traceback" not in done.stderr, done.stderr
        codes.append(done.returncode)
    return codes


def test_the_action_checks_a_profile_and_writes_a_report(tmp_path: Path, samples: Path) -> None:
    (usage,) = yaml.safe_load(fenced("yaml", "As a GitHub action"))
    rows = re.findall(r"^\| `([\w-]+)` \|", TEXT.split("### As a GitHub action")[1].split("### ")[0], re.MULTILINE)
    assert rows == [*ACTION["inputs"]]
    assert usage["with"].keys() <= ACTION["inputs"].keys()
    assert ACTION["runs"]["using"] == "composite"
    shutil.copytree(samples / "input_bound", tmp_path / "logs")
    (tmp_path / "click.py").write_text("raise SystemExit(9)")  # the job's own code is not imported
    assert run_action(tmp_path, **usage["with"]) == [3, 0]
    assert results(tmp_path) == ["failure", "passed"]
    assert "max-input-bound 20%" in (tmp_path / "summary.md").read_text()
    assert "<html" in (tmp_path / "tfperf.html").read_text()


def test_the_report_of_the_action_covers_what_the_check_covers(tmp_path: Path, samples: Path) -> None:
    """Values follow after `=` or on the next line."""
    shutil.copytree(samples / "input_bound", tmp_path / "logs")
    (run,) = (tmp_path / "logs" / "plugins" / "profile").iterdir()
    shutil.copytree(run, run.with_name("2099_01_01_00_00_00"))
    (tmp_path / "tfperf.toml").write_text('[check]\nmax-step-time = "1ms"\n')
    assert run_action(tmp_path) == [3, 0]  # limits are in the file
    options, selection = (
        "  --limit=step_time < 1s  \n\n--max-step-time\n1s",
        f"--steps=5..9\n--strict\n--run\n{run.name}",
    )
    assert run_action(tmp_path, options=options, selection=selection, report="some.html") == [0, 0]
    page = (tmp_path / "some.html").read_text()
    assert "Only steps 5..9 are included" in page
    assert run.name in page
    assert "2099_01_01" not in page


def test_the_hook_lints_a_model(
    tmp_path: Path, samples: Path, run_tfperf: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (manifest,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    (repository,) = yaml.safe_load(fenced("yaml", "pre-commit"))["repos"]
    (hook,) = repository["hooks"]
    assert {key: hook[key] for key in manifest.keys() - {"description"}} == {
        key: value for key, value in manifest.items() if key != "description"
    }
    (tmp_path / "model").mkdir()
    shutil.copy(samples / "tfprof_mlp" / "collected" / "graph.pb", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    program, *words = f"{hook['entry']} {' '.join(hook['args'])}".split()
    result = run_tfperf(*words)
    assert (program, result.exit_code) == ("tfperf", 0), result.output
    assert re.match(hook["files"], "model/graph.pb")
