"""docs/notebook.ipynb runs from its first cell to its last, and its stored outputs are those of today.

Outputs of cells that are tagged `varies` (times of a job, tables of pandas) and the bytes of pictures are not compared,
and `make docs` keeps them as they are; to renew one, clear it, then run `make docs`. Its job then trains in a few more
cells, which are here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pytest
from job_environment import LAZILY
from places import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
MORE = {
    "kept": "%%tfperf kept --as found\ntrain(20)\nlast = 'the end'\nlast",
    "afterwards": "print(type(found) is tfperf.Analysis, len(found['steps'].steps), last)",
    "section": "%%tfperf -s steps\ntrain(5)",
    "error": "%%tfperf\ntrain(5)\nboom = 1 / 0",
    "own error": "%%tfperf\nraise tfperf.TfperfError('of the cell')",
    "started": "tfperf.start('started')",
    "twice": "%%tfperf\ntrain(5)",
    "stopped": "tfperf.stop()",
}

pytestmark = pytest.mark.tensorflow


@dataclass
class Executed:
    """The notebook with new outputs, the cells that were executed after its own, and the folder that they wrote to."""

    notebook: Any
    more: dict[str, Any]
    folder: Path


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    own = [*notebook.cells]
    folder = tmp_path_factory.mktemp("more")
    more = {name: nbformat.v4.new_code_cell(text) for name, text in MORE.items()}
    notebook.cells += [nbformat.v4.new_code_cell(f"%cd -q {folder}"), *more.values()]
    for cell in more.values():
        cell.metadata.tags = ["raises-exception"]
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    client = NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False, resources=resources)
    places = filter(None, [str(LAZILY), os.environ.get("PYTHONPATH")])
    client.execute(env={**os.environ, "PYTHONPATH": os.pathsep.join(places)})
    notebook.cells = own
    return Executed(notebook, more, folder)


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


def test_the_outputs_are_those_of_today(executed: Executed, compare_gold: Callable[[Path, str], None]) -> None:
    stored, notebook = nbformat.read(NOTEBOOK, as_version=4), deepcopy(executed.notebook)
    for new, before in zip(notebook.cells, stored.cells, strict=True):
        if new.cell_type == "code":
            new.outputs = settled(new, before)
    notebook.metadata = stored.metadata
    compare_gold(NOTEBOOK, nbformat.writes(notebook) + "\n")


def test_what_varies_is_shown_all_the_same(executed: Executed) -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    both = zip(executed.notebook.cells, stored.cells, strict=True)
    pairs = [pair for pair in both if pair[0].cell_type == "code"]
    assert [kinds_of(new) for new, _ in pairs] == [kinds_of(before) for _, before in pairs]
    of_magic = next(cell for cell, _ in pairs if cell.source.startswith("%%tfperf"))
    assert any("text/html" in kind for kind in kinds_of(of_magic))


def written(cell: Any, stream: str = "stdout") -> str:
    return "".join(output.text for output in cell.outputs if output.get("name") == stream)


def shown(cell: Any) -> list[Any]:
    """Return the outputs that are HTML."""
    return [output.data for output in cell.outputs if "text/html" in output.get("data", {})]


def errors(cell: Any) -> list[str]:
    return [output.ename for output in cell.outputs if output.output_type == "error"]


def test_a_cell_is_profiled_and_the_answer_shown(executed: Executed) -> None:
    cell = executed.more["kept"]
    assert errors(cell) == []
    assert f"profile: {executed.folder / 'kept'}" in written(cell)
    assert "'the end'" in str(cell.outputs)
    (answer,) = shown(cell)
    assert "Step time" in answer["text/plain"]
    assert '<div class="tfperf' in answer["text/html"]
    assert len(list((executed.folder / "kept").rglob("*.xplane.pb"))) == 1
    assert written(executed.more["afterwards"]) == "True 20 the end\n"


def test_a_cell_can_show_a_section_of_a_profile_that_is_deleted(executed: Executed) -> None:
    cell = executed.more["section"]
    assert errors(cell) == []
    (answer,) = shown(cell)
    assert answer["text/plain"].count("\nSteps\n=====") == 1
    assert "profile:" not in written(cell), "it will be deleted, so nobody needs its place"


def test_errors_of_a_cell_are_its_own_and_it_is_profiled_once(executed: Executed) -> None:
    assert errors(executed.more["error"]) == ["ZeroDivisionError"]
    assert shown(executed.more["error"]) == []
    assert errors(executed.more["own error"]) == ["TfperfError"]
    assert "tfperf is already profiling this process" in written(executed.more["twice"], "stderr")
    assert (errors(executed.more["started"]), errors(executed.more["stopped"])) == ([], [])
