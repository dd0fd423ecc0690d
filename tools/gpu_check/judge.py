"""Judge tfperf by what `run.py` brought back from a GPU.

    python tools/gpu_check/judge.py FOLDER [--logs FOLDER]

For each profile: is the built-in cause first, are all steps there, is the step as long as the program measured it, do
compute, copies and idle time of the device make up the wall time, are the copied bytes those of the program, are
products in the requested precision, are all rates below the peak of the device, and are all estimates at most as good
as the measured change. Prints a line for each, then a line for each question. --logs keeps the profiles as
logdirs, to look at and to take samples from.

Exit codes: 0 everything holds, 1 something does not.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

STEP_ERROR, SUM_ERROR, BYTES_ERROR, FLOPS_ERROR, RATIO_ERROR = 0.1, 0.02, 0.05, 0.1, 0.1
ADVISED = {
    "conv_tf32": {"unaligned_shapes"},
    "conv_bf16": {"unaligned_shapes"},
    "tiny_ops": {"eager_ops"},
    "new_shapes": {"compilation"},
    "input": {"python_between_steps"},
    "device_get": {"waiting_for_results", "fetch_results"},
    "waits": {"waiting_for_results", "device_sync"},
    "two_streams": {"numpy_conversion", "input_copy"},
    "transfers": {"numpy_conversion"},
}
"""Jobs whose second variant is the change that these causes advise."""


def main() -> int:
    """Judge all profiles of the folder; return 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    results = [json.loads(line) for line in (options.folder / "results.jsonl").read_text().splitlines()]
    answers: dict[str, list[bool]] = defaultdict(list)
    on_gpu = any(result.get("platform") == "gpu" for result in results)
    with tempfile.TemporaryDirectory() as temporary:
        logs = options.logs or Path(temporary)
        unpack(options.folder, logs)
        for result in results:
            if "variants" not in result:
                print(json.dumps({key: value for key, value in result.items() if key != "nvidia_smi"}))
                answers["job ran"].append("error" not in result)
                continue
            answers["job ran"].append(True)
            for place, (variant, facts) in enumerate(result["variants"].items()):
                if "error" in facts:
                    print(f"{result['job']}.{variant}: {facts['error']}")
                    answers["job ran"].append(False)
                    continue
                judged = place == 0 and result["cause"] is not None
                advised = ADVISED.get(result["job"], set()) if place == 0 else set()
                fixed = list(result["variants"].values())[1] if advised else facts
                expected = {result["cause"], *result["also"]} if judged else None
                for level in [level for level in facts["times"] if level != "unprofiled"]:
                    name = f"{result['job']}.{variant}.{level}"
                    if (logs / name).exists():
                        found = judge(logs / name, facts, level, expected, advised, fixed, on_gpu=on_gpu)
                        print(f"{name:32} {found.pop('said')}")
                        for question, (holds, figures) in found.items():
                            answers[question].append(holds)
                            print(f"    {'' if holds else 'WRONG '}{question}: {figures}")
    for question, holds in answers.items():
        print(f"{'PASS' if all(holds) else 'FAIL'}  {question}: {sum(holds)} of {len(holds)}")
    return 0 if all(map(all, answers.values())) else 1


def unpack(folder: Path, logs: Path) -> None:
    """Lay out each profile as a logdir of its own."""
    for path in sorted(folder.glob("profiles-*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                target = logs / member.name.removesuffix(".xplane.pb.gz") / "plugins" / "profile" / "run"
                target.mkdir(parents=True, exist_ok=True)
                if file is not None:
                    (target / "gpu.xplane.pb").write_bytes(gzip.decompress(file.read()))


def judge(  # noqa: PLR0913  (what is known of a variant)
    logdir: Path,
    facts: dict[str, Any],
    level: str,
    expected: set[str] | None,
    advised: set[str],
    fixed: dict[str, Any],
    *,
    on_gpu: bool,
) -> dict[str, Any]:
    """Return by question whether it holds and the figures, and under `said` the headline.

    A processor copies nothing, and has no matrix units.

    `expected` are the codes of the cause that is built in; the empty one: no problem. None: another variant, of which
    only numbers are judged. `advised` are codes of causes whose advice the variant `fixed` follows.
    """
    command = [sys.executable, "-m", "tfperf", "analyze", str(logdir), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"said": done.stderr.strip(), "is read": (False, f"exit code {done.returncode}")}
    report = json.loads(done.stdout)
    tables = {name: table for part in report["sections"].values() for name, table in part["tables"].items()}
    summary, times = report["summary"], facts["times"]
    overhead = (times[level]["median"] / times["unprofiled"]["median"] - 1) * 100
    stated = [row["overhead_percent"] for row in rows(tables, "environment")]
    said = f"{report['diagnosis']['headline']} (overhead measured {overhead:.0f} %, stated {stated})"
    found: dict[str, Any] = {"said": said}
    if expected is not None:
        codes = [cause["code"] for cause in report["diagnosis"]["causes"]]
        # The wait for each result is a true cause of all loops that wait. Without Python, it has no name in the trace.
        waits = (
            {"waiting_for_results", *(["python_between_steps"] if level == "lean" else [])} if facts["waits"] else ()
        )
        others = [code for code in codes if code not in waits or code in expected]
        holds = others[0] in expected if others else "" in expected
        # Memory pressure costs no time, so all causes that do come before it.
        found["first cause"] = holds or "memory_pressure" in expected & set(codes), f"{codes[:4]}, built in: {expected}"
    estimates = [
        (cause["actions"][0]["step_ms"], 100 * cause["cost_ms"]["high"] / cause["cost_percent"]["high"])
        for cause in report["diagnosis"]["causes"]
        if cause["code"] in advised and cause["actions"] and cause["actions"][0]["step_ms"]["low"]
    ]
    if estimates and "times" in fixed:
        after, now = estimates[0]
        low, high = after["low"] / now, after["high"] / now
        ratio = fixed["times"]["unprofiled"]["mean"] / times["unprofiled"]["mean"]
        found["estimate"] = ratio <= high + RATIO_ERROR, f"{low:.2f} to {high:.2f} of the step, measured {ratio:.2f}"
    steps, measured = times[level]["steps"], times[level]["mean"]
    found["steps"] = abs(summary["step_count"] - steps) <= 1, f"{summary['step_count']} of {steps}"
    step_ms = summary["wall_step_ms"]
    found["step time"] = close(step_ms, measured, STEP_ERROR), f"{step_ms} ms of {measured:.3f}"
    for row in rows(tables, "device_time"):
        parts = row["compute_ms"] + row["copies_alone_ms"] + row["idle_ms"]
        found["device adds up"] = close(parts, row["wall_ms"], SUM_ERROR), f"{parts:.3f} of {row['wall_ms']:.3f} ms"
    for key, kind in (("to_device", "H2D"), ("to_host", "D2H")):
        if facts[key] and on_gpu:
            copied = sum(row["total_bytes"] or 0 for row in rows(tables, "copies") if kind in row["kind"])
            holds = close(copied, facts[key] * steps, BYTES_ERROR)
            found[f"bytes {key}"] = holds, f"{copied:,} of {facts[key] * steps:,}"
    ops = rows(tables, "hlo_ops")
    if facts["flops"] and ops:
        counted = sum((row["matrix_flops"] or 0) * row["runs"] for row in ops) / steps
        found["flops of products"] = (
            close(counted, facts["flops"], FLOPS_ERROR),
            f"{counted:.4g} of {facts['flops']:.4g} per step",
        )
    peaks = [row[key] for row in ops for key in ("compute_percent", "memory_percent") if row[key] is not None]
    if peaks:
        found["no rate above the peak"] = max(peaks) <= 100, f"{max(peaks):.0f} % at most"
    if facts["precision"] and ops and on_gpu:
        products = {row["precision"] for row in ops if row["matrix_flops"]}
        found["precision"] = products <= {facts["precision"]}, f"{products}, asked for {facts['precision']}"
    return found


def rows(tables: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the rows of a table, none if the report lacks it."""
    table: list[dict[str, Any]] = (tables.get(name) or {}).get("rows", [])
    return table


def close(value: float | None, truth: float, share: float) -> bool:
    """Tell whether a value differs from the truth by at most a share of it."""
    return value is not None and abs(value - truth) <= share * truth


if __name__ == "__main__":
    sys.exit(main())
