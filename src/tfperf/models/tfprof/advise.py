"""The four checkers of tfprof, as findings with actions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import NO_NUMBERS, Int64s, union
from tfperf.base.units import counted, format_ms, format_percent, listed, without_middle
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import AVERAGE, Executions, Model, sum_by
from tfperf.models.tfprof.options import PLACE, Options
from tfperf.models.tfprof.run_metadata import HostTimes, ends_apart, host_times, is_accelerator, is_all_streams
from tfperf.models.tfprof.step_times import first_step_finding, nano_values
from tfperf.models.tfprof.views import ends, show_ops, show_tree
from tfperf.report.model import Column, Finding, Level, Report, Section, Severity, Table, table_of

CHECKERS = ("AcceleratorUtilization", "Operation", "ExpensiveOperation", "Job")
_LOW, _VERY_LOW = 50.0, 20.0
_MOST_OF_ALL = 50.0
_MUCH_RECEIVED = 0.2
_FAR_APART = 0.1
_LONGEST_NAME = 60
_Builder = Callable[[Model], Section]


def checker_of(text: str) -> str:
    """Return the checker of this name, in any spelling; raises ValueError for an unknown name."""
    plain = text.replace("-", "").replace("_", "").lower().removesuffix("checker")
    for name in CHECKERS:
        if name.lower() == plain:
            return name
    raise OptionError(f"{text!r} is not a checker: use one or more of {', '.join(CHECKERS)}")


def advise_report(model: Model, *, checkers: Sequence[str] = CHECKERS, every_frame: bool = False) -> Report:
    """Return a report with a section per checker, including checkers without findings.

    `every_frame` keeps frames of installed packages among the lines of code. Raises ValueError for an unknown checker.
    """
    wanted = {checker_of(name) for name in checkers}
    build: Mapping[str, _Builder] = {
        "AcceleratorUtilization": _accelerator_utilization,
        "Operation": _operation,
        "ExpensiveOperation": partial(_expensive_operation, every_frame=every_frame),
        "Job": _job,
    }
    sections = tuple(build[name](model) for name in CHECKERS if name in wanted)
    source = {"nodes": len(model.names), "steps": len(model.steps)}
    codes = [finding.code for section in sections for finding in section.findings if finding.severity != "info"]
    return Report(source, {"view": "advise", "steps": [*model.steps], "findings": codes}, sections)


def _named(text: str) -> str:
    return without_middle(text, _LONGEST_NAME)


def _no_times(model: Model) -> Iterator[Finding]:
    if not model.steps:
        yield Finding("no_steps", "info", "no steps were recorded, so times are unknown", _GIVE_RUNS)


_GIVE_RUNS = "pass RunMetadata files with --run-meta"


def _accelerator_utilization(model: Model) -> Section:
    """Check the share of the last recorded step in which each accelerator computes."""
    devices = used_devices(model)
    findings = [*_no_times(model), *map(_of_device, devices)]
    if not findings:
        findings.append(Finding("no_accelerator", "info", "no accelerator kernels were recorded"))
    columns = (
        Column("device", "device", str),
        Column("kernel_ms", "kernels", float, "ms", "summed time of its kernels"),
        Column("step_ms", "step", float, "ms", "time from the first start to the last end of its nodes"),
        Column("utilization_percent", "utilization", float, "%", "kernels / step; parallel kernels are summed"),
        Column("busy_percent", "busy", float, "%", "share of the step in which at least one kernel runs"),
        Column("step", "in step", int),
    )
    data: dict[str, list[Any]] = {column.key: [getattr(device, column.key) for device in devices] for column in columns}
    tables = (table_of("accelerators", "Accelerators", columns, data),) if devices else ()
    return Section("accelerator_utilization", "Accelerator utilization", tuple(findings), tables=tables)


def _of_device(device: UsedDevice) -> Finding:
    share = device.busy_percent
    text = f"{_named(device.device)} is busy for {format_percent(share)}% of step {device.step}"
    if share >= _LOW:
        return Finding("accelerator_used", "info", text)
    severity: Severity = "problem" if share < _VERY_LOW else "hint"
    action = "profile the job with tfperf run or tfperf capture: tfperf analyze shows why the device waits"
    return Finding("low_accelerator_utilization", severity, text, action)


def _operation(model: Model) -> Section:
    """Find ops that have a faster form."""
    findings = []
    unfused = unfused_batch_norms(model)
    if unfused:
        text = f"{counted(len(unfused), 'unfused batch norm')}: {listed([*map(_named, unfused)], 3)}"
        action = (
            "use the fused op: tf.compat.v1.nn.fused_batch_norm, or fused=True if the layer supports it (Keras 3 "
            "layers do not)"
        )
        findings.append(Finding("unfused_batch_norm", "hint", text, action))
    device_of = dict(zip(model.names, model.device, strict=True))
    nhwc = [name for name in model.nhwc if is_accelerator(device_of.get(name, ""))]
    if nhwc:
        text = f"{counted(len(nhwc), 'op')} on accelerators with data_format NHWC: {listed([*map(_named, nhwc)], 3)}"
        action = "measure both layouts: NCHW is faster on old GPUs, NHWC often on GPUs with tensor cores"
        findings.append(Finding("nhwc_on_accelerator", "info", text, action))
    if not findings:
        findings.append(
            Finding("nothing_found", "info", f"no faster form for any of {counted(len(model.names), 'node')}")
        )
    return Section("operation", "Operations", tuple(findings))


def _expensive_operation(model: Model, *, every_frame: bool) -> Section:
    """Return the most expensive op types, scopes and lines of the mean step."""
    ops, scopes = costly_ops(model), costly_scopes(model)
    lines = costly_lines(model, every_frame=every_frame)
    findings = [*_no_times(model), *map(_of_op, ops[:1])]
    if (first := first_step_finding(model)) is not None:
        findings.append(first)
    if not findings:
        findings.append(Finding("nothing_found", "info", "all ops take less than a microsecond"))
    tables = (
        *_table("ops", f"Top {MOST} op types", "op type", ops),
        *_table("scopes", f"Top {MOST} scopes", "scope", scopes),
        *_table("lines", "Lines of code", "line of code", lines),
    )
    notes = () if model.stacks.files or not model.steps else ("Lines of code require an op log (--op-log).",)
    return Section("expensive_operation", "Expensive operations", tuple(findings), tables=tables, notes=notes)


def _table(name: str, title: str, head: str, rows: Sequence[CostlyRow]) -> Iterator[Table]:
    """Yield the table of the rows, if there are any; terminal and page omit columns without values."""
    if not rows:
        return
    parts: Level = "brief" if any(row.accelerator_ms for row in rows) else "data"
    kernels: Level = "brief" if any(row.kernels for row in rows) else "data"
    columns = (
        Column("name", head, str, depth_key="depth" if name == "lines" else ""),
        Column("time_ms", "time", float, "ms", "mean of the recorded steps, accelerator and CPU"),
        Column("accelerator_ms", "accelerator", float, "ms", "time of kernels", parts),
        Column("cpu_ms", "CPU", float, "ms", "CPU time of ops; for GPU ops, launch time", parts),
        Column("time_percent", "%", float, "%", "share of the time of all nodes"),
        Column("kernels", "runs as", str, "", "kernels that ran instead of these ops, with another name", kernels),
        Column("depth", "level", int, level="data"),
    )
    data = {column.key: [getattr(row, column.key) for row in rows] for column in columns}
    yield table_of(name, title, columns, data)


def _of_op(row: CostlyRow) -> Finding:
    """Return a finding on the most expensive op type, with its kernel if another one ran."""
    text = f"{_named(row.name)} takes {format_percent(row.time_percent)}% of the time of all ops"
    if row.kernels:
        text += f"; it runs as {_named(row.kernels)}"
    severity: Severity = "hint" if row.time_percent >= _MOST_OF_ALL else "info"
    named = row.name if row.name.isidentifier() else "TYPE"
    action = f"run tfperf tfprof scope --account-type-regexes {named} --order-by micros to see where"
    return Finding("expensive_op", severity, text, action)


def _job(model: Model) -> Section:
    """Compare the hosts of a job: waiting time for tensors of other hosts, and differences in end times."""
    hosts = host_times(model.hosts)
    findings = [*_no_times(model), *_of_ends(model), *filter(None, map(_of_received, hosts))]
    if not findings:
        found = "the hosts of this job end steps at the same time" if len(hosts) > 1 else "only one host has records"
        action = (
            ""
            if len(hosts) > 1
            else "pass the files of all hosts, several per step: --run-meta 10=HOST_A --run-meta 10=HOST_B"
        )
        findings.append(Finding("nothing_found", "info", found, action))
    columns = (
        Column("host", "host", str),
        Column("step_ms", "step", float, "ms", "mean time from the first start to the last end on the host"),
        Column("received_ms", "receives", float, "ms", "mean time per step in RecvTensor calls, which may overlap"),
        Column("received", "calls", float, "", "RecvTensor calls per step"),
        Column("late_ms", "late", float, "ms", "mean delay after the first host to end the step"),
        Column("last_count", "last", int, "count", "steps in which the host ends last"),
        Column("steps", "steps", int, "count", "steps with records of the host"),
    )
    data: dict[str, list[Any]] = {column.key: [getattr(host, column.key) for host in hosts] for column in columns}
    tables = (table_of("hosts", "Hosts", columns, data),) if hosts else ()
    notes: tuple[str, ...] = ("tfprof's JobChecker was never published: this one is tfperf's own.",)
    if len(hosts) > 1:
        notes += ("Step ends are compared by host clocks: clocks that differ look like late hosts.",)
    return Section("job", "Job", tuple(findings), tables=tables, notes=notes)


def _of_ends(model: Model) -> Iterator[Finding]:
    apart = ends_apart(model.hosts)
    if apart is None or apart.apart_ms < _FAR_APART * apart.step_ms:
        return
    text = (
        f"hosts end steps {format_ms(apart.apart_ms)} ms apart (median), with {format_ms(apart.step_ms)} ms per "
        f"step; {_named(apart.last)} is last in {apart.last_count} of {counted(apart.steps, 'step')}"
    )
    yield Finding(
        "hosts_apart",
        "hint",
        text,
        "compare the ops of the last host with another host: show views of the files of one host at a time",
    )


def _of_received(host: HostTimes) -> Finding | None:
    if host.received_ms < _MUCH_RECEIVED * host.step_ms:
        return None
    text = (
        f"{_named(host.host)} spends {format_ms(host.received_ms)} ms of a {format_ms(host.step_ms)} ms step in "
        "RecvTensor, summed over overlapping calls"
    )
    return Finding(
        "much_received",
        "hint",
        text,
        "send less data between hosts: use larger batches, or place variables near their ops",
    )


_US_PER_MS = 1000.0


class UsedDevice(Struct, frozen=True, kw_only=True):
    """An accelerator in its last step with kernels; times in ms, from the microseconds of the records."""

    device: str
    step: int
    kernel_ms: float
    step_ms: float
    """From the first start to the last end of its nodes, on any device."""
    utilization_percent: float
    """tfprof's utilization: overlapping kernels are added up, so it can exceed 100."""
    busy_percent: float
    """Share of the step in which at least one kernel runs."""


def used_devices(model: Model) -> list[UsedDevice]:
    """Return the accelerators with kernels, sorted by name."""
    devices = sorted({device for device in model.device if is_accelerator(device)})
    number = {device: place for place, device in enumerate(devices)}
    of_node = np.array([number.get(device, -1) for device in model.device], np.int64)
    found: dict[str, UsedDevice] = {}
    for step in sorted(model.steps, reverse=True):
        if len(found) == len(devices):
            break
        for used in _in_step(model, devices, step, of_node):
            found.setdefault(used.device, used)
    return [found[device] for device in devices if device in found]


def _in_step(model: Model, devices: list[str], step: int, of_node: Int64s) -> Iterator[UsedDevice]:
    """Yield the accelerators of a step whose nodes have kernels."""
    executions: Executions = model.steps[step]
    device = of_node[executions.node]
    timed = (device >= 0) & (executions.started > 0)
    micros, last = np.zeros(len(devices), np.int64), np.zeros(len(devices), np.int64)
    first = np.full(len(devices), np.iinfo(np.int64).max)
    np.add.at(micros, device[device >= 0], executions.accelerator_micros[device >= 0])
    np.minimum.at(first, device[timed], executions.started[timed])
    np.maximum.at(last, device[timed], executions.ended[timed])
    busy = _busy(model, executions, of_node)
    for place in np.flatnonzero((micros > 0) & (last > first)).tolist():
        span, kernels = int(last[place] - first[place]), int(micros[place])
        yield UsedDevice(
            device=devices[place],
            step=step,
            kernel_ms=kernels / _US_PER_MS,
            step_ms=span / _US_PER_MS,
            utilization_percent=100.0 * kernels / span,
            busy_percent=100.0 * min(busy.get(place, 0), span) / span,
        )


def _busy(model: Model, executions: Executions, of_node: Int64s) -> dict[int, int]:
    """Return the microseconds in which at least one kernel runs, by accelerator number."""
    singles = executions.intervals
    streams = np.array([is_all_streams(each) for each in model.devices], np.bool_)
    rows = np.flatnonzero(streams[singles.device] & (of_node[singles.node] >= 0)) if len(streams) else NO_NUMBERS
    device = of_node[singles.node[rows]]
    rows = rows[np.argsort(device, kind="stable")]
    numbers, first = np.unique(of_node[singles.node[rows]], return_index=True)
    return {
        number: union(singles.start[part], singles.start[part] + singles.duration[part]).total()
        for number, part in zip(numbers.tolist(), np.split(rows, first[1:]), strict=bool(len(numbers)))
    }


_BATCH_NORM = re.compile(r"batch_?norm", re.IGNORECASE)
_FUSED = re.compile(r"_?FusedBatchNorm(?:Ex)?(?:V2|V3)?")
_ROOT_OF_VARIANCE = "Rsqrt"
"""Every batch norm of single ops has an Rsqrt; scopes that hold only variables do not."""


def unfused_batch_norms(model: Model) -> list[str]:
    """Return the scopes named after batch norm that compute it from single ops, sorted.

    The outermost matching scope is used. Gradients are not counted because they follow the forward ops. tfprof accepts
    only the type `FusedBatchNorm`, so it reports current graphs, which use `FusedBatchNormV3` (D11).
    """
    single, fused = set(), set()
    for name, op in zip(model.names, model.ops, strict=True):
        said = _BATCH_NORM.search(name)
        if said is None or "gradients/" in name or "gradient_tape/" in name:
            continue
        end = name.find("/", said.end())
        scope = name[:end] if end >= 0 else name
        if _FUSED.fullmatch(op):
            fused.add(scope)
        elif op == _ROOT_OF_VARIANCE:
            single.add(scope)
    return sorted(single - fused)


MOST = 3  # maximum number of ops, of scopes, and of lines per level
_LEAST_OP, _LEAST_SCOPE, _LEAST_LINE = 1_000, 100_000, 1_000_000  # minimum times in ns; smaller rows are left out
_LEVELS = 4
_NS_PER_MS = 1e6


class CostlyRow(Struct, frozen=True, kw_only=True):
    """A row with its times in the mean step, and its share of the time of all nodes."""

    name: str
    time_ms: float
    accelerator_ms: float
    cpu_ms: float
    time_percent: float
    kernels: str = ""
    """Kernels that ran for ops of this type, if their names differ; else empty."""
    depth: int = 0


def costly_ops(model: Model) -> list[CostlyRow]:
    """Return the most expensive op types, each with all of its nodes."""
    values = nano_values(model, AVERAGE)
    shown = show_ops(model, Options(order_by="micros", max_depth=MOST - 1), values)
    whole = int(values[PLACE["micros"]].sum())
    rows = [place for place in range(len(shown.names)) if shown.own[PLACE["micros"], place] >= _LEAST_OP]
    return [
        msgspec.structs.replace(
            _row(shown.names[place], shown.own[:, place], whole), kernels=model.ran_as(shown.nodes[place].tolist())
        )
        for place in rows
    ]


def costly_scopes(model: Model) -> list[CostlyRow]:
    """Return the most expensive outermost scopes, with all nodes in them."""
    values = nano_values(model, AVERAGE)
    number: dict[str, int] = {}
    scope = np.array([number.setdefault(name.partition("/")[0], len(number)) for name in model.names], np.int64)
    total = np.stack([sum_by(scope, row, len(number)) for row in values])
    micros = total[PLACE["micros"]]
    names, whole = [*number], int(micros.sum())
    largest = np.argsort(-micros, kind="stable")[:MOST].tolist()
    return [_row(names[place], total[:, place], whole) for place in largest if micros[place] >= _LEAST_SCOPE]


def costly_lines(model: Model, *, every_frame: bool = False) -> list[CostlyRow]:
    """Return the most expensive lines, below the first line with several callees; if there is none, the innermost.

    At most three lines per level and four levels, each with all of its callees. Without `every_frame`, frames of
    installed packages are left out.
    """
    if not every_frame:
        model = msgspec.structs.replace(model, stacks=model.stacks.of_users())
    values = nano_values(model, AVERAGE)
    shown = show_tree(model, "code", Options(order_by="micros", max_depth=1 << 20), values)
    micros, whole = shown.total[PLACE["micros"]], int(shown.root_total[PLACE["micros"]])
    children = _children(shown.tree.depth)
    top = 0
    while len(children[top]) == 1 and children[children[top][0]]:
        top = children[top][0]
    rows: list[CostlyRow] = []
    waiting = [(child, 0) for child in reversed(children[top][:MOST])]
    while waiting:
        place, depth = waiting.pop()
        if micros[place] < _LEAST_LINE:
            continue
        rows.append(msgspec.structs.replace(_row(shown.tree.names[place], shown.total[:, place], whole), depth=depth))
        if len(children[place]) > 1 and depth + 1 < _LEVELS:
            waiting += [(child, depth + 1) for child in reversed(children[place][:MOST])]
    return rows


def _children(depth: Int64s) -> list[list[int]]:
    """Return the child rows of each row of a tree."""
    stop = ends(depth).tolist()
    children: list[list[int]] = [[] for _ in stop]
    open_rows: list[int] = []
    for row in range(len(stop)):
        while open_rows and stop[open_rows[-1]] <= row:
            open_rows.pop()
        if open_rows:
            children[open_rows[-1]].append(row)
        open_rows.append(row)
    return children


def _row(name: str, nanos: Int64s, whole: int) -> CostlyRow:
    time, accelerator, cpu = (int(nanos[PLACE[key]]) for key in ("micros", "accelerator_micros", "cpu_micros"))
    return CostlyRow(
        name=name,
        time_ms=time / _NS_PER_MS,
        accelerator_ms=accelerator / _NS_PER_MS,
        cpu_ms=cpu / _NS_PER_MS,
        time_percent=100.0 * time / whole if whole else 0.0,
    )
