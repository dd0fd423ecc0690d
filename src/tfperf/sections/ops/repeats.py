"""Ops of replicas and of repeated layers, added up: a large model has thousands of ops, and dozens of different ones.

Ops are one row if their names differ in nothing but the numbers of replicas, towers, layers and blocks, and their types
are equal. Of what XLA compiled, the program and the kind of HLO op (`fusion.3`, `fusion.8`) must be the same too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from tfperf.base.arrays import Bools
from tfperf.sections.ops.groups import group_without_path
from tfperf.sections.ops.op_table import OpKey, OpTable
from tfperf.trace.name_patterns import name_of_repeated, pattern_of

_HLO_NUMBER = re.compile(r"\.\d+")


def repeated_ops(table: OpTable, keep: Bools) -> dict[str, list[object]] | None:
    """Return the columns of `OpTable` with a row for ops that repeat each other; None if none of those to `keep` do.

    `keep` has one entry per op; shares stay of all ops. The column `ops` counts the ops of a row.
    """
    kept = table.only(np.flatnonzero(keep))
    keys = common_keys(kept.keys)
    counts = Counter(keys)
    if len(counts) == len(keys):
        return None
    summed = kept.under(keys)
    return {**summed.columns(whole_ps=table.all_self_ps), "ops": [counts[key] for key in summed.keys]}


def common_keys(keys: Sequence[OpKey]) -> list[OpKey]:
    """Return for each op the key of its row: one for all ops that repeat each other."""
    alike = defaultdict[OpKey, list[int]](list)
    for place, key in enumerate(keys):
        alike[_pattern(key)].append(place)
    common = list(keys)
    for places in alike.values():
        members = [keys[place] for place in places]
        # Without a number in their name, several HLO ops of one op stay apart.
        if len({key.name for key in members}) > 1:
            of_all = _common(members)
            for place in places:
                common[place] = of_all
    return common


def _pattern(key: OpKey) -> OpKey:
    """Return what ops of one row have in common; names that are no paths have no layers."""
    if group_without_path(key):
        return key
    return key._replace(name=pattern_of(key.name), hlo_op=_HLO_NUMBER.sub("", key.hlo_op))


def _common(keys: Sequence[OpKey]) -> OpKey:
    """Return the name of a row, with `*` in the place of numbers that differ."""
    hlo_ops = {key.hlo_op for key in keys}
    hlo_op = keys[0].hlo_op if len(hlo_ops) == 1 else _HLO_NUMBER.sub("", keys[0].hlo_op) + ".*"
    return keys[0]._replace(name=name_of_repeated([key.name for key in keys]), hlo_op=hlo_op)
