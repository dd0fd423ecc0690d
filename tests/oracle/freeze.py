"""Freeze what the commands print for every profile at hand, and compare later versions with it, byte for byte.

    python tests/oracle/freeze.py OUTPUTS
    python tests/oracle/freeze.py OUTPUTS --compare FROZEN
    python tests/oracle/freeze.py OUTPUTS --compare FROZEN --sentences sentences.json --only 'analyze*input_bound*'

The outputs and their hashes (hashes.json) are written into the folder OUTPUTS. FROZEN is such a folder of another
version, or its hashes.json. `sentences.json` maps texts of FROZEN to new ones, which replace them before outputs are
compared word by word, since a new sentence may break lines elsewhere. The samples are always read, and the shared
traces if they are next to the project.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from difflib import unified_diff
from fnmatch import fnmatch
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
FORMATS = ("table", "json", "csv", "markdown")
ATTRIBUTIONS = ("corrected", "tensorflow")
COPIES = 100
LIMITS = (
    *("--max-input-bound", "10%", "--max-step-time", "1ms", "--max-kernel-launch", "5%", "--max-all-others", "5%"),
    *("--min-device-busy", "50%", "--max-memory", "1MiB", "--max-retraces", "0", "--max-wall-step-time", "1ms"),
    *("--max-skew", "5%", "--max-straggler-loss", "5%", "--fail-on", "eager_ops", "--min-steps", "1"),
)
TFPROF_VIEWS = ("scope", "graph", "op", "code", "advise")


class Command(NamedTuple):
    """A command whose output is frozen: its name (a file name), and its words."""

    name: str
    words: tuple[str, ...]


def runs() -> dict[str, Path]:
    """Return the run folders by name."""
    found = {}
    for place in (ROOT / "sample_traces", SHARED / "traces"):
        for folder in sorted({path.parent for path in place.rglob("*.xplane.pb")}):
            inside = folder.relative_to(place).as_posix().replace("/plugins/profile", "")
            found[f"{place.name}/{inside}".replace("/", "~")] = folder
    return found


def commands(copies: Path) -> Iterator[Command]:
    """Yield all commands. `copies` is the folder of a run of many hosts."""
    known = runs()
    for name, path in known.items():
        yield from of_run(name, path)
    for number, (before, after) in enumerate(pairwise(known.values())):
        for kind in ("table", "json"):
            yield Command(f"diff~{number}.{kind}", ("diff", str(before), str(after), "--format", kind))
    for kind in FORMATS:
        yield Command(f"copies.{kind}", ("analyze", str(copies), "--format", kind))
    yield Command("schema", ("query", "--schema"))
    for path in sorted((SHARED / "tfprof").rglob("*.pb")):
        name = path.relative_to(SHARED / "tfprof").as_posix().replace("/", "~")
        yield Command(f"lint~{name}", ("lint", str(path)))
        for view, option in product(TFPROF_VIEWS, ("profile", "graph")):
            yield Command(f"tfprof~{view}~{option}~{name}", ("tfprof", view, f"--{option}", str(path)))


def of_run(name: str, path: Path) -> Iterator[Command]:
    """Yield the commands that read one run."""
    for attribution in ATTRIBUTIONS:
        chosen = ("--attribution", attribution)
        for kind in FORMATS:
            words = ("analyze", str(path), "--format", kind, *chosen)
            yield Command(f"analyze~{name}~{attribution}.{kind}", (*words, "--full") if kind == "table" else words)
        yield Command(f"first~{name}~{attribution}.table", ("analyze", str(path), *chosen))
        yield Command(f"check~{name}~{attribution}", ("check", str(path), *chosen, *LIMITS))
    yield Command(f"short~{name}", ("analyze", str(path), "--full", "--top", "2"))
    yield Command(f"schema~{name}", ("query", str(path), "--schema"))
    for view in TFPROF_VIEWS:
        yield Command(f"tfprof~{view}~{name}", ("tfprof", view, str(path)))
    for kind in ("table", "json"):
        yield Command(f"lint~{name}.{kind}", ("lint", str(path), "--format", kind))


def output_of(command: Command, homes: Sequence[str]) -> str:
    """Run a command in this process; return its exit code, what it printed, and what it noted."""
    from click.testing import CliRunner

    from tfperf.cli import main

    result = CliRunner().invoke(main, ["--no-pager", "--color", "never", *command.words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    text = f"exit code {result.exit_code}\n{result.stdout}\n--- stderr\n{result.stderr}"
    for place, home in enumerate(homes):
        text = text.replace(home, f"<{place}>")
    return text


def freeze(outputs: Path, homes: Sequence[str], command: Command) -> tuple[str, str]:
    """Write the output of a command into the folder, and return the name and the hash."""
    text = output_of(command, homes)
    (outputs / command.name).write_text(text, encoding="utf-8")
    return command.name, digest(text)


def digest(text: str) -> str:
    """Return a short hash of an output."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def copied_hosts(folder: Path) -> Path:
    """Write a run of many hosts, which are copies of a sample."""
    (sample,) = (ROOT / "sample_traces" / "input_bound").rglob("*.xplane.pb")
    data = sample.read_bytes()
    run = folder / "plugins" / "profile" / "2024_01_01_00_00_00"
    run.mkdir(parents=True)
    for number in range(COPIES):
        (run / f"worker-{number}.xplane.pb").write_bytes(data)
    return folder


def with_sentences(text: str, sentences: Mapping[str, str]) -> str:
    """Put new sentences for old ones, the longest first."""
    if not sentences:
        return text
    olds = sorted(sentences, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, olds)), lambda match: sentences[match[0]], text)


def differences(outputs: Path, frozen: Path, sentences: Mapping[str, str], names: Sequence[str]) -> int:
    """Print what differs, the first lines of each output; return how many outputs differ."""
    hashes = json.loads(frozen.read_text("utf-8")) if frozen.is_file() else {}
    changed = 0
    for name in names:
        new = (outputs / name).read_text("utf-8")
        if hashes:
            if hashes.get(name) != digest(new):
                changed += 1
                print(name)
            continue
        path = frozen / name
        old = with_sentences(path.read_text("utf-8"), sentences) if path.is_file() else ""
        if (old.split() != new.split()) if sentences else (old != new):
            changed += 1
            lines = list(unified_diff(old.splitlines(), new.splitlines(), name, name, lineterm="", n=0))
            print("\n".join(line[:300] for line in lines[:40]))
    return changed


def main() -> int:
    """Write outputs and hashes; return 1 if they differ from frozen ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--sentences", type=Path)
    parser.add_argument("--only", default="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    outputs: Path = arguments.outputs
    outputs.mkdir(parents=True, exist_ok=True)
    os.environ |= {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    with tempfile.TemporaryDirectory() as folder:
        copies = copied_hosts(Path(folder) / "copies")
        wanted = [command for command in commands(copies) if fnmatch(command.name, arguments.only)]
        homes = (str(copies), str(ROOT), str(SHARED), os.path.relpath(SHARED))
        with ProcessPoolExecutor(arguments.jobs) as pool:
            found = dict(pool.map(partial(freeze, outputs, homes), wanted, chunksize=8))
    if arguments.only == "*":
        (outputs / "hashes.json").write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{len(found):,} outputs")
    if arguments.compare is None:
        return 0
    sentences = json.loads(arguments.sentences.read_text("utf-8")) if arguments.sentences else {}
    changed = differences(outputs, arguments.compare, sentences, list(found))
    print(f"{changed:,} differ")
    return int(changed > 0)


if __name__ == "__main__":
    sys.exit(main())
