"""XLA programs to check: the program in a file, or the programs that ran in a profile with their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tfperf.analysis.load import Analysis, load
from tfperf.base.errors import TraceNotFoundError
from tfperf.base.files import TRACE_SUFFIXES
from tfperf.base.units import counted
from tfperf.formats.hlo import hlo_text as read
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.messages import HLO_PROTO
from tfperf.formats.hlo.model import Module, ProgramError
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.formats.wire.other_formats import is_graph, is_meta_graph, is_saved_model, is_text
from tfperf.models.linter.rule import Device
from tfperf.models.linter.rules.reductions import NamedOp
from tfperf.trace.logdir import find_runs
from tfperf.trace.read import read_host

_HEAD = 1 << 16
_GRAPHS = ("saved_model.pb", "saved_model.pbtxt", "graph.pb")
_OF_CPU = "The programs ran on a CPU, so shares of time are upper bounds over all HLO ops."
_COMPILED = (
    "Compiled programs are checked against the rules that apply to them; other rules (fusion, reshapes) require the "
    "graph, for example from a SavedModel."
)


_NAMES_ONLY = (
    "The profile has no XLA programs that ran, so ops were checked only by name: pass the SavedModel or graph for "
    "all rules."
)


class Programs(Struct, frozen=True, kw_only=True):
    """Programs, the share of each instruction in the device time (0 to 1) by program and name, and notes.

    `named_ops` are ops of a profile that are in no program.
    """

    modules: dict[int, Module]
    """Programs by the id in events."""
    shares: dict[tuple[int, str], float] = {}
    device: Device | None = None
    """Device of the profile; None for a CPU or a file, which does not name its device."""
    named_ops: tuple[NamedOp, ...] = ()
    notes: tuple[str, ...] = (_COMPILED,)


def is_profile(path: Path) -> bool:
    """Return whether a path is a profile and not a model; raises TfprofInputError for a folder with neither."""
    if not path.is_dir():
        return path.name.endswith(TRACE_SUFFIXES)
    if any((path / name).is_file() for name in _GRAPHS):
        return False
    try:
        return bool(find_runs(path))
    except TraceNotFoundError as error:
        raise TfprofInputError(f"{path} has no saved_model.pb or graph.pb, and {error}") from error


def program_of(path: Path) -> Programs | None:
    """Return the program in a file (HloProto, HloModuleProto, HloSnapshot or text); None for a graph or folder.

    Raises ProgramError for XLA text that cannot be parsed.
    """
    if path.is_dir():
        return None
    data = InputFile(path, "program of XLA or GraphDef").data
    head = data[:_HEAD]
    if read.is_text(head):
        return Programs(modules={0: read.read_program(path)})
    if is_text(head) or is_saved_model(head) or is_meta_graph(head) or is_graph(head):
        return None
    try:
        return Programs(modules={0: read_proto(data)})
    except ProgramError:
        return None


def programs_that_ran(
    path: Path, *, run: str | Sequence[str] | None = None, device: Device | None = None, by_name: bool = True
) -> Programs:
    """Return the programs with events in a run (default: the newest), and (`by_name`) ops outside programs.

    Only rules for TPUs check names, so there are no such ops if `device`, by default that of the profile, is a GPU.
    Raises TfperfError without a program and without an op in a scope that a rule checks.
    """
    analysis = load(path, run=run, sections=("environment", "xla", "ops") if by_name else ("environment", "xla"))
    xla = analysis["xla"]
    types = {host.device_type for host in analysis["environment"]}
    ran_on: Device | None = "gpu" if "GPU" in types else "tpu" if "TPU" in types else None
    serialized: dict[int, bytes] = {}
    for file in analysis.run.files:
        serialized |= read_host(file.path, stats=frozenset({HLO_PROTO})).hlo_protos or {}
    modules = {}
    for ran in xla.modules:
        if ran.instructions is not None and ran.program_id in serialized:
            modules[ran.program_id] = read_proto(serialized[ran.program_id])
    named_ops = _named_ops(analysis, modules) if by_name and (device or ran_on) != "gpu" else ()
    if not modules and any(op.batch_norm for op in named_ops):
        return Programs(modules={}, named_ops=named_ops, notes=(_NAMES_ONLY,), device=ran_on)
    if not modules:
        raise TfprofInputError(
            f"{path} has no XLA programs that ran: profile compiled code (jit_compile=True, JAX), or pass the "
            "SavedModel or graph"
        )
    whole = max(xla.whole_ps, 1)
    by_place: dict[tuple[int, str], float] = {}
    for op in xla.ops:
        if op.program_id is not None:
            key = (op.program_id, op.op)
            by_place[key] = by_place.get(key, 0.0) + op.time_ps / whole
    notes = (_COMPILED, *((_OF_CPU,) if xla.place == "cpu" else ()))
    if xla.lost:
        notes = (*notes, f"{counted(len(xla.lost), 'program')} that ran cannot be checked: missing from the profile.")
    return Programs(modules=modules, shares=by_place, named_ops=named_ops, notes=notes, device=ran_on)


def _named_ops(analysis: Analysis, modules: Mapping[int, Module]) -> tuple[NamedOp, ...]:
    """Return the ops of a profile that no program contains; ops in programs are checked there."""
    judged = {
        item.metadata.op_name
        for module in modules.values()
        for computation in module.computations
        for item in computation.instructions
    }
    found = []
    for table in analysis["ops"].sides:
        whole_ps = max(int(table.self_ps.sum()), 1)
        shares = [time_ps / whole_ps if table.side == "device" else None for time_ps in table.self_ps.tolist()]
        rows = zip(table.keys, shares, strict=True)
        found += [NamedOp(key.name, key.type, share) for key, share in rows if key.name not in judged]
    return tuple(found)
