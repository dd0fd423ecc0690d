"""The section about what the job ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfperf.report.model import Column, Data, Fact, Section
from tfperf.sections.registry import TableSpec, fields, present
from tfperf.sections.results import Results
from tfperf.units import PS_PER_MS

if TYPE_CHECKING:
    from tfperf.sections.environment.analysis import HostEnvironment


def build(results: Results) -> Section:
    """Build the section: how many hosts and devices, and a table of hosts."""
    hosts: tuple[HostEnvironment, ...] = results["environment"]
    facts = (
        Fact("hosts", "Hosts", len(hosts), "count"),
        Fact("devices", "Devices", sum(host.device_count for host in hosts), "count", "that recorded events"),
        Fact("attribution", "Attribution", results.attribution),
    )
    return Section("environment", "Run environment", facts=facts, tables=present(HOSTS.build(results)))


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
    return {**fields(_COLUMNS, hosts), "duration_ms": [host.duration_ps / PS_PER_MS or None for host in hosts]}


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
