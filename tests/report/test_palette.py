"""The palette as people with color vision deficiencies see it, and in grey."""

from itertools import combinations

import numpy as np
import pytest

from tfperf.report.palette import ROLES, RoleStyle

# Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB.
VISION = {
    "normal": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
D65 = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """Return CIE L*a*b* of linear RGB."""
    relative = np.clip(rgb, 0, 1) @ TO_XYZ.T / D65
    f = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_roles_stay_apart_for_every_reader(vision: str) -> None:
    seen = {role: lab(VISION[vision] @ linear(style.colour)) for role, style in ROLES.items()}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) >= 20, (one, other)
        assert abs(lab(linear(ROLES[one].colour))[0] - lab(linear(ROLES[other].colour))[0]) >= 8, (one, other)


@pytest.mark.parametrize("style", ROLES.values(), ids=ROLES)
def test_text_on_a_segment_is_readable(style: RoleStyle) -> None:
    on, ink = (float(linear(colour) @ TO_XYZ[1]) for colour in (style.colour, style.ink))
    assert (max(on, ink) + 0.05) / (min(on, ink) + 0.05) >= 4.5  # WCAG 2.1 AA


def test_letters_and_basic_colors_are_distinct() -> None:
    assert len({style.letter for style in ROLES.values()}) == len(ROLES)
    assert len({style.basic for style in ROLES.values()}) == len(ROLES)
