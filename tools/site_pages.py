"""Lay out the pages of the repository as the site wants them: all in one folder, with links between them that hold.

    python tools/site_pages.py build/pages

In the repository, pages lie beside what they are about, and links lead from folder to folder. On the site they lie side
by side. The table `<!-- names: load check -->` of public names becomes their docstrings.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "sample_traces/NOTES.md": "samples.md",
    "LICENSE": "license.txt",
}
"""Where files go that are not in `docs/`, or have another name there."""
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\()(?!\w+:)([^)#\s]+)")
_NAMES = re.compile(r"^<!-- names: (.*?) -->\n.*?^<!-- end -->$", re.DOTALL | re.MULTILINE)


def main(folder: Path) -> None:
    """Write all pages into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = placed()
    for source, page in pages.items():
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            target.write_text(as_page(source, pages), encoding="utf-8")
        else:
            shutil.copy(ROOT / source, target)


def placed() -> dict[str, str]:
    """Return the place on the site of each file, by its path in the repository."""
    docs = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*")) if path.is_file()]
    return {path: path.removeprefix("docs/") for path in docs} | ELSEWHERE


def as_page(source: str, pages: dict[str, str]) -> str:
    """Return the text of a page with the links of the site; links in examples stay as they are."""
    text = (ROOT / source).read_text(encoding="utf-8")
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [with_links(text[end : fence.start()], source, pages), fence[0]]
        end = fence.end()
    whole = "".join([*parts, with_links(text[end:], source, pages)])
    return _NAMES.sub(lambda names: "\n\n".join(f"::: tfperf.{name}" for name in names[1].split()), whole)


def with_links(text: str, source: str, pages: dict[str, str]) -> str:
    """Return a text whose links lead to places on the site. What is not on the site ends the program."""

    def link(match: re.Match[str]) -> str:
        path = os.path.normpath(Path(source).parent / match[2])
        if path not in pages:
            sys.exit(f"{source} links to {match[2]}, which is not on the site")
        return match[1] + os.path.relpath(pages[path], Path(pages[source]).parent)

    return _LINK.sub(link, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
