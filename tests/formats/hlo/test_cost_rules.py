"""Pairs of a window and an output that meet an element, against counting them one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tfperf.formats.hlo.cost_rules import valid_pairs
from tfperf.formats.hlo.model import WindowDim

FEW = st.integers(1, 12)


def counted(size: int, window: int, output: int, dim: WindowDim) -> int:
    positions = [
        place * dim.stride + k * dim.window_dilation - dim.low for place in range(output) for k in range(window)
    ]
    return sum(at % dim.base_dilation == 0 and 0 <= at // dim.base_dilation < size for at in positions)


@given(
    st.tuples(FEW, FEW, FEW),
    st.builds(
        WindowDim,
        stride=st.integers(1, 5),
        low=st.integers(-6, 9),
        window_dilation=st.integers(1, 5),
        base_dilation=st.integers(1, 6),
    ),
)
def test_as_if_counted(sizes: tuple[int, int, int], dim: WindowDim) -> None:
    assert valid_pairs(*sizes, dim) == counted(*sizes, dim)


def test_a_window_of_three_at_the_edges() -> None:
    """Same padding: the first and the last output miss one place each."""
    assert valid_pairs(32, 3, 32, WindowDim(3, low=1, high=1)) == 3 * 32 - 2
    assert valid_pairs(28, 3, 26, WindowDim(3)) == 3 * 26


def test_an_input_gradient_multiplies_as_often_as_its_forward_pass() -> None:
    forward = valid_pairs(32, 3, 16, WindowDim(3, stride=2, low=0, high=1))
    backward = valid_pairs(16, 3, 32, WindowDim(3, low=2, high=1, base_dilation=2))
    assert forward == backward == 3 * 16 - 1


def test_huge_sizes_take_no_time() -> None:
    assert valid_pairs(1 << 62, 1 << 61, 1 << 62, WindowDim(stride=1, low=0)) == (1 << 61) * (1 << 62) - (
        (1 << 61) * ((1 << 61) - 1) // 2
    )
    assert valid_pairs(1 << 62, 1 << 62, 1 << 62, WindowDim(stride=3, base_dilation=1 << 40)) is None


def test_nothing_meets_nothing() -> None:
    assert valid_pairs(0, 3, 5, WindowDim(3)) == 0
    assert valid_pairs(5, 3, 5, WindowDim(3, stride=0)) == 0
