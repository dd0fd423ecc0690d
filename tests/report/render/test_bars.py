"""A bar of letters."""

from __future__ import annotations

import pytest

from tfperf.report.render.text_table import bar_text


@pytest.mark.parametrize(
    ("share", "interactive", "bar"),
    [
        (1, False, "####"),
        (0.5, False, "##"),
        (1e-9, False, "#"),
        (1, True, "████"),
        (0.5 + 1 / 32, True, "██▏"),
        (1e-9, True, "▏"),
    ],
)
def test_a_bar_is_as_long_as_its_share(share: float, interactive: bool, bar: str) -> None:
    assert bar_text(share, 4, interactive=interactive) == bar
