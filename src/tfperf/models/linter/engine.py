"""The linter's entry points: rule selection, application to programs, and results."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from tfperf.base.display import Shown, cut
from tfperf.base.errors import TfperfError
from tfperf.base.units import counted, did_you_mean
from tfperf.formats.models.graph_file import graphs_of, read_graphs
from tfperf.formats.models.input_file import InputFile
from tfperf.formats.models.op_graph import OpGraph
from tfperf.models.linter.graph import with_batch
from tfperf.models.linter.padding import LEVELS, Level
from tfperf.models.linter.rule import Device, Ledger, Reads, Violation, at_least
from tfperf.models.linter.rules import RULES, SUPPORTED, UNSUPPORTED, check_graph, check_program
from tfperf.models.linter.rules.reductions import check_op_names
from tfperf.models.linter.sources import Programs, is_profile, program_of, programs_that_ran

_ANYWHERE = frozenset(("_Arg", "_Retval", "Placeholder", "NoOp", "Const"))
_MOST_OPS_NAMED = 20
_NO_DEVICE = "The {} does not specify a device, so TPU rules were applied; use --device gpu for GPU rules."


class LintError(TfperfError, ValueError):
    """An unknown rule, or an object that is not a model."""


class LintOptions(Struct, frozen=True, kw_only=True):
    """Device, batch size and rules; `run` names a run of the logdir, or several."""

    device: Literal["tpu", "gpu", "auto"] = "auto"
    batch: int | None = None
    rules: tuple[str, ...] = ()
    """Ids of the rules to apply; empty means all rules of the device."""
    ignore: tuple[str, ...] = ()
    supported_ops: Path | None = None
    run: str | Sequence[str] | None = None


class LintResult(Shown, Struct, frozen=True, kw_only=True):
    """Findings of the rules in a program, the most important first."""

    source: str
    device: Device
    rules: tuple[str, ...]
    """Ids of the applied rules."""
    violations: tuple[Violation, ...]
    evaluated: int
    """Number of ops that all of their rules could check."""
    unknown: dict[str, str]
    """Other ops, with the reason why a rule could not check them."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return cut(f"<LintResult: {self.headline}>")

    @property
    def is_empty(self) -> bool:
        """Return whether the rules could not check any op."""
        return not self.evaluated and not self.violations

    @property
    def headline(self) -> str:
        """Return the number of findings, of their ops, and of unchecked ops as a sentence."""
        counts = Counter(violation.level for violation in self.violations)
        levels = ", ".join(f"{counts[level]} {level}" for level in LEVELS if counts[level])
        text = f"{counted(len(self.violations), 'finding')} in {counted(self.evaluated, 'op')} evaluated"
        text += f" ({levels})" if levels else ""
        reasons = Counter(self.unknown.values())
        if reasons:
            text += f", {len(self.unknown):,} not evaluable because {'; '.join(reasons)}"
        return text

    def at_least(self, level: Level) -> tuple[Violation, ...]:
        """Return the findings that are at least this severe."""
        return tuple(violation for violation in self.violations if at_least(violation.level, level))


def lint_path(path: Path, options: LintOptions | None = None) -> LintResult:
    """Apply rules to a graph, a SavedModel, an XLA program, or the programs in a profile; raises TfperfError."""
    options = options or LintOptions()
    device = None if options.device == "auto" else options.device
    by_name = "TPU-BN-2" in chosen_rules(options, device)
    if is_profile(path):
        programs = programs_that_ran(path, run=options.run, device=device, by_name=by_name)
        return _lint_programs(programs, str(path), options, ("program", "names"))
    if options.run is not None:
        raise LintError("--run selects a run of a logdir, not a part of a model: omit it")
    program = program_of(path)
    if program is not None:
        return _lint_programs(program, str(path), options, ("program",))
    return _lint(read_graphs(path), str(path), options)


def _lint_programs(programs: Programs, source: str, options: LintOptions, reads: Sequence[Reads]) -> LintResult:
    """Apply rules to compiled programs; with known times, findings are sorted by time and waste."""
    if options.batch is not None:
        raise LintError("--batch cannot be used with XLA programs, which have fixed shapes")
    if options.supported_ops is not None:
        raise LintError("--supported-ops cannot be used with XLA programs: the rule requires a graph")
    device, notes = options.device, tuple[str, ...]()
    if device == "auto":
        # The default is the device that ran the programs, else TPU with a note.
        is_gpu = any(rule.upper().startswith("GPU") for rule in options.rules)
        device = "gpu" if is_gpu else programs.device or "tpu"
        notes = () if is_gpu or programs.device else (_NO_DEVICE.format("program"),)
    rules = chosen_rules(options, device, reads)
    found: list[Violation] = []
    judged: set[tuple[int, str]] = set()
    unknown: dict[str, str] = {}
    namesakes = Counter(module.name for module in programs.modules.values())
    for number, module in programs.modules.items():
        ledger = Ledger(rules)
        check_program(module, ledger, device)
        name_of = module.name if namesakes[module.name] == 1 else f"{module.name}({number})"
        shares = programs.shares
        found += [replace(each, share=shares.get((number, each.runs_in))) for each in ledger.violations]
        judged |= {(number, name) for name in ledger.judged.difference(ledger.unknown)}
        unknown |= {f"{name_of}/{name}": why for name, why in ledger.unknown.items()}
    names = Ledger(rules)
    check_op_names(programs.named_ops, names)
    found += names.violations
    judged |= {(-1, name) for name in names.judged}
    found.sort(
        key=lambda each: (-(each.share or 0.0) * each.wasted_bytes, LEVELS.index(each.level), -each.wasted_bytes)
    )
    return LintResult(
        source=source,
        device=device,
        rules=(*rules,),
        violations=tuple(found),
        evaluated=len(judged),
        unknown=unknown,
        notes=(*notes, *programs.notes),
    )


def lint_model(model: Any, options: LintOptions | None = None) -> LintResult:
    """Apply rules to a path, a TensorFlow concrete function, a Keras model, or a serialized GraphDef.

    A Keras model is checked in inference mode; without a batch size in its inputs or in the options, the batch size
    stays unknown. Raises TfperfError.
    """
    options = options or LintOptions()
    chosen_rules(options)
    if isinstance(model, (str, Path)):
        return lint_path(Path(model), options)
    name = str(getattr(model, "name", "") or type(model).__name__)
    data = model if isinstance(model, bytes) else _graph_of(model, name)
    return _lint(graphs_of(InputFile(Path(name), "GraphDef", data)), name, options)


def _graph_of(model: Any, name: str) -> bytes:
    """Return the serialized graph of a model object."""
    if not hasattr(model, "graph") and hasattr(model, "inputs"):
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is None or not model.inputs:
            raise LintError(f"{name} is not built, or not a TensorFlow model: call it once, or pass its SavedModel")
        keras: Any = model
        specs = [tensorflow.TensorSpec(each.shape, each.dtype, name=each.name) for each in model.inputs]
        call = tensorflow.function(lambda *inputs: keras(inputs[0] if len(inputs) == 1 else [*inputs], training=False))
        model = call.get_concrete_function(*specs)
    graph = getattr(model, "graph", model)
    if not hasattr(graph, "as_graph_def"):
        raise LintError(
            f"{name} is not a model that can be checked: pass a path, a built Keras model, or a concrete function "
            "(my_function.get_concrete_function(...))"
        )
    return bytes(graph.as_graph_def(add_shapes=True).SerializeToString())


def _lint(graphs: Sequence[OpGraph], source: str, options: LintOptions) -> LintResult:
    device, notes = options.device, tuple[str, ...]()
    if device == "auto":
        named = frozenset().union(*(graph.devices for graph in graphs))
        is_said = bool(named) or any(rule.startswith("GPU") for rule in options.rules)
        device = "gpu" if is_said and "tpu" not in named else "tpu"
        notes = () if is_said else (_NO_DEVICE.format("graph"),)
    rules = chosen_rules(options, device, ["graph"])
    ledger = Ledger(rules)
    for graph in graphs:
        if options.batch:
            with_batch(graph, options.batch)
        check_graph(graph, ledger, device)
        if device == "tpu":
            _check_supported(graph, ledger, options.supported_ops)
    found = sorted(
        ledger.violations, key=lambda each: (LEVELS.index(each.level), -each.wasted_bytes, each.rule, each.ops)
    )
    return LintResult(
        source=source,
        device=device,
        rules=(*rules,),
        violations=tuple(found),
        evaluated=len(ledger.judged.difference(ledger.unknown)),
        unknown=dict(ledger.unknown),
        notes=notes,
    )


_SOURCES: dict[Reads, str] = {"graph": "a graph", "program": "a compiled program", "names": "a profile"}


def chosen_rules(options: LintOptions, device: Device | None = None, reads: Sequence[Reads] = ()) -> list[str]:
    """Return the ids of the selected rules for device and inputs; LintError if one is unknown or none match."""
    by_key = {rule.lower(): rule for rule in RULES}
    for rule in (*options.rules, *options.ignore):
        if rule.lower() not in by_key:
            raise LintError(
                f"{rule!r} is not a rule: {did_you_mean(rule, by_key, by_key) or 'tfperf explain rules lists them'}"
            )
    wanted = {rule.upper() for rule in options.rules}
    ignored = {rule.upper() for rule in options.ignore}
    of_device = [rule.id for rule in RULES.values() if device in (None, rule.device)]
    found = [rule for rule in of_device if (not wanted or rule in wanted) and rule not in ignored]
    if device is not None and not found:
        raise LintError(f"no {device.upper()} rule remains: omit --rule or --ignore, or change --device")
    fitting = [rule for rule in found if not reads or {*RULES[rule].reads}.intersection(reads)]
    if not fitting:
        needs = next(each for each in _SOURCES if each in RULES[found[0]].reads)
        raise LintError(f"{found[0]} reads {_SOURCES[needs]}, not {_SOURCES[reads[0]]}: pass {_SOURCES[needs]}")
    return fitting


def _check_supported(graph: OpGraph, ledger: Ledger, path: Path | None) -> None:
    """TPU-OP-1: unsupported ops, each kind once; without a list of supported ones, those that TensorFlow names."""
    supported = None if path is None else _supported_ops(path)
    by_op: dict[str, list[str]] = {}
    for node in graph.nodes:
        is_known = node.op not in _ANYWHERE if supported is not None else node.op in UNSUPPORTED
        if is_known:
            ledger.judge(node.name)
            if supported is None or node.op not in supported:
                by_op.setdefault(node.op, []).append(node.name)
    level: Level = "low" if supported is None else "high"
    reason = "one that XLA does not support" if supported is None else "not in the list of supported ops"
    for op, names in by_op.items():
        where = {"ops": tuple(names[:_MOST_OPS_NAMED]), "op_type": op}
        what = f"{op} is {reason} ({counted(len(names), 'node')})"
        ledger.add(SUPPORTED.found(where, level, what, certainty="exact"))


def _supported_ops(path: Path) -> Collection[str]:
    data = InputFile(path, "list of ops").data
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise LintError(f"{path} is not a list of ops: write one op name per line") from None
    words = (line.partition("#")[0].strip().strip("`*- ,").removeprefix("tf.raw_ops.") for line in lines)
    found = {word.split()[0] for word in words if word}
    if not found:
        raise LintError(f"{path} has no ops: write one op name per line")
    return found
