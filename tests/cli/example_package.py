"""A package of somebody else with two sections of its own, of which one fails; and tfperf run beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from places import ROOT

SOURCE = """
from tfperf import Column, Section, SectionSpec, TableSpec


def data(results):
    return {"rows": [1 / 0]}


def times(results):
    return {"name": ["a"], "longest_ps": [2_000_000]}


FAILING = TableSpec(
    name="acme", title="Acme", row="rows", name_key="rows", columns=(Column("rows", "Rows", int, "count", "rows"),),
    data=data,
)
TIMES = TableSpec(
    name="acme_times", title="Times", row="names", name_key="name",
    columns=(Column("name", "Name", str, "", "name"), Column("longest_ps", "Longest", int, "ps", "the longest")),
    data=times,
)


def build(results):
    return Section("acme", "Acme")


def section(name, *tables):
    return SectionSpec(
        name=name, title=name, build=build, tables=tables, analyze=lambda host: 0, combine=lambda results: 0
    )


ACME = section("acme", FAILING)
ACME_TIMES = section("acme_times", TIMES)
"""
ENTRY_POINTS = "[tfperf.sections]\nacme = acme:ACME\nacme_times = acme:ACME_TIMES\n"


def run_with_package(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in an environment in which the package is installed."""
    metadata = folder / "packages" / "acme-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    (metadata.parent / "acme.py").write_text(SOURCE)
    source = ROOT / "src"
    environment = {**os.environ, "PYTHONPATH": f"{metadata.parent}{os.pathsep}{source}", "COLUMNS": "80"}
    command = [sys.executable, "-m", "tfperf", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=120)
