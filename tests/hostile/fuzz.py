"""Commands on profiles that were damaged at random: no traceback, no stall, no limit that passes for the damage.

    make fuzz
    make fuzz COUNT="1 --seed 4711 --keep mutant.xplane.pb"

Each mutant is checked against limits that its sample breaches by far, and then given to one more command, in turn. A
limit that now passes must come with a word in the same report: that the profile may be wrong. A limit on a number of
things is left out where things were taken away: what is not recorded cannot be missed. Queries are answered in this
process, which is faster, and where a crash or a stall is not taken for an error of the query.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import mutants
from click.testing import CliRunner, Result
from export.query.asking import ThisProcess
from places import SAMPLES

from tfperf.cli import main as tfperf

STALL_S = 10.0
"""Processor time that a command may take; most take a hundredth."""
HANG_S = 300.0
"""A process that hangs that long where Python cannot interrupt it is ended."""

COMMANDS: dict[str, tuple[str, ...]] = {
    "analyze": ("analyze", "{mutant}"),
    "analyze --full": ("analyze", "{mutant}", "--full"),
    "analyze json": ("analyze", "{mutant}", "--format", "json"),
    "analyze csv": ("analyze", "{mutant}", "--format", "csv"),
    "analyze markdown": ("analyze", "{mutant}", "--format", "markdown"),
    "analyze html": ("analyze", "{mutant}", "-o", "{out}.html", "--force"),
    "analyze tensorflow": ("analyze", "{mutant}", "--full", "--attribution", "tensorflow"),
    "export-csv": ("export-csv", "{mutant}", "-o", "{out}", "--force"),
    "diff": ("diff", "{mutant}", "{sample}"),
    "diff, turned": ("diff", "{sample}", "{mutant}", "--format", "json"),
    "query": ("query", "{mutant}", "select name, count(*), sum(duration_ms) from events group by name order by 3"),
    "query host_ops": ("query", "{mutant}", "select * from host_ops"),
    "query hlo_ops": ("query", "{mutant}", "select * from hlo_ops"),
    "anonymize": ("anonymize", "{mutant}", "-o", "{out}_copy", "--force"),
    "lint": ("lint", "{mutant}"),
    "timeline perfetto": ("timeline", "{mutant}", "-o", "{out}.pftrace", "--force"),
    "flamegraph": ("flamegraph", "{mutant}", "-o", "{out}.svg", "--force"),
    "flamegraph, compared": ("flamegraph", "{mutant}", "--diff", "{sample}", "--by", "function", "--format", "folded"),
    "timeline json": ("timeline", "{mutant}", "-o", "{out}.json", "--force"),
}
LIMITS = {
    "max-step-time": "0.001ms",
    "max-input-bound": "5%",
    "max-all-others": "10%",
    "max-input-cost": "5%",
    "max-retraces": "0",
    "max-memory": "1kB",
}
"""Limits that a sample must breach to be limited by them."""
COUNTS = ("max-retraces",)
"""Limits on how many there are of something."""
MARGIN = 0.7
"""Limits are this part of what the sample measures: damage that changes less changes no verdict."""


class Fault(NamedTuple):
    """What must not happen, and how to make it happen again."""

    kind: str
    seed: int
    command: str
    operators: tuple[str, ...]
    text: str


class Stalled(BaseException):
    """A command took too long."""


def _stall(*_: object) -> None:
    raise Stalled


@contextmanager
def limited() -> Iterator[None]:
    """End what takes more processor time than it may."""
    before = signal.signal(signal.SIGPROF, _stall)
    signal.setitimer(signal.ITIMER_PROF, STALL_S)
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGPROF, before)


def invoke(arguments: Sequence[str]) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(tfperf, arguments)


@cache
def limits_of(sample: Path) -> tuple[str, ...]:
    """Return limits that a profile breaches, each by far."""
    probe = [part for name, least in LIMITS.items() for part in (f"--{name}", least)]
    limits = []
    for row in limit_rows(invoke(("check", str(sample), "--no-config", *probe, "--format", "json"))):
        if row["result"] == "breach":
            bound = row["measured"] * MARGIN
            unit = {"bytes": "B", "count": ""}.get(row["unit"], row["unit"])
            limits += [f"--{row['limit'].split()[0]}", f"{bound:.0f}B" if unit == "B" else f"{bound:.3f}{unit}"]
    return tuple(limits)


def limit_rows(checked: Result) -> list[dict[str, Any]]:
    """Return the limits that were judged, none where the profile was refused."""
    try:
        rows: list[dict[str, Any]] = json.loads(checked.stdout)["sections"]["check"]["tables"]["limits"]["rows"]
    except (json.JSONDecodeError, KeyError):
        return []
    return rows


class Fuzz:
    """The samples, what they are limited by, and a folder for mutants."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(SAMPLES.rglob("*.xplane.pb"))
        self.samples = [path.read_bytes() for path in self.paths]
        self.limits = [limits_of(path) for path in self.paths]
        self.mutant, self.out = folder / "mutant.xplane.pb", folder / "out"
        self.exit_codes: Counter[str] = Counter()
        self.limits_judged: Counter[str] = Counter()
        """Results of limits that the samples breach; what passes must come with a word."""

    def attempt(self, seed: int) -> list[Fault]:
        """Damage a sample as this seed says, and run `check` and one more command on it."""
        mutant = mutants.make(Random(seed), self.samples)
        self.mutant.write_bytes(mutant.data)
        check = ("check", str(self.mutant), "--no-config", *self.limits[mutant.sample], "--format", "json")
        name = list(COMMANDS)[seed % len(COMMANDS)]
        places = {"mutant": self.mutant, "sample": self.paths[mutant.sample], "out": self.out}
        faults = []
        for command, arguments in (("check", check), (name, tuple(part.format(**places) for part in COMMANDS[name]))):
            result, problem = self._run(arguments)
            faults += [Fault(kind, seed, command, mutant.operators, text) for kind, text in problem]
            if command == "check" and result is not None:
                faults += self._silent_passes(seed, mutant, result)
        return faults

    def _run(self, arguments: Sequence[str]) -> tuple[Result | None, list[tuple[str, str]]]:
        try:
            with limited():
                result = invoke(arguments)
        except Stalled:
            return None, [("stall", f"over {STALL_S:.0f} s of processor time")]
        self.exit_codes[f"{arguments[0]} {result.exit_code}"] += 1
        if isinstance(result.exception, Stalled):
            return None, [("stall", f"over {STALL_S:.0f} s of processor time")]
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            return None, [("traceback", "".join(traceback.format_exception(result.exception)[-3:]))]
        if result.exit_code not in (0, 1, 3) or (result.exit_code == 1 and not result.stdout and not result.stderr):
            return None, [("exit code", f"{result.exit_code}: {result.stderr[-300:]}")]
        return result, []

    def _silent_passes(self, seed: int, mutant: mutants.Mutant, checked: Result) -> Iterator[Fault]:
        without = COUNTS if mutants.LOSSES.intersection(mutant.operators) else ()
        rows = [row for row in limit_rows(checked) if not row["limit"].startswith(without)]
        self.limits_judged.update(row["result"] for row in rows)
        passed = [row for row in rows if row["result"] == "pass"]
        if not passed:
            return
        if "may be incomplete or wrong" not in checked.stdout and not checked.stderr:
            text = ", ".join(f"{row['limit']}: {row['measured_text']} ({row['why']})" for row in passed)
            yield Fault("silent pass", seed, "check", mutant.operators, text)


def fuzz(count: int, seed: int, folder: Path) -> tuple[Fuzz, list[Fault]]:
    """Try mutants of the seeds from `seed` on."""
    attempts = Fuzz(folder)
    faults = []
    for number in range(seed, seed + count):
        faults += attempts.attempt(number)
    return attempts, faults


def main() -> int:
    """Print what was tried and what was found; 1 if there is anything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=10_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first mutant; those of the others follow")
    parser.add_argument("--keep", type=Path, help="write the last mutant to this file")
    options = parser.parse_args()
    faulthandler.enable()
    counts: Counter[str] = Counter()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, patch("tfperf.export.query.apart.WorkerProcess", ThisProcess):
        attempts = Fuzz(Path(folder))
        for number in range(options.seed, options.seed + options.count):
            for fault in attempts.attempt(number):
                counts[fault.kind] += 1
                print(f"{fault.kind}: seed {fault.seed}, {fault.command}, {' + '.join(fault.operators)}: {fault.text}")
            if (number - options.seed + 1) % 500 == 0:
                print(f"... {number - options.seed + 1} mutants in {time.monotonic() - start:.0f} s", flush=True)
        if options.keep:
            options.keep.write_bytes(attempts.mutant.read_bytes())
    print(f"{options.count:,} mutants (seeds {options.seed} to {options.seed + options.count - 1})", end=" ")
    print(f"of {len(attempts.paths)} samples in {time.monotonic() - start:.0f} s")
    print("ended: " + ", ".join(f"{name}: {times:,}" for name, times in sorted(attempts.exit_codes.items())))
    print("limits that the samples breach: " + ", ".join(f"{n:,} {end}" for end, n in attempts.limits_judged.items()))
    print(", ".join(f"{counts[kind]:,} {text}" for kind, text in SUMMARY.items()))
    return 1 if counts else 0


SUMMARY = {"traceback": "tracebacks", "stall": "stalls", "silent pass": "silent passes", "exit code": "odd exit codes"}

if __name__ == "__main__":
    sys.exit(main())
