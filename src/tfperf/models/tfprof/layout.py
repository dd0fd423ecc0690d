"""Rows of a view as boxes: each as wide as its total, inside the row above it, siblings beside each other."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Int64s
from tfperf.models.tfprof.options import PLACE, Attribute
from tfperf.models.tfprof.views import Shown
from tfperf.report.flame_tree import placed


class Boxes(Struct, frozen=True, kw_only=True):
    """Where the box of each row begins, how wide it is, and how many rows are above it."""

    start: Int64s
    width: Int64s
    level: Int64s


def layout(shown: Shown, attribute: Attribute) -> Boxes:
    """Return the boxes of all rows of a view, by the totals of an attribute, as `placed` puts them."""
    start, width = placed(shown.tree.depth, shown.total[PLACE[attribute]])
    return Boxes(start=start, width=width, level=np.asarray(shown.tree.depth - shown.tree.depth[0], np.int64))
