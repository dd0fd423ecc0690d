"""What tfperf needs: each dependency has a reason, and bounds that the pages repeat."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOR_DEVELOPERS = {"test", "dev", "docs", "site"}
"""Extras of no user: what they hold is not reported in the page."""


def users_requirements(root: Path) -> dict[str, Requirement]:
    """Dependencies of the package and of the extras that users install, by name."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for name in extras.keys() - FOR_DEVELOPERS for text in extras[name])]
    requirements = [requirement for requirement in map(Requirement, texts) if requirement.name != project["name"]]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def test_every_dependency_is_explained_with_its_bounds(root: Path) -> None:
    page = (root / "docs" / "architecture-reasons.md").read_text()
    section = page.split("## Which library does what")[1].split("\n## ")[0]
    bounds = map(Requirement, re.findall(r"^\|[^|]+\|[^|]+\| `([^`]+)`", section, re.MULTILINE))
    explained = {canonicalize_name(requirement.name): requirement.specifier for requirement in bounds}
    required = {name: requirement.specifier for name, requirement in users_requirements(root).items()}
    assert explained == required
    assert [name for name, bounds in required.items() if not any(each.operator == ">=" for each in bounds)] == []


@pytest.mark.parametrize("bounds", ["oldest", "newest"])
def test_the_recipe_of_the_scheduled_job_names_targets_that_exist(bounds: str, root: Path) -> None:
    assert re.search(rf"^[a-z ]*\b{bounds}\b[a-z ]*:", (root / "Makefile").read_text(), re.MULTILINE)
    assert bounds in (root / "CONTRIBUTING.md").read_text()
    versions = (root / ".ci" / "versions").read_text()
    tests = re.findall(r"tests/[a-z_/.]+", versions)
    assert f"{bounds})" in versions
    assert [path for path in tests if not (root / path).exists()] == []
