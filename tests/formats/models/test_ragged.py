"""Shapes of tensors as arrays."""

from __future__ import annotations

import numpy as np

from tfperf.formats.models.dtypes import shapes


def test_elements_are_the_product_of_known_dimensions() -> None:
    some = shapes([[4, 8], None, [1], [3, -1], [], [7, 0, 2]])
    assert some.elements().tolist() == [32, 0, 1, 0, 0, 0]


def test_more_elements_than_a_number_holds_are_not_counted() -> None:
    assert shapes([[1 << 40, 1 << 40], [1 << 40, 4]]).elements().tolist() == [0, 1 << 42]


def test_nothing_has_no_elements() -> None:
    assert shapes([]).elements().tolist() == []


def test_taking_keeps_order_and_knows_what_is_missing() -> None:
    some = shapes([[4, 8], [2], None]).take(np.array([2, 1, -1, 0]))
    assert [some.dims(place) for place in range(4)] == [(), (2,), (), (4, 8)]
    assert some.known.tolist() == [False, True, False, True]


def test_taking_from_nothing() -> None:
    assert shapes([]).take(np.array([-1, -1])).known.tolist() == [False, False]
