"""Measure the views of `tfperf tfprof` beside TensorFlow's own engine, on a graph of 100,000 nodes with 20 steps.

    python benchmarks/tfprof.py [--nodes N] [--steps N] [--rounds N] [--cache DIR]

Both read the same files and write the same text. Each runs in processes of its own; figures are medians. Of
TensorFlow's time, starting Python and importing TensorFlow are left out; of tfperf's, nothing is. Memory is the peak of
the process. Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import Bar, Job, bar_line, default_cache, run, say

VIEWS = ("scope", "graph", "op", "code")
TIME_BAR, MEMORY_BAR, HELP_BAR_S = 1 / 3, 1 / 2, 0.15
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
OPTIONS = {
    "max_depth": 10_000,
    "min_bytes": 1,
    "min_micros": 1,
    "order_by": "micros",
    "account_displayed_op_only": True,
    "select": ["micros", "bytes", "params", "float_ops"],
}

THEIRS = """
import json, sys, time
from pathlib import Path
from tensorflow.python.profiler import model_analyzer, option_builder
from tensorflow.python.util import _pywrap_tfprof as engine
folder, view, out = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
builder = option_builder.ProfileOptionBuilder(json.loads((folder / "options.json").read_text()))
options = option_builder.ProfileOptionBuilder({**option_builder.ProfileOptionBuilder().build(), **builder._options})
options = model_analyzer._build_options(options.with_file_output(out + ".txt").build())
began = time.perf_counter()
engine.NewProfiler((folder / "graph.pb").read_bytes(), (folder / "tfprof_log").read_bytes())
for path in sorted(folder.glob("run_metadata_*.pb")):
    engine.AddStep(int(path.stem.rpartition("_")[2]), b"", path.read_bytes(), b"")
engine.Profile(view.encode(), options.SerializeToString())
Path(out).write_text(str(time.perf_counter() - began))
"""


def node(number: int) -> tuple[str, str, list[int]]:
    """Return name, op and inputs of a node: layers of a hundred nodes in blocks, each node fed by some before it."""
    layer, place = divmod(number, 100)
    kind = ("MatMul", "Add", "Relu", "Mul", "VariableV2", "Identity", "Sum", "Conv2D")[place % 8]
    chooser = random.Random(number)
    inputs = [chooser.randrange(max(0, number - 150), number) for _ in range(min(number, chooser.choice((1, 2, 2, 3))))]
    return f"model/block_{layer // 20}/layer_{layer}/part_{place // 10}/{kind}_{place}", kind, inputs


def make(folder: Path, nodes: int, steps: int) -> None:
    """Write graph, records of steps, log and options."""
    from tensorflow.core.framework import graph_pb2
    from tensorflow.core.profiler import tfprof_log_pb2
    from tensorflow.core.protobuf import config_pb2

    everything = [node(number) for number in range(nodes)]
    graph, log = graph_pb2.GraphDef(), tfprof_log_pb2.OpLogProto()
    ids: dict[str, int] = {}
    for number, (name, kind, inputs) in enumerate(everything):
        made = graph.node.add(name=name, op=kind, input=[everything[source][0] for source in inputs])
        made.attr["_output_shapes"].list.shape.add().dim.add(size=64)
        entry = log.log_entries.add(name=name, float_ops=128 * (number % 7))
        if kind == "VariableV2":
            made.attr["shape"].shape.dim.add(size=4096)
            entry.types.append("_trainable_variables")
        for file, line in (("train.py", 10), ("model.py", number // 2000), ("layers.py", number // 100), ("nn.py", 7)):
            for depth in range(4):
                frame = f"{file[:-3]}_{depth}"
                entry.code_def.traces.add(
                    file_id=ids.setdefault(f"project/{file}", len(ids) + 1),
                    function_id=ids.setdefault(frame, len(ids) + 1),
                    lineno=line + depth,
                )
    log.id_to_string.update({number: text for text, number in ids.items()})
    (folder / "graph.pb").write_bytes(graph.SerializeToString())
    (folder / "tfprof_log").write_bytes(log.SerializeToString())
    for step in range(steps):
        chooser, recorded, now = random.Random(step), config_pb2.RunMetadata(), 1_700_000_000_000_000
        on_cpu = recorded.step_stats.dev_stats.add(device=CPU)
        on_gpu = recorded.step_stats.dev_stats.add(device=GPU)
        streams = recorded.step_stats.dev_stats.add(device="/device:GPU:0/stream:all")
        for number, (name, _, _) in enumerate(everything):
            took = chooser.randrange(1, 50)
            stats = (on_gpu if number % 3 else on_cpu).node_stats.add(
                node_name=name, all_start_micros=now, op_end_rel_micros=took, all_end_rel_micros=took + 1
            )
            stats.timeline_label = f"{name} = Kernel()"
            stats.memory.add(allocator_name="gpu", total_bytes=256, peak_bytes=256, live_bytes=256)
            description = stats.output.add().tensor_description
            description.allocation_description.requested_bytes = 256
            if number % 3:
                streams.node_stats.add(
                    node_name=f"{name}:Kernel", all_start_micros=now + took, op_end_rel_micros=took // 2 + 1
                )
            now += took
        (folder / f"run_metadata_{step}.pb").write_bytes(recorded.SerializeToString())
    (folder / "options.json").write_text(json.dumps(OPTIONS))


def figures(folder: Path, view: str, rounds: int) -> Iterator[tuple[str, float, float]]:
    """Yield name, seconds and megabytes of both, and compare what they wrote."""
    taken: dict[str, list[tuple[float, float]]] = {"TensorFlow": [], "tfperf": []}
    for turn in range(rounds):
        say(f"round {turn + 1} of {rounds}: {view}")
        with tempfile.TemporaryDirectory(prefix="run-") as at:
            out, places = Path(at, "out"), [Path(at, "theirs"), Path(at, "ours")]
            for place in places:
                place.mkdir()
            theirs = [sys.executable, "-c", THEIRS, str(folder), view, str(out)]
            sample = run(Job("100,000 nodes", "TensorFlow", ()), theirs, places[0])
            taken["TensorFlow"].append((float(out.read_text()), sample.peak_mb))
            ours = [sys.executable, "-m", "tfperf", "tfprof", view, str(folder), "-c", str(folder / "options.json")]
            ours += ["--format", "tfprof", "-o", f"file={out}.ours"]
            sample = run(Job("100,000 nodes", "tfperf", ()), ours, places[1])
            taken["tfperf"].append((sample.wall_s, sample.peak_mb))
            compare(view, Path(f"{out}.txt"), Path(f"{out}.ours"))
    for name, samples in taken.items():
        yield name, *(statistics.median(column) for column in zip(*samples, strict=True))


def compare(view: str, theirs: Path, ours: Path) -> None:
    """Exit unless both wrote the same rows, whatever the order of equal ones."""
    one, other = (sorted(path.read_text().partition("Profile:")[2].splitlines()) for path in (theirs, ours))
    if one != other:
        different = sum(line != match for line, match in zip(one, other, strict=False)) + abs(len(one) - len(other))
        sys.exit(f"{view}: {different:,} of {len(one):,} rows differ from TensorFlow's")


def main() -> int:
    """Measure all views; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1, help="TensorFlow takes minutes for each view")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="folder for the files (%(default)s)")
    given = parser.parse_args()
    folder = given.cache / f"tfprof-{given.nodes}-{given.steps}"
    if not (folder / "options.json").exists():
        say(f"making a graph of {given.nodes:,} nodes with {given.steps} steps")
        folder.mkdir(parents=True, exist_ok=True)
        make(folder, given.nodes, given.steps)
    bars = []
    for view in VIEWS:
        (_, their_s, their_mb), (_, our_s, our_mb) = figures(folder, view, given.rounds)
        print(f"{view:6} TensorFlow {their_s:6.2f} s {their_mb:6.0f} MB   tfperf {our_s:6.2f} s {our_mb:6.0f} MB")
        bars.append(Bar(f"of TensorFlow's time for the {view} view", our_s / their_s, TIME_BAR))
        bars.append(Bar(f"of its memory for the {view} view", our_mb / their_mb, MEMORY_BAR))
    command = [sys.executable, "-m", "tfperf", "tfprof", "--help"]
    taken = []
    for _ in range(10):
        with tempfile.TemporaryDirectory(prefix="run-") as at:
            taken.append(run(Job("", "tfperf", ()), command, Path(at)).wall_s)
    bars.append(Bar("for tfperf tfprof --help", statistics.median(taken), HELP_BAR_S, " s"))
    print("\n".join(map(bar_line, bars)))
    return 0 if all(bar.held for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
