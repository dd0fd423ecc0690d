"""The report section on hosts, devices and versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tfperf.analysis.registry import Results, present
from tfperf.base.units import PS_PER_MS, Unit, format_ms, listed
from tfperf.report.model import Fact, Section
from tfperf.sections.environment import HOSTS
from tfperf.sections.environment.analysis import HostEnvironment
from tfperf.trace.device.tpu_runs import join_chips, ranges_of


def build(results: Results) -> Section:
    """Return the section: numbers of hosts and devices, and a table of hosts."""
    hosts: tuple[HostEnvironment, ...] = results["environment"]
    is_other = results.attribution != "corrected"  # asked for: --attribution tensorflow
    facts = (
        Fact("hosts", "Hosts", len(hosts), "count"),
        Fact("devices", "Devices", sum(host.device_count for host in hosts), "count", "that recorded events"),
        *_recorded(hosts),
        *_added(hosts),
        *([Fact("attribution", "Attribution", results.attribution)] if is_other else ()),
    )
    tables = present(HOSTS.build(results))
    return Section("environment", "Run environment", facts=facts, tables=tables, detail_notes=clock_notes(hosts))


def clock_notes(hosts: Sequence[HostEnvironment]) -> tuple[str, ...]:
    """Return notes on TPU clock errors that were corrected."""
    notes = []
    jumps = max(host.clock_jumps for host in hosts)
    if jumps:
        most = format_ms(max(host.largest_jump_ps for host in hosts) / PS_PER_MS)
        often = f"up to {jumps} times, {most} ms" if jumps > 1 else f"once, by {most} ms"
        notes.append(f"Clocks in the file jump ({often}); tfperf uses chip times.")
    shifts = [host.clock_shift_ps for host in hosts if host.clock_shift_ps is not None]
    if shifts:
        least, most_ps = max(shifts)
        apart = format_ms(least / PS_PER_MS)
        apart = f"{apart} ms or more" if most_ps is None else f"{apart} to {format_ms(most_ps / PS_PER_MS)} ms"
        notes.append(f"The clocks of TPU and host differ by {apart}; tfperf corrects this.")
    return tuple(notes)


def _recorded(hosts: Sequence[HostEnvironment]) -> Iterator[Fact]:
    yield from _fact("recorded_host", "Host name", listed([host.recorded_host for host in hosts if host.recorded_host]))
    chips = join_chips(host.chips for host in hosts)
    if chips is not None and chips.numbers and (chips.missing or chips.recorded > 1):
        of_all = f"of {len(chips.program_devices)} that run {chips.program}" if chips.missing else ""
        yield Fact("chips", f"{chips.noun.capitalize()} numbers", ranges_of(chips.numbers), note=of_all)
    others = (("jaxlib", "jaxlib_version"), ("libtpu", "libtpu_version"))
    with_it = ", ".join(f"{name} {version}" for name, key in others if (version := _values(hosts, key)))
    jax = _values(hosts, "jax_version")
    yield from _fact("jax_version", "JAX", jax or with_it, note=with_it if jax else "")


def _added(hosts: Sequence[HostEnvironment]) -> Iterator[Fact]:
    facts = [host.facts for host in hosts]
    software = (("Keras", "keras_version"), ("Python", "python_version"), ("captured by tfperf", "tfperf_version"))
    with_it = [f"{name} {version}" for name, key in software if (version := _values(facts, key))]
    tensorflow, python = _values(facts, "tensorflow_version"), _values(facts, "python_version")
    yield from _fact("tensorflow_version", "TensorFlow", tensorflow, note=", ".join(with_it))
    if tensorflow is None:
        others = [text for text in with_it if not text.startswith("Python ")]
        yield from _fact("python_version", "Python", python, note=", ".join(others))
    yield from _fact("cpu_model", "CPU", _values(facts, "cpu_model"))
    limits = [_core_limits(host) for host in hosts]
    yield from _fact("cores", "Cores", _values(hosts, "cores"), "count", listed([*dict.fromkeys(filter(None, limits))]))
    busy = facts[0].busy_cores if len(facts) == 1 else None
    note = "mean number that the job kept busy during the capture"
    yield from _fact("busy_cores", "Busy cores", None if busy is None else round(busy, 2), "count", note)
    limited = any(each.memory_limit_bytes for each in facts)
    memory = _values(facts, "usable_memory_bytes")
    yield from _fact("host_memory", "Host memory", memory, "bytes", "limited by cgroups" if limited else "")
    cuda = _values(facts, "cuda_version")
    driver = _values(facts, "gpu_driver_version")
    built = f"TensorFlow is built for CUDA {cuda}" * bool(cuda)
    yield from _fact("gpu_driver_version", "GPU driver", driver, note=built)
    overhead = max((each.overhead_percent for each in facts if each.overhead_percent is not None), default=None)
    note = "increase of the median step time during the capture"
    yield from _fact("overhead", "Profiling overhead", overhead, "%", note)


def _fact(key: str, title: str, value: float | str | None, unit: Unit = "", note: str = "") -> Iterator[Fact]:
    if value not in (None, ""):
        yield Fact(key, title, value, unit if isinstance(value, (int, float)) else "", note)


def _values(rows: Iterable[object], key: str) -> float | str | None:
    """Return the value that all hosts share, else a list of the values; None if no host has one."""
    values = [value for row in rows if (value := getattr(row, key)) is not None]
    whole = (int(value) if isinstance(value, float) and value.is_integer() else value for value in values)
    distinct = list(dict.fromkeys(whole))
    if len(distinct) < 2:
        return next(iter(distinct), None)
    return listed([*map(str, distinct)])


def _core_limits(host: HostEnvironment) -> str:
    facts = host.facts
    if host.cores is None:
        return ""
    if facts.cores is None:
        return "as counted by tf.data"
    if facts.cpu_quota and facts.cpu_quota == facts.cores:
        return f"limited by CPU quota, of {facts.cpu_affinity or facts.cpu_count}"
    if facts.cpu_count and facts.cpu_affinity and facts.cpu_affinity < facts.cpu_count:
        return f"limited by CPU affinity, of {facts.cpu_count}"
    return ""
