"""The public API is `tfperf.__all__`: each name is there, and says what it is; test_docs.py checks the page."""

from __future__ import annotations

import ast
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import pytest
from places import ROOT

import tfperf

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = [name for name in tfperf.__all__ if name != "__version__"]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


@pytest.mark.parametrize("name", tfperf.__all__)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    value = getattr(tfperf, name)
    assert isinstance(value, str) or value.__doc__


def test_pages_call_only_public_names() -> None:
    called = set(re.findall(r"(?<![\w.\[])tfperf\.(\w+)\(", TEXT))
    assert {"load", "profile", "check"} <= called <= {*tfperf.__all__}


def test_errors_share_one_base() -> None:
    errors = [getattr(tfperf, name) for name in tfperf.__all__ if name.endswith("Error")]
    assert len(errors) > 1
    assert all(issubclass(error, tfperf.TfperfError) for error in errors)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'anything_else'"):
        getattr(tfperf, "anything_else")  # noqa: B009


def declared_imports() -> dict[str, str]:
    """Return what type checkers are told: where each public name is."""
    tree = ast.parse(Path(str(tfperf.__file__)).read_text(encoding="utf-8"))
    conditions = (node for node in tree.body if isinstance(node, ast.If))
    block = next(node for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING")
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    return {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in imports for alias in node.names}


def test_one_name_is_the_same_for_type_checkers_and_for_programs() -> None:
    declared = declared_imports()
    assert sorted(declared) == NAMES
    for name, place in declared.items():
        assert getattr(tfperf, name) is resolve_name(place)


def test_dir_has_the_public_names_and_imports_nothing() -> None:
    code = "import sys, tfperf; print(*dir(tfperf)); assert 'numpy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {*tfperf.__all__, "__doc__"} <= set(done.stdout.split())
    assert [name for name in done.stdout.split() if not name.startswith("__")] == [
        name for name in tfperf.__all__ if name != "__version__"
    ]


def test_help_has_a_line_for_each_name() -> None:
    text = pydoc.plain(pydoc.render_doc(tfperf))
    names = text.split("Public names:")[1].split("PACKAGE CONTENTS")[0].strip().splitlines()
    lines = dict(line.strip().split(maxsplit=1) for line in names)
    assert sorted(lines) == NAMES
    assert max(map(len, lines.values())) < 80


@pytest.mark.parametrize("name", [name for name in tfperf.__all__ if name[0].isupper()])
def test_help_knows_the_fields_of_each_class(name: str) -> None:
    assert name in pydoc.render_doc(getattr(tfperf, name))


def test_an_editor_completes_the_public_names(root: Path) -> None:
    import jedi

    project = jedi.Project(root / "src", smart_sys_path=False, added_sys_path=[str(root / "src")])
    script = jedi.Script("import tfperf\ntfperf.", path=root / "example.py", project=project)
    found = {completion.name for completion in script.complete(2, 7)}
    assert set(NAMES) <= found


def test_a_type_checker_is_asked_for_each_public_name() -> None:
    """`make lint` lets mypy read that file; other packages' type checkers read types only where `py.typed` is."""
    text = (ROOT / "tests" / "typed_results.py").read_text(encoding="utf-8")
    assert re.findall(r"tfperf\.(\w+)\.nothing\)  # type: ignore", text) == NAMES
    assert Path(str(tfperf.__file__)).with_name("py.typed").exists()
