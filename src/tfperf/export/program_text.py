"""The text of XLA programs in a profile: an HLO op with the ops around it, or a whole program."""

from __future__ import annotations

from collections.abc import Iterator

from tfperf.analysis.registry import Results
from tfperf.base.errors import TfperfError
from tfperf.base.units import PS_PER_MS, counted, did_you_mean, format_ms, format_number, format_percent, percent
from tfperf.formats.hlo.hlo_print import computation_text, instruction_text, module_text
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.messages import HLO_PROTO
from tfperf.formats.hlo.model import Computation, Module, ProgramError
from tfperf.formats.wire.event_columns import unsigned
from tfperf.sections.xla.analysis import Xla
from tfperf.trace.read import read_host


def program_text(results: Results, program: str | None) -> str:
    """Return the text of a program, by its name or id; by default the one with most time. Raises TfperfError."""
    module, _ = _chosen(results, program, "")
    return module_text(module)


def op_text(results: Results, op: str, *, program: str | None, depth: int, whole: bool) -> str:
    """Return an HLO op and the ops that are up to `depth` operands or users away, in program order.

    `whole` adds the computations that the op calls. Raises TfperfError if no program of the profile has the op.
    """
    module, program_id = _chosen(results, program, op)
    at, place = module.by_name[op]
    computation = module.computations[at]
    near = _near(computation, place, depth)
    lines = [
        f"{op} in {computation.name} of {module.name}" + f" (program {unsigned(program_id)})",
        *_times(results, op),
    ]
    lines += ["", f"{counted(len(near) - 1, 'op')} up to {depth} away:", ""] if len(near) > 1 else [""]
    lines += [f"{'>' if each == place else ' '} {instruction_text(module, computation, each)}" for each in sorted(near)]
    text = "\n".join(lines) + "\n"
    if whole:
        text += "".join(f"\n{computation_text(module, each)}" for each in _called(module, at, place))
    return text


def _chosen(results: Results, program: str | None, op: str) -> tuple[Module, int]:
    """Return a program that has the op, the one with most time first."""
    xla: Xla = results["xla"]
    of_op = [each for each in xla.ops if each.op == op]
    times = {each.program_id: each.time_ps for each in reversed(of_op)} if op else {}
    times = times or {each.program_id: each.time_ps for each in reversed(xla.modules)}
    hosts = {host.host for host in results.hosts}
    names: set[str] = set()
    found: dict[int, Module] = {}
    for file in results.run.files:
        if file.host not in hosts:
            continue
        protos = read_host(file.path, stats=frozenset({HLO_PROTO})).hlo_protos or {}
        for program_id, serialized in protos.items():
            if op.encode() not in serialized:
                continue
            try:
                module = read_proto(serialized)
            except ProgramError:
                continue
            names.add(module.name)
            is_asked = program in (None, module.name, str(unsigned(program_id)))
            if is_asked and (not op or op in module.by_name):
                found[program_id] = module
        if found:
            break
    if not found:
        what = f"no program with an HLO op {op!r}" if op else "no XLA program"
        asked = f" named {program!r}" if program else ""
        known = did_you_mean(op or str(program), {each.op for each in xla.ops} if op else names)
        known = f": {known} " if known else "; "
        raise TfperfError(f"the profile has {what}{asked}{known}tfperf analyze PATH -s xla lists programs and HLO ops")
    chosen = max(found, key=lambda program_id: (times.get(program_id, -1), program_id))
    return found[chosen], chosen


def _near(computation: Computation, place: int, depth: int) -> set[int]:
    near, edge = {place}, {place}
    for _ in range(depth):
        around = (
            other for each in edge for other in (*computation.instructions[each].operands, *computation.users[each])
        )
        edge = set(around) - near
        near |= edge
    return near


def _called(module: Module, at: int, place: int) -> Iterator[Computation]:
    """Yield the computations that an instruction calls, with those that they call."""
    waiting, seen = [*module.computations[at].instructions[place].calls], set[int]()
    while waiting:
        called = waiting.pop(0)
        if called not in seen:
            seen.add(called)
            yield module.computations[called]
            waiting += [each for inner in module.computations[called].instructions for each in inner.calls]


def _times(results: Results, op: str) -> Iterator[str]:
    xla: Xla = results["xla"]
    at = next((at for at, each in enumerate(xla.ops) if each.op == op), None)
    if at is None:
        yield "It did not run in the capture, or its time belongs to an op that calls it."
        return
    each = xla.ops[at]
    share = percent(each.time_ps, xla.whole_ps)
    parts = [f"{format_ms(each.time_ps / PS_PER_MS)} ms in {counted(each.runs, 'run')}"]
    parts += [] if share is None else [f"{format_percent(share)}% of the time"]
    if each.work is not None and each.work.tflops_per_second is not None:
        parts.append(f"{format_number(each.work.tflops_per_second)} TFLOP/s")
    roof = xla.judged[at].roofline_percent
    parts += [] if roof is None else [f"{format_percent(roof)}% of the roofline"]
    yield ", ".join(parts)
    yield from (f"{title}: {text}" for title, text in (("op", each.framework_op), ("line", each.source)) if text)
