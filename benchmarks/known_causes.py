"""Is the cause found? Real jobs that lose time to one built-in cause each, and healthy ones.

    python benchmarks/known_causes.py [--runs 3] [--only JOB ...] [--keep FOLDER]
    python benchmarks/known_causes.py --profiles FOLDER [--only JOB ...]

Each job has a slow and a fixed variant. Both train in turn without a profiler: what the cause costs is the median of
the differences, as a share of the slow step (wall time from step to step, with all that lies between). Then a process
of its own trains the slow variant and profiles it as users do: with tfperf.profile, ProfileCallback, `tfperf run` or
jax.profiler.trace. What `tfperf analyze` says of that profile is compared with what was built in
(known_causes_jobs.py). Bars, over all runs together:

- the first cause is right for 85 %, and the right one is among the first three for 95 %;
- the advice of the first cause is right for 85 %;
- what the first cause is said to cost is within 10 points of what was measured, for 75 % of those with such a cost;
- the step time after its first action holds that of the fixed variant for 60 %, or no estimate is given, where the
  cause is right and the fixed variant makes that action. As it was not profiled, the range is compared as a share of
  the time that the cost is a share of;
- the number of steps is right for 95 %;
- the op, layer or function is named in each job that has one to name;
- nothing harmful is advised, and healthy jobs are given neither a problem nor a hint.

--keep keeps profiles and times, and --profiles judges them again. The jobs take some 25 minutes a run on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from known_causes_jobs import JOBS, NOTHING, Job, Meter

FIRST_BAR, AMONG_BAR, ADVICE_BAR, COST_BAR, RANGE_BAR, STEPS_BAR = 0.85, 0.95, 0.85, 0.75, 0.60, 0.95
POINTS = 10.0
ROUNDS, SKIPPED = 3, 2
ON_SCREEN = 3
TIMES = "times.json"


# In a process of the job


@dataclass
class Clock:
    """Takes the time of steps from one mark to another."""

    steps: int
    marks: int = 0
    start: float = 0.0
    end: float = 0.0

    def mark(self) -> None:
        """Note that a step starts."""
        if self.marks == SKIPPED:
            self.start = time.perf_counter()
        elif self.marks == SKIPPED + self.steps:
            self.end = time.perf_counter()
        self.marks += 1


def time_variants(job: Job, variants: Sequence[str], folder: Path) -> dict[str, list[float]]:
    """Train the variants in turn; return milliseconds per step of each round."""
    trains = {variant: job.make(variant == "slow", folder) for variant in variants}
    for train in trains.values():
        train(job.warm, Meter())
    times: dict[str, list[float]] = {variant: [] for variant in variants}
    for _ in range(ROUNDS):
        for variant, train in trains.items():
            clock = Clock(job.steps)
            train(SKIPPED + job.steps + job.steps // 4, Meter(clock.mark))  # executions may hold several steps
            times[variant].append(1e3 * (clock.end - clock.start) / job.steps)
    return times


def profile_slow(job: Job, folder: Path, logdir: Path) -> None:
    """Train the slow variant, and profile some steps as its users do."""
    train = job.make(True, folder)
    python = int(job.python_trace)
    if job.profiler == "run":
        train(job.warm + job.steps + 10, Meter())  # `tfperf run` profiles this process
    elif job.profiler == "keras":
        from tfperf.keras import ProfileCallback

        last = job.warm + job.steps - 1
        callback = ProfileCallback(str(logdir), batches=(job.warm, last), python_tracer_level=python)
        train(job.warm + job.steps + 10, Meter(extra=[callback]))
    elif job.profiler == "jax":
        import jax

        train(job.warm, Meter())
        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = python
        with jax.profiler.trace(str(logdir), profiler_options=options):
            train(job.steps, Meter())
    else:
        import tfperf

        train(job.warm, Meter())
        with tfperf.profile(logdir, python_tracer_level=python):
            train(job.steps, Meter())


# Running the jobs


def time_job(name: str, folder: Path) -> None:
    """Time both variants of a job, without a profiler; write the milliseconds per step of each round."""
    job = JOBS[name]
    times: dict[str, list[float]] = {}
    if job.cause:
        groups = [["slow"], ["fixed"]] if job.is_global else [["slow", "fixed"]]
        for variants in groups:
            times |= json.loads(_child(name, folder, ["time", *variants]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TIMES).write_text(json.dumps(times))


def profile_job(name: str, folder: Path) -> None:
    """Profile the slow variant of a job into the folder `logs`."""
    job, logdir = JOBS[name], folder / "logs"
    if job.profiler == "run":
        steps = f"{job.warm}..{job.warm + job.steps - 1}"
        run = [
            "-m",
            "tfperf",
            "run",
            "-q",
            "--steps",
            steps,
            "--logdir",
            str(logdir),
            "-o",
            str(folder / "run.json"),
            "--force",
        ]
        _child(name, folder, ["profile"], [*run, *(["--python-trace"] if job.python_trace else [])])
    else:
        _child(name, folder, ["profile"])


def _child(name: str, folder: Path, act: Sequence[str], prefix: Sequence[str] = ()) -> str:
    """Act in a process of its own; return the last line that it prints."""
    files = folder / "files"
    files.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *prefix, __file__, "--job", name, "--folder", str(folder), "--act", *act]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    shutil.rmtree(files)
    if done.returncode:
        raise RuntimeError(f"{name} {' '.join(act)}: {(done.stderr or done.stdout)[-2000:]}")
    return (done.stdout.strip().splitlines() or [""])[-1]


def act_as_child(name: str, folder: Path, act: Sequence[str]) -> None:
    """Do what the process was started for."""
    job = JOBS[name]
    if act[0] == "time":
        print(json.dumps(time_variants(job, act[1:], folder / "files")), flush=True)
    else:
        profile_slow(job, folder / "files", folder / "logs")
    os._exit(0) if job.profiler != "run" else None


# Judging


@dataclass(frozen=True)
class Verdict:
    """What was said of a profile, and what of it is right; None where there is nothing to judge."""

    name: str
    steps: int | None
    true_steps: int
    slow_ms: float | None
    fixed_ms: float | None
    causes: tuple[str, ...]
    headline: str
    advice: str
    cost: tuple[float, float] | None
    """What the first cause costs, in percent."""
    true_cost: float | None
    after: tuple[float, float] | None
    """The range of the first action, in milliseconds of the unprofiled step."""
    is_first: bool | None
    is_among: bool | None
    is_advice_right: bool | None
    is_cost_near: bool | None
    is_range_right: bool | None
    is_named: bool | None
    harmful: tuple[str, ...]

    @property
    def row(self) -> str:
        """Return it as a line of the table."""
        marks = [
            ("", "FIRST")[self.is_first is False],
            ("", "AMONG")[self.is_among is False],
            ("", "ADVICE")[self.is_advice_right is False],
            ("", "COST")[self.is_cost_near is False],
            ("", "RANGE")[self.is_range_right is False],
            ("", "NAMED")[self.is_named is False],
            ("", "STEPS")[self.steps != self.true_steps],
            ("", "HARMFUL")[bool(self.harmful)],
        ]
        times = f"{_ms(self.slow_ms)} {_ms(self.fixed_ms)}"
        cost = "-" if self.cost is None else f"{self.cost[0]:.0f}-{self.cost[1]:.0f}"
        true = "-" if self.true_cost is None else f"{self.true_cost:.0f}"
        after = "-" if self.after is None else f"{self.after[0]:.1f}-{self.after[1]:.1f}"
        steps = f"{'-' if self.steps is None else self.steps}/{self.true_steps}"
        return (
            f"{self.name:25} {times} {steps:>9} {cost:>7} {true:>4} {after:>13}  "
            f"{','.join(self.causes)}  wrong: {' '.join(filter(None, marks)) or 'nothing'}"
        )

    @property
    def said(self) -> str:
        """Return what the first screen said, in two lines."""
        harmful = f"\n    harmful: {'; '.join(self.harmful)}" if self.harmful else ""
        return f"    said: {self.headline}\n    advice: {self.advice or '-'}{harmful}"


def _ms(value: float | None) -> str:
    return "      -" if value is None else f"{value:7.2f}"


def judge(name: str, folder: Path) -> Verdict:
    """Analyze the profile of a job as users do, and compare what is said with what was built in."""
    job = JOBS[name]
    document = json.loads(_analyze(folder / "logs", "--format", "json"))
    screen = " ".join(_analyze(folder / "logs", "--color", "never").split())
    causes = document["diagnosis"]["causes"]
    severities = {each["code"]: each["severity"] for each in document["sections"]["diagnosis"]["findings"]}
    shown = [cause for cause in causes if severities.get(cause["code"]) in ("problem", "hint")][:ON_SCREEN]
    first = shown[0] if shown else None
    codes = (*(cause["code"] for cause in shown), *([] if shown else [NOTHING]))
    actions = [action for cause in shown for action in cause["actions"]]
    found = [f"{each['code']}: {each['text']}" for each in actions]
    harmful = [text for text in found if job.forbidden and re.search(job.forbidden, text)]
    if not job.cause:
        harmful += [f"{cause['code']} of a healthy job" for cause in shown]
    own = [] if first is None else [first["detail"], *(f"{each['code']}: {each['text']}" for each in first["actions"])]

    times = json.loads((folder / TIMES).read_text()) if (folder / TIMES).exists() else {}
    slow = fixed = true_cost = None
    if times:
        slow, fixed = median(times["slow"]), median(times["fixed"])
        pairs = zip(times["slow"], times["fixed"], strict=True)
        true_cost = 100.0 * (1.0 - (fixed / slow if job.is_global else median(after / now for now, after in pairs)))
    cost = _pair(first["cost_percent"]) if first else _share_of(job, screen)
    near = cost is not None and true_cost is not None and cost[0] - POINTS <= true_cost <= cost[1] + POINTS
    after = _after(first, slow)
    is_in = after is None or (true_cost is not None and after[0] <= slow * (1.0 - true_cost / 100.0) <= after[1])
    is_fix = first is None or not first["actions"] or re.search(job.fixed_by, first["actions"][0]["code"]) is not None
    summary = document["summary"]
    return Verdict(
        name=name,
        steps=summary["kinds"].get("train", summary)["step_count"],
        true_steps=job.executions or job.steps,
        slow_ms=slow,
        fixed_ms=fixed,
        causes=codes,
        headline=document["diagnosis"]["headline"],
        advice="; ".join(each["text"] for each in first["actions"][:2]) if first else "",
        cost=cost,
        true_cost=true_cost,
        after=after,
        is_first=codes[0] in job.cause if job.cause else None,
        is_among=any(code in job.cause for code in codes) if job.cause else None,
        is_advice_right=any(re.search(job.advice, text) for text in own) if job.advice else None,
        is_cost_near=near if times and first else None,
        is_range_right=is_in if times and is_fix and codes[0] in job.cause and first else None,
        is_named=re.search(job.named, screen) is not None if job.named else None,
        harmful=tuple(harmful),
    )


def _analyze(logdir: Path, *options: str) -> str:
    from click.testing import CliRunner

    from tfperf.cli import main

    done = CliRunner().invoke(main, ["analyze", *options, str(logdir)])
    if done.exit_code:
        raise RuntimeError(done.output[-2000:])
    return done.stdout


def _share_of(job: Job, screen: str) -> tuple[float, float] | None:
    """Return the share of the step that a first screen without a cause gives for what takes the time."""
    shares = re.findall(rf"(?:{job.named})[^%,;]*? ([\d.]+)%", screen) if job.named else []
    return (sum(map(float, shares)),) * 2 if shares else None


def _pair(value: Any) -> tuple[float, float] | None:
    return None if not value or value["low"] is None else (value["low"], value["high"])


def _after(cause: Any, slow_ms: float | None) -> tuple[float, float] | None:
    """Return the range of the first action, as a share of the time that the cost is a share of, of the slow step."""
    if cause is None or not cause["actions"] or slow_ms is None:
        return None
    after, cost, share = (
        _pair(each) for each in (cause["actions"][0]["step_ms"], cause["cost_ms"], cause["cost_percent"])
    )
    if after is None or cost is None or share is None or not share[1]:
        return None
    now_ms = 100.0 * cost[1] / share[1]
    return slow_ms * after[0] / now_ms, slow_ms * after[1] / now_ms


def print_bars(verdicts: Sequence[Verdict]) -> bool:
    """Print each bar with what was reached; return whether all hold."""
    bars: list[tuple[str, Sequence[bool | None], float]] = [
        ("first cause right", [each.is_first for each in verdicts], FIRST_BAR),
        ("right cause among the first three", [each.is_among for each in verdicts], AMONG_BAR),
        ("advice right", [each.is_advice_right for each in verdicts], ADVICE_BAR),
        ("cost within 10 points", [each.is_cost_near for each in verdicts], COST_BAR),
        ("range holds the fixed step, or none is given", [each.is_range_right for each in verdicts], RANGE_BAR),
        ("steps right", [each.steps == each.true_steps for each in verdicts], STEPS_BAR),
        ("op, layer or function named", [each.is_named for each in verdicts], 1.0),
        ("nothing harmful advised", [not each.harmful for each in verdicts], 1.0),
    ]
    passed = True
    for text, all_marks, least in bars:
        marks = [mark for mark in all_marks if mark is not None]
        share = sum(marks) / len(marks) if marks else 1.0
        passed &= share >= least
        state = "PASS" if share >= least else "FAIL"
        print(f"{state}  {text}: {sum(marks)} of {len(marks)} ({share:.0%}), at least {least:.0%}")
    return passed


def main() -> int:
    """Run the jobs, or judge kept ones, and return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(JOBS), choices=list(JOBS), metavar="JOB")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep profiles and times")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="judge kept profiles again")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--act", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.act:
        act_as_child(options.job, options.folder, options.act)
        return 0
    verdicts, failed = [], 0
    head = f"{'job':25} {'slow':>7} {'fixed':>7} {'steps':>9} {'cost %':>7} {'true':>4} {'after, ms':>13}  causes"
    print(head, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        kept = options.profiles or options.keep or Path(temporary)
        for turn in range(options.runs):
            for name in options.only:
                folder = kept / name / str(turn)
                try:
                    if options.profiles is None:
                        time_job(name, folder)
                        profile_job(name, folder)
                    elif not (folder / "logs").exists():
                        continue
                    verdicts.append(judge(name, folder))
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f"{name:25} FAILED {error}", flush=True)
                    continue
                print(verdicts[-1].row, verdicts[-1].said, sep="\n", flush=True)
    print(f"{len(verdicts)} profiles judged, {failed} failed")
    return 0 if print_bars(verdicts) and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
