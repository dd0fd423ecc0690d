"""Pages in the browser, and what is said where there is none."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tfperf.cli.analyze import new_page, show_page

Run = Callable[..., Result]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that a browser, which is in front of the user, is asked to open."""
    addresses: list[str] = []

    class Browser(webbrowser.BaseBrowser):
        def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
            addresses.append(url)
            return True

    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "_tryorder", ["test"])
    monkeypatch.setattr(webbrowser, "_browsers", {"test": [None, Browser("test")]})
    return addresses


def test_a_page_is_opened_by_its_address(opened: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "a b.html"
    show_page(page)
    assert opened == [page.as_uri()]
    assert capsys.readouterr().err == f"opened {page.as_uri()}\n"


def test_over_ssh_the_page_is_to_be_copied(
    opened: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22")
    show_page(Path("report.html"))
    assert opened == []
    said = "no browser can be opened from here (over ssh, or without a screen): copy report.html to your machine\n"
    assert capsys.readouterr().err == said


def test_each_page_has_a_place_of_its_own() -> None:
    pages = new_page("run"), new_page("run")
    assert pages[0] != pages[1]
    for page in pages:
        assert page.name == "run.html"
        page.parent.rmdir()


def test_analyze_opens_the_page_that_it_says_it_wrote(samples: Path, run_tfperf: Run, opened: list[str]) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "--open")
    assert (result.exit_code, result.stdout) == (0, "")
    said = re.fullmatch(r"wrote (.*): report \(html\)\nopened (.*)\n", result.stderr)
    assert said
    page = Path(said[1])
    assert opened == [said[2]] == [page.as_uri()]
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    page.unlink()
    page.parent.rmdir()


def test_analyze_opens_the_page_of_the_user(samples: Path, run_tfperf: Run, opened: list[str], tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert run_tfperf("analyze", samples / "input_bound", "--open", "-o", page).exit_code == 0
    assert opened == [page.as_uri()]


@pytest.mark.parametrize("options", [("-o", "x.json"), ("--format", "json"), ("-o", "-")], ids=" ".join)
def test_only_a_page_can_be_opened(options: tuple[str, ...], samples: Path, run_tfperf: Run, opened: list[str]) -> None:
    result = run_tfperf("analyze", samples / "input_bound", "--open", *options)
    assert (result.exit_code, result.stdout, opened) == (2, "", [])
    assert "--open shows a" in result.stderr
