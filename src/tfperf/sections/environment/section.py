"""The section about what the job ran on."""

from __future__ import annotations

from tfperf.report.model import Fact, Section
from tfperf.sections.environment.analysis import HostEnvironment
from tfperf.sections.environment.tables import HOSTS
from tfperf.sections.results import Results
from tfperf.sections.spec import present


def build(results: Results) -> Section:
    """Build the section: how many hosts and devices, and a table of hosts."""
    hosts: tuple[HostEnvironment, ...] = results["environment"]
    facts = (
        Fact("hosts", "Hosts", len(hosts), "count"),
        Fact("devices", "Devices", sum(host.device_count for host in hosts), "count", "that recorded events"),
        Fact("attribution", "Attribution", results.attribution),
    )
    return Section("environment", "Run environment", facts=facts, tables=present(HOSTS.build(results)))
