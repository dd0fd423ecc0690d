"""docs/notebook.ipynb runs from its first cell to its last, and its stored outputs are those of today.

Outputs of cells that are tagged `varies` (times of a job, tables of pandas) and the bytes of pictures are not compared,
and `make docs` keeps them as they are; to renew one, clear it, then run `make docs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from job_environment import LAZILY
from places import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def executed() -> Any:
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False, resources=resources)
    places = filter(None, [str(LAZILY), os.environ.get("PYTHONPATH")])
    client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(places)})
    return notebook


def kinds_of(cell: Any) -> list[tuple[str, ...]]:
    return [(output.output_type, *sorted(output.get("data", {}))) for output in cell.get("outputs", [])]


def settled(new: Any, stored: Any) -> Any:
    """Return the outputs of a cell, but what varies as it is stored, if anything is."""
    if not stored.outputs or "varies" in new.metadata.get("tags", []):
        return stored.outputs or new.outputs
    for output, before in zip(new.outputs, stored.outputs, strict=False):
        if "image/png" in output.get("data", {}) and "image/png" in before.get("data", {}):
            output.data["image/png"] = before.data["image/png"]
            output.metadata = before.metadata
    return new.outputs


def test_the_outputs_are_those_of_today(executed: Any, compare_gold: Callable[[Path, str], None]) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    for new, before in zip(executed.cells, stored.cells, strict=True):
        if new.cell_type == "code":
            new.outputs = settled(new, before)
    executed.metadata = stored.metadata
    compare_gold(NOTEBOOK, nbformat.writes(executed) + "\n")


def test_what_varies_is_shown_all_the_same(executed: Any) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    pairs = [pair for pair in zip(executed.cells, stored.cells, strict=True) if pair[0].cell_type == "code"]
    assert [kinds_of(new) for new, _ in pairs] == [kinds_of(before) for _, before in pairs]
    of_magic = next(cell for cell, _ in pairs if cell.source.startswith("%%tfperf"))
    assert any("text/html" in kind for kind in kinds_of(of_magic))
