"""Environment: hosts and devices, and recorded hardware and software versions."""

from __future__ import annotations

from tfperf.analysis.registry import Results, SectionSpec, TableSpec, fields
from tfperf.base.units import PS_PER_MS
from tfperf.report.model import Column, Data, Ranked
from tfperf.trace.known_stats import CORES

_ADDED = (
    Column("cores", "CPU cores", float, "count", "CPU cores that the job can use", level="data"),
    Column("cpu_model", "CPU", str, "", "model of the host's CPU", level="data"),
    Column("memory_bytes", "Host memory", int, "bytes", "memory of the host", level="data"),
    Column("memory_limit_bytes", "Limit", int, "bytes", "part of it that the cgroups of the job allow", level="data"),
    Column("tensorflow_version", "TensorFlow", str, "", "version of TensorFlow", level="data"),
    Column("keras_version", "Keras", str, "", "version of Keras", level="data"),
    Column("python_version", "Python", str, "", "version of Python", level="data"),
    Column("gpu_driver_version", "Driver", str, "", "version of the NVIDIA driver", level="data"),
    Column("cuda_version", "CUDA", str, "", "CUDA version that TensorFlow was built for", level="data"),
    Column("overhead_percent", "Overhead", float, "%", "increase of step time by profiling", level="data"),
    Column("usual_step_ms", "Usual step", float, "ms", "median step before the capture", level="data"),
    Column("busy_cores", "Busy cores", float, "count", "mean number of cores that the job kept busy", level="data"),
)


_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device_type", "Device", str, "", "CPU, GPU or TPU"),
    Column("device_model", "Model", str, "", "device model"),
    Column("device_count", "Devices", int, "count", "devices that recorded events"),
    Column("idle_devices", "Idle", int, "count", "devices listed without events"),
    Column("device_cores", "Device cores", int, "count", "multiprocessors of one device"),
    Column("device_memory_bytes", "Memory", int, "bytes", "memory of one device", level="data"),
    Column("event_count", "Events", int, "count", "events in the file"),
    Column("size_bytes", "Size", int, "bytes", "size of the file", level="data"),
    Column(
        "start_ms",
        "Start",
        float,
        "ms",
        "start of the first event on the clock of the trace (like all start times)",
        level="data",
    ),
    Column(
        "duration_ms", "Capture", float, "ms", "from the first to the last event, including events without duration"
    ),
    Column("path", "File", str, "", "the trace file", level="data"),
    *_ADDED,
)


def _hosts(results: Results) -> Data:
    hosts = results["environment"]
    return {
        **fields(_COLUMNS, hosts),
        **fields(_ADDED[1:], [host.facts for host in hosts]),
        "start_ms": [host.start_ps / PS_PER_MS if host.event_count else None for host in hosts],
        "duration_ms": [host.duration_ps / PS_PER_MS or None for host in hosts],
    }


HOSTS = TableSpec(
    name="environment",
    title="Hosts",
    row="hosts and their devices",
    details="One row per host.",
    columns=_COLUMNS,
    data=_hosts,
    name_key="host",
    ranked=Ranked("event_count", each="hosts", least_is_worst=True),
)


TABLES = (HOSTS,)

SECTION = SectionSpec(
    name="environment",
    title="Run environment",
    analyze="tfperf.sections.environment.analysis:analyze",
    combine="tfperf.sections.environment.analysis:Environment",
    stats=CORES,
    build="tfperf.sections.environment.section:build",
    tables=TABLES,
)
