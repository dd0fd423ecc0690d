"""Compare what tfperf counts for programs of XLA with what XLA and XProf count.

    python benchmarks/hlo_parity.py FOLDER

FOLDER holds references: `captures/`, and in `cost/` the files `module_totals.csv` (XLA's totals of whole
modules), `instructions.csv` (single instructions in both countings, and XProf's numbers), `probe_ops.csv` and
`probe_ops.xplane.pb` (programs of one instruction). Traces that the tables name are looked for beside FOLDER too; the
rows of others are counted as absent. Prints matched/total, and exits with 1 if anything differs without a reason.

XProf is no judge of flops where it counts clock cycles; what it says is compared by opcode, and every kind of row in
which it differs is listed with the reason.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from pathlib import Path

from msgspec.structs import replace

from tfperf.formats.hlo.cost import Cost, ModuleCost, cost_of
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.model import Module
from tfperf.trace.read import read_host

Row = dict[str, str]
Programs = dict[tuple[str, int], bytes]
ELEMENTWISE = "XProf counts clock cycles of elementwise work and of concatenations, not flops"
MATRIX_OPCODES = ("dot", "convolution")
FLOAT_32 = 1e-6
"""XLA adds up whole modules in 32-bit floats, which hold seven digits."""
IN_PLACE = (
    "the reference counts the whole array of a scatter inside a fusion; XLA updates it in place, and with the whole "
    "array such fusions of an H200 had 250 times the peak bandwidth"
)
ONE_TURN = '{"known_trip_count":{"n":"1"}}'
REASONS = {
    ("custom-call", "flops"): "XProf counts 0 for library calls that it does not know; gradients with strides wrongly",
    ("custom-call", "bytes"): "XProf counts 0 for library calls that it does not know, or the workspace too",
    ("concatenate", "flops"): "XProf counts 6 to 400 cycles per element of a concatenation, which computes nothing",
    ("reduce-scatter", "flops"): "XLA counts no flops of a reduce-scatter, XProf clock cycles",
    ("reduce", "bytes"): "XProf counts the initial value of a reduction once for each result",
    ("all-gather", "bytes"): "XProf counts what all ranks send",
    ("reduce-scatter", "bytes"): "XProf counts what all ranks send",
    ("all-to-all", "bytes"): "XProf counts what all ranks send",
    ("fusion", "bytes"): "XProf counts small constants and gathers inside fusions otherwise",
    ("while", "bytes"): "a loop holds fusions, in which XProf counts small constants otherwise",
    ("call", "bytes"): "it calls fusions, in which XProf counts small constants otherwise",
}


def programs_of(path: Path) -> dict[int, bytes]:
    """Return the programs in a trace, by program id."""
    return read_host(path).hlo_protos or {}


def find_programs(folder: Path, names: set[str]) -> Programs:
    """Return the programs of captures of these names, by the name of the capture and the program id."""
    near = folder.parent, folder.parent.parent
    paths = [*folder.glob("captures/*/*.xplane.pb"), *(path for each in near for path in each.glob("*/*/*.xplane.pb"))]
    return {
        (path.parent.name, key): data
        for path in paths
        if path.parent.name in names
        for key, data in programs_of(path).items()
    }


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def in_xla(cost: Cost) -> tuple[int, int, int]:
    """Return flops, transcendentals and bytes as XLA adds them up: -1 for each that it does not know."""
    work = cost.work
    return work.flops - work.unknown_flops, work.transcendentals, work.bytes - work.unknown_bytes


class Tally:
    """What matched of what."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self.matched: Counter[str] = Counter()
        self.reasons: dict[str, list[str]] = defaultdict(list)

    def add(self, kind: str, row: str, *, agrees: bool, reason: str = "", found: object = "") -> None:
        """Count a comparison; one that differs without a reason is printed at once."""
        self.total[kind] += 1
        self.matched[kind] += agrees
        if not agrees and reason:
            self.reasons[f"{kind}: {reason}"].append(row)
        elif not agrees:
            print(f"differs: {kind}: {row}: {found}", file=sys.stderr)

    def show(self) -> int:
        """Print it; return how many differ without a reason."""
        for kind in self.total:
            print(f"{kind:44} {self.matched[kind]:6}/{self.total[kind]}")
        for reason, rows in self.reasons.items():
            names = ", ".join(dict.fromkeys(rows))
            print(f"\n{reason} ({len(rows)} rows)\n  {names[:400]}{' ...' if len(names) > 400 else ''}")
        return self.total.total() - self.matched.total() - sum(map(len, self.reasons.values()))


def check_totals(rows: list[Row], programs: Programs, tally: Tally) -> None:
    """Compare whole modules with XLA's own count."""
    for row in rows:
        data = programs.get((row["trace"], int(row["program_id"])))
        name = f"{row['trace']} {row['module']}"
        if data is None:
            tally.add("modules whose trace is here", name, agrees=False, reason="its trace is not here")
            continue
        tally.add("modules whose trace is here", name, agrees=True)
        found = in_xla(cost_of(read_proto(data), "xla").entry)
        for key, value in zip(("flops", "transcendentals", "bytes_accessed"), found, strict=True):
            wanted = float(row[f"xla_{key}"])
            agrees = value == wanted or (wanted > 1 << 24 and abs(value - wanted) <= FLOAT_32 * wanted)
            tally.add(f"modules, XLA: {key}", name, agrees=agrees, found=f"{value}, expected {wanted}")


def with_single_turns(module: Module) -> Module:
    """Return the module with loops that run once: so the references count them."""
    computations = []
    for each in module.computations:
        instructions = [replace(i, backend_config=ONE_TURN) if i.opcode == "while" else i for i in each.instructions]
        computations.append(replace(each, instructions=tuple(instructions)))
    return replace(module, computations=tuple(computations))


def number(value: int | None) -> int:
    """Return a count as the tables write it: -1 is unknown."""
    return -1 if value is None else value


def both_countings(module: Module) -> tuple[ModuleCost, ModuleCost]:
    """Return XLA's counting and the corrected one, loops once in both."""
    return cost_of(module, "xla"), cost_of(with_single_turns(module))


def compare_row(row: Row, name: str, costs: tuple[ModuleCost, ModuleCost], tally: Tally, kind: str) -> None:
    """Compare an instruction with the references of both countings, and with XProf."""
    own, once = costs[0].by_name[name], costs[1].by_name[name]
    label = f"{row.get('trace', 'probe')} {row.get('probe') or row['instruction']}"
    found = {
        "flops": number(own.flops),
        "transcendentals": own.work.transcendentals,
        "bytes": number(own.bytes),
        "tool_flops": number(once.flops),
        "tool_bytes": number(once.bytes),
        "tool_matrix_flops": once.work.matrix_flops,
    }
    for key, value in found.items():
        if key in row:
            wanted = int(row[key])
            part = f"corrected: {key.removeprefix('tool_')}" if key.startswith("tool_") else f"XLA: {key}"
            scatters = key == "tool_bytes" and value < wanted and ("scatter" in label or row["opcode"] == "while")
            reason = IN_PLACE if scatters else ""
            tally.add(f"{kind}, {part}", label, agrees=value == wanted, reason=reason, found=f"{value}, not {wanted}")
    compare_xprof(row, once, label, tally, kind)


def compare_xprof(row: Row, cost: Cost, label: str, tally: Tally, kind: str) -> None:
    """Compare an instruction with what XProf says."""
    opcode = row["opcode"].split()[0]
    for key, value in (("flops", cost.flops or 0), ("bytes", cost.bytes or 0)):
        wanted = float(row[f"xprof_{key}"] or 0)
        agrees = abs(wanted - value) <= max(1.0, 1e-5 * abs(value))
        reason = REASONS.get((opcode, key), "")
        if not reason and key == "flops" and opcode not in MATRIX_OPCODES:
            reason = ELEMENTWISE
        tally.add(f"{kind}, XProf: {key}", label, agrees=agrees, reason=reason, found=f"{value}, XProf {wanted}")


def check_instructions(rows: list[Row], programs: Programs, tally: Tally) -> None:
    """Compare single instructions of real programs."""
    costs: dict[tuple[str, int], tuple[ModuleCost, ModuleCost]] = {}
    for row in rows:
        key = row["trace"], int(row["program_id"])
        if key not in programs:
            tally.add("instructions whose trace is here", row["trace"], agrees=False, reason="its trace is not here")
            continue
        tally.add("instructions whose trace is here", row["trace"], agrees=True)
        if key not in costs:
            costs[key] = both_countings(read_proto(programs[key]))
        compare_row(row, row["instruction"], costs[key], tally, "instructions")


def check_probes(folder: Path, tally: Tally) -> None:
    """Compare programs of one instruction, which is called `r`; XLA counted their modules."""
    programs = programs_of(folder / "cost" / "probe_ops.xplane.pb")
    for row in read_rows(folder / "cost" / "probe_ops.csv"):
        costs = both_countings(read_proto(programs[int(row["program_id"])]))
        compare_row(row, "r", costs, tally, "probes")
        if row["xla_module_flops"]:
            found = in_xla(costs[0].entry)
            wanted = tuple(int(float(row[f"xla_module_{key}"])) for key in ("flops", "transcendentals", "bytes"))
            tally.add("probes, XLA's own count", row["probe"], agrees=found == wanted, found=f"{found}, not {wanted}")


def main(folder: Path) -> int:
    """Compare everything below the folder; print matched/total for each kind."""
    if not (folder / "cost" / "module_totals.csv").exists():
        print(f"no cost/module_totals.csv in {folder}", file=sys.stderr)
        return 1
    tally, totals = Tally(), read_rows(folder / "cost" / "module_totals.csv")
    programs = find_programs(folder, {row["trace"] for row in totals})
    check_totals(totals, programs, tally)
    check_instructions(read_rows(folder / "cost" / "instructions.csv"), programs, tally)
    check_probes(folder, tally)
    return 1 if tally.show() else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
