"""Check or apply maps of words: old texts of the source, and the plain ones that replace them.

    python tests/oracle/words.py check tests/oracle/words/*.toml
    python tests/oracle/words.py apply tests/oracle/words/*.toml

An entry has `file` (below src/tfperf; other files are searched if the text is not there), `old` and `new`. A text is
part of one string literal, as in the source, with its placeholders. A list holds the whole contents of consecutive
literals; `new` may have fewer. `all = true` replaces every occurrence. Run `ruff format` afterwards.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import tomllib

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tfperf"
_LITERAL = re.compile(r"(?s)^([rRbBfFuU]*)('''|\"\"\"|'|\")(.*)\2$")
Text = str | list[str]


class Literal(NamedTuple):
    """A string literal: its offsets in the source, prefix, quotes and content."""

    start: int
    end: int
    prefix: str
    quotes: str
    content: str


def literals(source: str) -> list[Literal]:
    """Return the string literals of a module in order."""
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        match = _LITERAL.match(token.string) if token.type == tokenize.STRING else None
        if match:
            start, end = (offsets[row - 1] + column for row, column in (token.start, token.end))
            found.append(Literal(start, end, match[1], match[2], match[3]))
    return found


def places(source: str, old: Text) -> list[list[Literal]]:
    """Return the literals that hold a text, or the runs of consecutive literals whose contents are a list."""
    every = literals(source)
    if isinstance(old, str):
        return [[each] for each in every if old in each.content]
    runs = [every[start : start + len(old)] for start in range(len(every) - len(old) + 1)]
    return [
        run
        for run in runs
        if [each.content for each in run] == old
        and not any(re.sub(r"#[^\n]*", "", source[a.end : b.start]).strip(" \t\n\\") for a, b in pairwise(run))
    ]


def replaced(source: str, run: list[Literal], old: Text, new: Text) -> str:
    """Return the source with the new text in a run of literals."""
    first = run[0]
    if isinstance(old, str) and isinstance(new, str):
        content = first.content.replace(old, new)
        needs_f = "{" in content and "{" not in first.content and "f" not in first.prefix.lower()
        text = f"{'f' * needs_f}{first.prefix}{first.quotes}{content}{first.quotes}"
    else:
        parts = [new] if isinstance(new, str) else new
        is_formatted = any("f" in each.prefix.lower() for each in run)
        gap = source[first.end : run[1].start] if len(run) > 1 else " "
        text = gap.join(
            f"{'f' * (is_formatted and '{' in part)}{each.quotes}{part}{each.quotes}"
            for part, each in zip(parts, [*run, *[run[-1]] * len(parts)], strict=False)
        )
    return source[: first.start] + text + source[run[-1].end :]


def hits(entry: dict[str, Any]) -> list[tuple[Path, list[Literal]]]:
    """Return the places of an entry: those of its file, else those of all other files."""
    named = SOURCE / entry["file"]
    others = (path for path in sorted(SOURCE.rglob("*.py")) if path != named)
    here = [(named, run) for run in places(named.read_text("utf-8"), entry["old"])] if named.is_file() else []
    return here or [(path, run) for path in others for run in places(path.read_text("utf-8"), entry["old"])]


def main() -> int:
    """Check or apply the maps; return 1 if an entry has no place, or several."""
    mode, *maps = sys.argv[1:]
    entries = [entry for name in maps for entry in tomllib.loads(Path(name).read_text("utf-8"))["word"]]
    bad = 0
    for entry in entries:
        found = hits(entry)
        if not found or (len(found) > 1 and not entry.get("all")):
            bad += 1
            print("several" if found else "not found", entry["file"], entry["old"])
        elif mode == "apply":
            for path, run in reversed(found):
                path.write_text(replaced(path.read_text("utf-8"), run, entry["old"], entry["new"]), "utf-8")
    print(f"{len(entries):,} entries, {bad:,} bad")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
