"""Check what MkDocs does not: that pages look as their Markdown says, and load nothing from elsewhere.

    python tools/check_site.py build/pages build/site

On the site, a table or a block of code in a list needs four spaces, where a repository view takes two or three.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

_FENCE = re.compile(r"^ *```(\w+\n).*?^ *```$", re.DOTALL | re.MULTILINE)
_TABLE = re.compile(r"^ *\|[-| :]+\|$", re.MULTILINE)
_RAW = re.compile(r"(^|\n) *([-*] |\d+\. |\||```|#+ |:::)")
LOADS = {"script": "src", "img": "src", "iframe": "src", "link": "href"}


class Page(HTMLParser):
    """What is on a page: how many tables and blocks of code, texts of paragraphs, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.paragraphs: list[str] = []
        self.loaded: list[str] = []
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: D102
        self.count[tag] += 1
        self._within.append(tag)
        if tag == "p":
            self.paragraphs.append("")
        if address := dict(attrs).get(LOADS.get(tag, "")):
            self.loaded.append(address)

    def handle_endtag(self, tag: str) -> None:  # noqa: D102
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:  # noqa: D102
        if "p" in self._within and "code" not in self._within:
            self.paragraphs[-1] += data


def problems(markdown: Path, html: Path) -> list[str]:
    """Return what is wrong with a page."""
    source = markdown.read_text(encoding="utf-8")
    page = Page(html.read_text(encoding="utf-8"))
    found = [f"loads {address}" for address in page.loaded if address.startswith(("http", "//"))]
    found += [f"shows its Markdown: {text[:60]!r}" for text in page.paragraphs if _RAW.search(text)]
    blocks, tables = len(_FENCE.findall(source)), len(_TABLE.findall(_FENCE.sub("", source)))
    # Signatures of docstrings are blocks of code too.
    if "::: tfperf." not in source and (page.count["pre"], page.count["table"]) != (blocks, tables):
        found.append(f"has {page.count['pre']} blocks and {page.count['table']} tables, not {blocks} and {tables}")
    return found


def main(pages: Path, site: Path) -> None:
    """Check all pages; exit code 1 if anything is wrong."""
    markdown = sorted(pages.rglob("*.md"))
    wrong = [
        f"{path.name} {problem}"
        for path in markdown
        for problem in problems(path, (site / path.relative_to(pages)).with_suffix(".html"))
    ]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(markdown)} pages look as they should and load nothing from elsewhere")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
