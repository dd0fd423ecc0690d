"""Compare tfperf with what TensorFlow itself concluded from the same captures.

    python benchmarks/parity.py FOLDER

FOLDER holds captures in any depth: a folder with one `*.xplane.pb` and a `reference/` folder beside it, which holds
`overview.json`, `steps.csv`, `host_input.csv`, `ops.csv` and, with a GPU, `kernels.csv`. Prints matched/total per
column, and exits with 1 if anything differs.

One kind of row is omitted: of a device plane without any event TensorFlow lists the idle time as 9223372036854.775
microseconds, an underflow. tfperf has no such row, which is checked instead, and ranks are counted without it.
"""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tfperf
from parity_kernels import check_kernels
from tfperf.sections.ops.analysis import OpTable
from tfperf.sections.overview.summary import Summary, share_class

STEP_COLUMNS = {
    "step_number": "step",
    "step_time_ms": "step_time_ms",
    "unknown_time_ms": "all_others_ms",
    "host_wait_input_ms": "input_wait_ms",
    "host_to_device_ms": "host_to_device_ms",
    "output_ms": "output_ms",
    "device_compute_ms": "device_compute_ms",
    "device_to_device_ms": "device_to_device_ms",
    "device_collectives_ms": "device_collectives_ms",
    "host_compute_ms": "host_compute_ms",
    "host_prepare_ms": "kernel_launch_ms",
    "host_compile_ms": "compilation_ms",
}
TOLERANCE_MS = 1e-3
OP_COLUMNS = (
    "total_time_in_us",
    "avg_time_in_us",
    "total_self_time_in_us",
    "avg_self_time_in_us",
    "gpu_tensorcore_utilization",
)
TOLERANCE_US = 1e-6
UNDERFLOW_US = float(2**63 // 10**6)
INPUT_COLUMNS = {
    "count": "count",
    "time_in_ms": "total_ms",
    "time_in_percent": "total_percent",
    "self_time_in_ms": "self_ms",
    "self_time_in_percent": "self_percent",
}
INPUT_CLASSES = {
    "Demanded file read": "on_demand_read",
    "Advanced file read": "advanced_read",
    "Preprocessing": "preprocessing",
    "Enqueue": "enqueue",
    "Unknown": "other",
}
CLASSES = {"HIGHLY": "high", "MODERATELY": "moderate", "POTENTIALLY": "possible", "NOT": "none"}

Check = tuple[str, bool, str]
"""Column, whether it matched, and the values for the message if it did not."""


def same(value: float | None, expected: float, tolerance: float) -> bool:
    """Tell whether two numbers agree; an expected NaN or denormal stands for nothing."""
    if math.isnan(expected) or 0 < abs(expected) < 1e-300:
        expected = 0.0
    return abs((value or 0.0) - expected) <= tolerance


def check_steps(analysis: tfperf.Analysis, rows: list[dict[str, str]]) -> Iterator[Check]:
    """Compare every step row in every category."""
    columns: dict[str, Any] = analysis["steps"].columns()
    count = len(columns["step"])
    yield "number of steps", count == len(rows), f"{count}, expected {len(rows)}"
    for index, row in enumerate(rows):
        for theirs, ours in STEP_COLUMNS.items():
            value = columns[ours][index] if index < count else math.nan
            yield f"step {theirs}", same(value, float(row[theirs]), TOLERANCE_MS), f"{value}, expected {row[theirs]}"


def check_overview(analysis: tfperf.Analysis, expected: dict[str, Any]) -> Iterator[Check]:
    """Compare averages, percentages, classes, precision and the device."""
    overview = analysis["overview"]
    for key, value in expected["step_time_ms"].items():
        computed = getattr(overview.step_time_ms, key) if overview.step_time_ms else 0.0
        yield f"overview {key}", same(computed, value, TOLERANCE_MS), f"{computed}, expected {value}"
    yield from check_verdict(overview, expected)
    environment = analysis.hosts[0]["environment"]
    # TensorFlow counts devices without events too.
    planes = environment.device_count + environment.idle_devices
    yield "device core count", planes == expected["device_core_count"], f"{planes}"
    kind = "GPU" if planes else "CPU"
    yield "device type", kind == expected["device_type"], kind


def check_verdict(overview: Summary, expected: dict[str, Any]) -> Iterator[Check]:
    """Compare the classes, and the percentages that the sentences print with one digit."""
    statement, launch = expected["statement"], expected["kernel_launch"]
    word = re.search(r"program is (\w+) input-bound", statement)
    wanted = CLASSES[word.group(1)] if word else "unknown"
    yield "input class", overview.input_class == wanted, f"{overview.input_class}, expected {wanted}"
    number = re.search(r"([\d.]+)% of the total step time", statement)
    if number:
        key = "all_others" if wanted == "possible" else "input"
        text = f"{overview.percent[key]:.1f}"
        yield "input percent in the sentence", text == number.group(1), f"{text}, expected {number.group(1)}"
    percent = overview.percent.get("kernel_launch", 0.0)
    number = re.search(r"([\d.]+) ?%", launch)
    if number:  # an empty sentence was not recorded, or there was nothing to say: it tells nothing
        yield "kernel launch class", share_class(percent) != "none", f"{percent} %: {launch!r}"
        yield "kernel launch percent", f"{percent:.1f}" == number.group(1), f"{percent}, expected {number.group(1)}"


def check_ops(analysis: tfperf.Analysis, expected: dict[str, Any]) -> Iterator[Check]:
    """Compare precision, op placement and the ten device ops with the largest self time."""
    steps, ops = analysis["steps"], analysis["ops"]
    total = steps.compute_16_ps + steps.compute_32_ps
    for bits, part in ((16, steps.compute_16_ps), (32, steps.compute_32_ps)):
        percent, wanted = 100.0 * part / total if total else 0.0, expected[f"device_compute_{bits}bit_percent"]
        yield f"device compute {bits}-bit percent", same(percent, wanted, 1e-6), f"{percent}, expected {wanted}"
    device = int(ops.device.occurrences.sum())
    host = int(ops.host.occurrences.sum())
    for side, count in (("host", host), ("device", device)):
        percent = 100.0 * count / (host + device) if host + device else 0.0
        wanted = expected[f"{side}_tf_op_percent"]
        yield f"op placement {side} percent", same(percent, wanted, 1e-6), f"{percent}, expected {wanted}"
    rows = expected["top_device_ops"]
    names, types = ops.device.names, ops.device.types
    columns: dict[str, Any] = ops.device.columns()
    shares = [percent / 100 for percent in columns["self_percent"]]
    cumulative = 0.0
    for index, row in enumerate(rows):
        share = shares[index] if index < len(shares) else math.nan
        cumulative += share
        yield (
            "top-10 op name and order",
            names[index : index + 1] == (row["name"],),
            f"{names[index : index + 1]}, expected {row['name']}",
        )
        yield (
            "top-10 op type",
            types[index : index + 1] == (row["category"],),
            f"{types[index : index + 1]}, expected {row['category']}",
        )
        yield "top-10 op fraction", same(share, row["self_time_fraction"], 1e-9), f"{share}"
        yield "top-10 op cumulative", same(cumulative, row["cumulative_time_fraction"], 1e-9), f"{cumulative}"
    yield "number of top ops", min(len(names), 10) == len(rows), f"{len(names)}, expected {len(rows)}"


def op_rows(table: OpTable, side: str) -> list[dict[str, Any]]:
    """Return one side as TensorFlow lists it, with a row for its idle time."""
    columns: dict[str, list[Any]] = table.columns()
    rows = [
        {
            "host_or_device": side,
            "op_type": columns["op_type"][at],
            "op_name": columns["op_name"][at],
            "occurrences": columns["occurrences"][at],
            "total_time_in_us": 1e3 * columns["total_ms"][at],
            "avg_time_in_us": 1e3 * columns["average_ms"][at],
            "total_self_time_in_us": 1e3 * columns["self_ms"][at],
            "avg_self_time_in_us": 1e3 * columns["average_self_ms"][at],
            "is_eager": columns["execution"][at] == "eager",
            "gpu_tensorcore_utilization": (columns["tensor_core_percent"][at] or 0.0) / 100,
        }
        for at in range(len(table))
    ]
    idle_us = (table.idle_ps or 0) / 1e6
    times = dict.fromkeys(OP_COLUMNS, 0.0) | {"total_time_in_us": idle_us, "total_self_time_in_us": idle_us}
    idle = {"host_or_device": side, "op_type": "IDLE", "op_name": "IDLE", "occurrences": 0, "is_eager": False}
    return sorted([*rows, idle | times], key=lambda row: (-row["total_self_time_in_us"], row["op_name"]))


def check_op_rows(analysis: tfperf.Analysis, rows: list[dict[str, str]]) -> Iterator[Check]:
    """Compare every row of the table of ops, idle time too, in its order."""
    ops, omitted = analysis["ops"], 0
    if any(row["op_type"] == "IDLE" and float(row["total_time_in_us"]) > UNDERFLOW_US / 2 for row in rows):
        yield "no IDLE row of an empty device", not ops.device.places, "a device"
        omitted = len(rows)
        rows = [row for row in rows if row["host_or_device"] != "Device"]
        omitted -= len(rows)
    computed = [*(op_rows(ops.device, "Device") if ops.device.places else ()), *op_rows(ops.host, "Host")]
    yield "number of ops", len(computed) == len(rows), f"{len(computed)}, expected {len(rows)}"
    for index, row in enumerate(rows):
        ours: dict[str, Any] = computed[index] if index < len(computed) else {}
        rank = index + 1 + omitted
        yield "op rank", rank == int(row["rank"]), f"{row['op_name']}: {rank}, expected {row['rank']}"
        for key in ("host_or_device", "op_type", "op_name", "occurrences", "is_eager"):
            value = str(ours.get(key))
            yield f"op {key}", value == row[key], f"{row['op_name']}: {value}, expected {row[key]}"
        for key in OP_COLUMNS:
            agrees = ours.get(key) is not None and same(ours[key], float(row[key]), TOLERANCE_US)
            yield f"op {key}", agrees, f"{row['op_name']}: {ours.get(key)}, expected {row[key]}"


def check_input(analysis: tfperf.Analysis, rows: list[dict[str, str]]) -> Iterator[Check]:
    """Compare every row of the table of input ops, in its order."""
    columns: dict[str, list[Any]] = analysis["input"].columns()
    count = len(columns["op_name"])
    yield "number of input ops", count == len(rows), f"{count}, expected {len(rows)}"
    for index, row in enumerate(rows):
        computed = {key: values[index] if index < count else None for key, values in columns.items()}
        yield (
            "input op name and order",
            computed["op_name"] == row["op_name"],
            f"{computed['op_name']}, expected {row['op_name']}",
        )
        for theirs, ours in INPUT_COLUMNS.items():
            agrees = computed[ours] is not None and same(computed[ours], float(row[theirs]), 1e-6)
            yield f"input op {theirs}", agrees, f"{row['op_name']}: {computed[ours]}, expected {row[theirs]}"
        wanted = INPUT_CLASSES[row["category"]]
        yield "input op class", computed["part"] == wanted, f"{row['op_name']}: {computed['part']}, expected {wanted}"


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def compare(reference: Path) -> list[Check]:
    """Return all checks of one capture."""
    analysis = tfperf.load(reference.parent, attribution="tensorflow")
    expected = json.loads((reference / "overview.json").read_text())
    kernels = reference / "kernels.csv"
    return [
        *check_steps(analysis, read_rows(reference / "steps.csv")),
        *check_overview(analysis, expected),
        *check_ops(analysis, expected),
        *check_op_rows(analysis, read_rows(reference / "ops.csv")),
        *check_input(analysis, read_rows(reference / "host_input.csv")),
        *(check_kernels(analysis["kernels"], read_rows(kernels)) if kernels.exists() else ()),
    ]


def main(folder: Path) -> int:
    """Compare every capture below the folder; print matched/total per column."""
    references = sorted(path.parent for path in folder.rglob("reference/overview.json"))
    if not references:
        print(f"no reference/overview.json below {folder}", file=sys.stderr)
        return 1
    matched: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for reference in references:
        for column, agrees, detail in compare(reference):
            total[column] += 1
            matched[column] += agrees
            if not agrees:
                print(f"differs: {reference.parent.name}: {column}: {detail}", file=sys.stderr)
    print(f"{len(references)} captures, attribution tensorflow")
    for column in total:
        print(f"{column:32} {matched[column]:6}/{total[column]}")
    print(f"{'all':32} {matched.total():6}/{total.total()}")
    return 0 if matched == total else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
