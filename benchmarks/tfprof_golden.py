"""Compare the views of tfprof with what TensorFlow's own engine wrote: how many reports are the same, to the letter.

python benchmarks/tfprof_golden.py FOLDER

FOLDER holds `golden/tfprof_NAME.jsonl` (one report a line: its view, options and lines) and for each NAME a folder
with `graph.pb`, RunMetadata files (`run_metadata*.pb`, or in `run_meta/`), `tfprof_log` and `profile.pb`. Each report
is made twice: from graph, runs and log, and from the profile. `exact` counts reports whose lines are the same in the
same order; `as a set` those with the same lines in any order, because the reference sorts equal rows of the op and
code view as it happens. The exit code is 1 if a report differs as a set.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import Options, options_from
from tfperf.models.tfprof.reference import ModelText, op_rows, tree_rows
from tfperf.models.tfprof.sources import Sources, read_model, steps_of
from tfperf.models.tfprof.views import show_ops, show_tree

WAYS = ("graph", "profile")


def main() -> int:
    """Print a table of matches; return 1 if a report differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--differences", action="store_true", help="print what differs, a line each")
    arguments = parser.parse_args()
    records = sorted((arguments.folder / "golden").glob("tfprof_*.jsonl"))
    if not records:
        parser.error(f"no golden/tfprof_*.jsonl in {arguments.folder}")
    print(f"{'set':<12} {'from':<8} {'view':<6} {'reports':>8} {'exact':>6} {'as a set':>9}")
    everything: Counter[str] = Counter()
    for file in records:
        name = file.stem.removeprefix("tfprof_")
        for way in WAYS:
            for view, counts in compared(file, read(arguments.folder / name, way), show=arguments.differences).items():
                print(f"{name:<12} {way:<8} {view:<6} {counts['all']:>8} {counts['exact']:>6} {counts['as a set']:>9}")
                everything.update(counts)
    print(f"{'all':<28} {everything['all']:>8} {everything['exact']:>6} {everything['as a set']:>9}")
    return int(everything["as a set"] < everything["all"])


def read(folder: Path, way: str) -> Model:
    """Return the model of a set, from its graph, runs and log, or from its profile."""
    if way == "profile":
        return read_model(Sources(profile=folder / "profile.pb"))
    runs = "run_meta/*.pb" if (folder / "run_meta").is_dir() else "run_metadata*.pb"
    steps = steps_of([str(folder / runs)])
    return read_model(Sources(graph=folder / "graph.pb", run_metadata=steps, op_log=folder / "tfprof_log"))


def compared(file: Path, model: Model, *, show: bool) -> dict[str, Counter[str]]:
    """Return for each view how many reports there are, and how many are the same."""
    counts: dict[str, Counter[str]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        record: dict[str, Any] = json.loads(line)
        written = [*lines(model, record["view"], options_from(record["options"]))]
        of_view = counts.setdefault(record["view"], Counter())
        is_same = sorted(written) == sorted(record["lines"])
        of_view.update({"all": 1, "exact": int(written == record["lines"]), "as a set": int(is_same)})
        if show and not is_same:
            print(f"{file.name}:{number}: {record['view']} {record['options']}", file=sys.stderr)
    return counts


def lines(model: Model, view: Any, options: Options) -> Iterator[str]:
    """Yield a report, with the reference's own mistake about the shapes of inputs."""
    text = ModelText(model, quirks=True)
    if view == "op":
        return op_rows(show_ops(model, options), options, text, model.values(options.step))
    return tree_rows(show_tree(model, view, options), view, options, text)


if __name__ == "__main__":
    sys.exit(main())
