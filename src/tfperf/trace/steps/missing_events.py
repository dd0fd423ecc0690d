"""Events that the profiler should have recorded and did not: which are missing, why, and which values are unknown.

Missing events are never treated as time without work.

- *GPU not traced.* No device has events, and the profiler reports that its tracer failed, or host events and threads
  show that the job uses a GPU.
- *TPU not traced.* No device has events, and host threads enqueued programs on a TPU.
- *Device events lost.* Devices have events, but at least a fifth of all launches or all launches of a thread have none,
  or a program ran on host threads more often than any of its kernels, or a TPU chip without events got programs. Work
  that devices may have executed after the capture does not count.
- *Ops not recorded.* The host tracer level was 0 or 1: TensorFlow records ops, its executor and tf.data from level 2,
  JAX its ops from level 1. The level is in the profile (TensorFlow 2.20 or later, JAX), or is inferred from calls
  without an executor.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tfperf.base.arrays import Bools, Int64s, distinct, group_equal
from tfperf.base.units import PS_PER_MS, counted, listed
from tfperf.trace.event_names import concrete_function, is_call, is_fetch, is_jitted_call, mask, parse_op
from tfperf.trace.flaw import Flaw
from tfperf.trace.host.launches import LaunchLinks, launching_calls
from tfperf.trace.steps.categories import CATEGORIES, HOST_CATEGORIES

if TYPE_CHECKING:
    from tfperf.trace.host_trace import HostTrace

_OF_DEVICES = frozenset({*CATEGORIES, "input_wait", "host_to_device"} - {"compilation"})
"""Without device events, devices may work at any time, even while the host waits or computes."""
_OF_HOST = frozenset({*HOST_CATEGORIES, "all_others", "input", "input_wait"})
_LEAST_SHARE = 0.2
"""Minimum share of launches or runs without device events that means lost events."""
_FEW = 5
_LOST_FIX = (
    "capture fewer steps, without another profiler on the GPUs; with ROCm, also install the roctracer and rocprofiler "
    "packages of the job's ROCm version"
)
_TPU_FIX = "capture again, and copy the whole file"
_LEVEL_FIX = (
    "profile with host_tracer_level=2 (the default; tfperf run and tfperf capture: --host-tracer-level 2; "
    "tf.profiler.experimental.ProfilerOptions and jax.profiler.ProfileOptions have an option of this name)"
)


_TPU_WORK = ("DoEnqueueProgram", "TfrtTpuLoadedExecutable::Execute", "tpu::System::Execute")
"""Host events that enqueue a program on a TPU chip."""
_DEVICE_LEVEL_FIX = (
    "profile with device_tracer_level=1 (the default; tfperf run and tfperf capture: --device-tracer-level 1)"
)
_DOCTOR_FIX = (
    "run `tfperf doctor` in the job's environment: it checks whether libcupti is found and whether the driver "
    "allows profiling, and how to fix both"
)


def missing_events(trace: HostTrace, links: Callable[[], LaunchLinks]) -> tuple[Flaw, ...]:
    """Return the missing events of a trace; `links` finds the host event that launched each device event."""
    of_devices = _lost_events(trace, links) if trace.devices else _untraced_gpu(trace) or _untraced_tpu(trace)
    return tuple(flaw for flaw in (of_devices, _unrecorded_ops(trace)) if flaw is not None)


def _untraced_gpu(trace: HostTrace) -> Flaw | None:
    reports = (*trace.errors, *trace.warnings)
    names = [name for name in _host_names(trace) if _may_be_of_gpu(name)]
    threads = [line.name for line in trace.host_lines if line.stop > line.start and _may_be_of_gpu(line.name[3:])]
    # Only GPU tracers write these ids; old ones name a launch by its kernel.
    has_launches = len(trace.stat("correlation_id").event) > 0 and len(launching_calls(trace)[0]) > 0
    if not (reports or names or threads or has_launches):
        return None
    from tfperf.formats.wire.untraced_gpu import ROCM_FIX, missing_gpu_work, report_of_failure

    report = report_of_failure(reports)
    if report is not None:
        cause, fix = report[1].cause, report[1].fix
    else:
        work = missing_gpu_work(names, threads, has_launches=has_launches)
        if work is None:
            return None
        cause, fix = work.cause, work.fix
        if _options(trace).device_tracer == 0:
            cause, fix = "the device tracer was off (device_tracer_level=0)", _DEVICE_LEVEL_FIX
        elif fix != ROCM_FIX:
            is_amd = any(plane.stats.get("device_vendor") == "AMD" for plane in trace.planes)
            fix = ROCM_FIX if is_amd else _DOCTOR_FIX
    text = f"the GPU was not traced: {cause}; device time and waiting for the device are unknown"
    return Flaw("gpu_not_traced", text, "incomplete", fix=fix, hides=_OF_DEVICES)


def _may_be_of_gpu(name: str) -> bool:
    """Return whether a name may indicate a GPU: a fast test, because there are thousands of names."""
    return name.startswith(("cu", "hip", "Memcpy", "GpuExe", "gpu_", "GPU_")) or "GPU" in name or "Nccl" in name


def _untraced_tpu(trace: HostTrace) -> Flaw | None:
    if not any(name.startswith(_TPU_WORK) for name in _host_names(trace)):
        return None
    is_off = _options(trace).device_tracer == 0
    cause = (
        "the device tracer was off (device_tracer_level=0)"
        if is_off
        else "the host submitted programs to it, but it recorded no events"
    )
    fix = _DEVICE_LEVEL_FIX if is_off else _TPU_FIX
    text = f"the TPU was not traced: {cause}; device time and waiting for the device are unknown"
    return Flaw("tpu_not_traced", text, "incomplete", fix=fix, hides=_OF_DEVICES)


# --- events of devices that were lost ---

_NO_LAUNCH = r"(?i)(?:cu|hip)\w*(?:synchron|event|query|wait|alloc|free|graph|capture)"
_API = r"(?:cu|hip)[A-Z]"
_TRANSFER = r"(?i)(?:cu|hip)\w*(?:launch.*kernel|memcpy|memset)"
_COPY = r"(?i)(?:cu|cuda|hip)?mem(?:cpy|set)|_?copydevicetodevice"
_PROGRAM = ":XLA GPU module"


def _lost_events(trace: HostTrace, links: Callable[[], LaunchLinks]) -> Flaw | None:
    if trace.device_kind == "gpu":
        text = _lost_launches(trace, links) or _lost_runs(trace, links())
    else:
        text = _lost_chips(trace)
    if not text:
        return None
    lost = f"device events are missing: {text}; device time and waiting for devices are unknown"
    fix = _LOST_FIX if trace.device_kind == "gpu" else _TPU_FIX
    return Flaw("device_events_lost", lost, "incomplete", fix=fix, hides=_OF_DEVICES)


def _lost_launches(trace: HostTrace, links: Callable[[], LaunchLinks]) -> str:
    """Return a sentence on launches without a device event; empty if nearly all have one."""
    calls, ids = launching_calls(trace)
    device_rows = trace.device_rows
    if len(device_rows) >= len(calls):
        return ""
    launches = ~_are_named(trace, calls, _NO_LAUNCH)
    calls, ids = calls[launches], ids[launches]
    if len(device_rows) >= len(calls):
        return ""
    is_recorded = np.isin(ids, trace.number_at("correlation_id", device_rows))
    start_ps = trace.start_ps[calls]
    last_ps = _executed_until(trace, links(), int(start_ps.max()))
    is_over = start_ps <= last_ps
    is_lost = ~is_recorded & is_over
    lost, count = int(is_lost.sum()), int(is_over.sum())
    if lost < _FEW:
        return ""
    if lost >= _LEAST_SHARE * count:
        return f"{lost:,} of {count:,} launches have no device event"
    # One of many devices has a smaller share; a thread often launches on one device alone.
    is_lost &= _are_named(trace, calls, _TRANSFER) | ~_are_named(trace, calls, _API)
    thread = trace.line_of[calls]
    of_thread = np.bincount(thread[is_lost], minlength=len(trace.lines))
    alone = np.flatnonzero((of_thread >= _FEW) & (np.bincount(thread[is_recorded], minlength=len(trace.lines)) == 0))
    if not len(alone):
        return ""
    named = trace.lines[int(alone[0])].name
    return f"all {int(of_thread[alone[0]]):,} launches of the thread {named} have no device event"


def _lost_chips(trace: HostTrace) -> str:
    """Return a sentence on TPU chips with programs and without events; empty if there are none."""
    if not {"device_ordinal", "run_id"} <= trace.read_stats:
        return ""
    calls = trace.host_events(mask(trace.names, _TPU_WORK[0].__eq__))
    chips = distinct(trace.number_at("device_ordinal", calls, -1)).tolist()
    names = [trace.planes[plane].name for plane in trace.devices]
    recorded = {int(found[1]) for found in (re.match(r"/device:TPU:(\d{1,9})\b", name) for name in names) if found}
    lacking = [str(chip) for chip in chips if chip >= 0 and chip not in recorded]
    if not lacking or len(recorded) < len(names) or not recorded & {*chips}:
        return ""
    return f"the host submitted programs to {counted(len(lacking), 'TPU chip')} without events ({listed(lacking)})"


def _executed_until(trace: HostTrace, links: LaunchLinks, end_ps: int) -> int:
    """Return until when devices must have executed launched work; the last launch is at `end_ps`.

    That is the last launch with a device event, because a device executes in order; or, if later, the end of the
    capture minus twice the longest time between a launch and its execution.
    """
    launched_ps, delay_ps = trace.start_ps[links.host], trace.start_ps[links.device] - trace.start_ps[links.host]
    return max(int(launched_ps.max(initial=0)), end_ps - 2 * int(delay_ps.max(initial=0)) - int(PS_PER_MS))


def _lost_runs(trace: HostTrace, links: LaunchLinks) -> str:
    """Return a sentence on a program that ran on host threads more often than any of its kernels; empty if none did."""
    runs = trace.host_events(mask(trace.names, lambda name: name.endswith(_PROGRAM)))
    if not len(runs) or not len(links.host):
        return ""
    kernels = ~_are_named(trace, links.device, _COPY)
    if kernels.any():
        links = LaunchLinks(links.device[kernels], links.host[kernels])
    start_ps = trace.start_ps[runs]
    is_over = start_ps <= _executed_until(trace, links, int(start_ps.max()))
    started = Counter(trace.names[name] for name in trace.name[runs[is_over]].tolist())
    executed, unnamed = _executed(trace)
    if unnamed:
        return ""
    for name, count in started.most_common():
        program = name.removesuffix(_PROGRAM)
        recorded = executed.get(program, 0)
        if program in executed and count >= _FEW and recorded <= (1.0 - _LEAST_SHARE) * count:
            return f"host threads ran {program} {count:,} times, but devices recorded only {recorded:,} of these runs"
    return ""


def _executed(trace: HostTrace) -> tuple[dict[str, int], bool]:
    """Return the maximum runs of each program by its kernels, and whether a tenth of the kernels have no program.

    A kernel runs at least once per run of its program, so the most frequent one is an upper limit. Ids distinguish
    programs of the same name.
    """
    rows = trace.device_rows
    rows = rows[~_are_named(trace, rows, _COPY)]
    module, texts = trace.number_at("hlo_module", rows, -1), trace.stat("hlo_module").texts
    keys = [module, trace.program_at(rows)[0], trace.name[rows]]
    order, starts = group_equal(keys)
    counts = np.diff([*starts, len(order)]).tolist()
    most: dict[tuple[int, int], int] = {}
    for row, count in zip(order[starts].tolist(), counts, strict=True):
        program = (int(keys[0][row]), int(keys[1][row]))
        most[program] = max(most.get(program, 0), count)
    executed: dict[str, int] = {}
    for (place, _), count in most.items():
        if place >= 0:
            executed[texts[place]] = executed.get(texts[place], 0) + count
    return executed, int((module < 0).sum()) * 10 > len(rows)


def _are_named(trace: HostTrace, rows: Int64s, pattern: str) -> Bools:
    found = np.zeros(len(trace.names), np.bool_)
    for name in distinct(trace.name[rows]).tolist():
        found[name] = re.match(pattern, trace.names[name]) is not None
    named: Bools = found[trace.name[rows]]
    return named


# --- ops that the host tracer left out ---

_OPTIONS = re.compile("(?:\x08[\x00\x01])?(?:\x10([\x00-\x03]))?(?:\x18([\x00\x01]))?[\x20\x28]")
"""Start of the options of a profile: a flag, the levels of host and device tracer (0 is omitted), and later fields."""


class _Levels(NamedTuple):
    """Levels of the tracers; None: not in the profile."""

    host_tracer: int | None
    device_tracer: int | None


def _options(trace: HostTrace) -> _Levels:
    options = _OPTIONS.match(str(trace.session_stats.get("profile_options", "")))
    return _Levels(None, None) if options is None else _Levels(*(ord(level or "\x00") for level in options.groups()))


def _unrecorded_ops(trace: HostTrace) -> Flaw | None:
    level = _options(trace).host_tracer
    if level == 0:
        text = "the host tracer was off (host_tracer_level=0), so host activity is unknown"
        return Flaw("ops_not_recorded", text, "incomplete", fix=_LEVEL_FIX, hides=_OF_HOST)
    if level not in (None, 1) or not trace.on_host.any():
        return None
    names = _host_names(trace)
    calls = [name for name in names if name.startswith("EagerExecute")]
    is_called = calls and (len(trace.stat("tf_function_call").event) or any(map(concrete_function, calls)))
    if not (is_called or level == 1) or any(map(is_jitted_call, names)):
        return None
    others = [name for name in names if not name.startswith(("EagerExecute", "ExecutorState::ProcessAsync::"))]
    if any(is_call(each) or is_fetch(each) or parse_op(each).kind in ("tensorflow", "tf.data") for each in others):
        return None
    said = "host_tracer_level=1" if level == 1 else "as with host_tracer_level=1"
    text = f"the host tracer recorded no ops ({said}), so host compute, waiting and input are unknown"
    return Flaw("ops_not_recorded", text, "incomplete", fix=_LEVEL_FIX, hides=_OF_HOST)


def _host_names(trace: HostTrace) -> list[str]:
    return [trace.names[name] for name in distinct(trace.name[trace.on_host]).tolist()]
