"""The table of hosts."""

from __future__ import annotations

from tfperf.report.model import Column, Data
from tfperf.sections.results import Results
from tfperf.sections.spec import TableSpec
from tfperf.units import PS_PER_MS

_COLUMNS = (
    Column("host", "Host", str, "", "name of the trace file"),
    Column("device_type", "Device", str, "", "CPU, GPU or TPU"),
    Column("device_model", "Model", str, "", "device model"),
    Column("device_count", "Devices", int, "count", "devices that recorded events"),
    Column("idle_devices", "Idle", int, "count", "devices listed without an event"),
    Column("device_cores", "Cores", int, "count", "multiprocessors of one device"),
    Column("device_memory_bytes", "Memory", int, "bytes", "memory of one device", level="data"),
    Column("event_count", "Events", int, "count", "events in the file"),
    Column("size_bytes", "Size", int, "bytes", "size of the file", level="data"),
    Column("duration_ms", "Capture", float, "ms", "from the first to the last event"),
    Column("path", "File", str, "", "the trace file", level="data"),
)


def _hosts(results: Results) -> Data:
    hosts = results["environment"]
    recorded = {column.key: [getattr(host, column.key, None) for host in hosts] for column in _COLUMNS}
    return {**recorded, "duration_ms": [host.duration_ps / PS_PER_MS for host in hosts]}


HOSTS = TableSpec(
    name="environment",
    title="Hosts",
    row="hosts and their devices",
    details="One row per host.",
    columns=_COLUMNS,
    data=_hosts,
    name_key="host",
)
TABLES = (HOSTS,)
