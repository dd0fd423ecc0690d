"""What is declared of each kind of address, held against the libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfperf.base.storage.remote_path import SCHEMES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_each_scheme_is_one_of_fsspec_and_its_extra_exists(name: str, root: Path) -> None:
    from fsspec.registry import known_implementations

    scheme = SCHEMES[name]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert scheme.protocol in known_implementations
    assert any(requirement.startswith("fsspec") or "tfperf[" in requirement for requirement in extras[scheme.extra])


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_each_scheme_is_in_the_page(name: str, root: Path) -> None:
    assert f"`{name}://" in (root / "docs" / "remote.md").read_text()
