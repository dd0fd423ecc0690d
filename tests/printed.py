"""What the command line prints about a run; reports that several tests read are made once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner, Result

from tfperf.analysis.load import Analysis, load
from tfperf.cli import main

Run = Callable[..., Result]
"""The fixture `run_tfperf`."""


def load_once() -> Callable[..., Analysis]:
    """Return `tfperf.load`, which keeps what it has returned: a profile is analyzed once for all formats."""
    kept: dict[str, Analysis] = {}

    def load_or_keep(path: object, **options: object) -> Analysis:
        key = f"{Path.cwd()} {path} {options}"
        if key not in kept:
            kept[key] = load(path, **options)  # type: ignore[arg-type]
        return kept[key]

    return load_or_keep


class Printed:
    """The answers about one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = cache(self._text)
        self._load = load_once()

    def run(self, command: str, *words: str | Path) -> tuple[str, int]:
        """Return stdout and the exit code of a command, such as `tfprof op`, of the run."""
        with patch("tfperf.analysis.load.load", self._load):
            done = CliRunner().invoke(main, [*command.split(), str(self.path), *map(str, words)])
        return done.stdout, done.exit_code

    @cached_property
    def document(self) -> Any:
        """The JSON report."""
        return json.loads(self.run("analyze", "--format", "json")[0])

    def rows(self, section: str, table: str, key: str = "") -> Any:
        """Return the rows of a table of the JSON report; by a column if one is named."""
        rows = self.document["sections"][section]["tables"][table]["rows"]
        return {row[key]: row for row in rows} if key else rows

    def facts(self, section: str) -> Any:
        """Return the facts of a section of the JSON report."""
        return self.document["sections"][section]["facts"]

    def _text(self, *options: str) -> str:
        """Return a report on one line, so that no phrase is broken."""
        return " ".join(self.run("analyze", "--color", "never", *options)[0].split())


def missing(text: str, *phrases: str) -> list[str]:
    """Return the phrases that are not in a text."""
    return [phrase for phrase in phrases if phrase not in text]
