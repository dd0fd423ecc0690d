"""Which rows of a tree are shown, in which order, with which totals; on one tree that fits on a hand.

root                    bytes of its own
  a                     10
    b                   20
      c                 30
    d                    5
  e                      0
    f                    7
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tfperf.models.tfprof.options import ATTRIBUTES, PLACE, options_from
from tfperf.models.tfprof.views import ROOT, Rules, Tree, ends, parents, show

DEPTH = [1, 2, 3, 4, 3, 2, 3]
NAMES = [ROOT, *"abcdef"]
SIZES = [0, 10, 20, 30, 5, 0, 7]
SCOPE, GRAPH, CODE = Rules(), Rules(hoists=True), Rules(trims_node=True, judges_own=False, redoes_totals=False)


def tree(counted: str = "abcdef") -> Tree:
    own = np.zeros((len(ATTRIBUTES), len(NAMES)), np.int64)
    own[PLACE["bytes"]] = SIZES
    own[PLACE["params"]] = SIZES
    own[PLACE["definitions"], 1:] = 1
    own[PLACE["runs"], 1:] = 1
    accounted = np.array([name in counted for name in NAMES])
    accounted[0] = False
    own[:, ~accounted] = 0
    return Tree(names=NAMES, node=np.arange(-1, 6), depth=np.array(DEPTH), own=own, accounted=accounted)


def shown(rules: Rules = SCOPE, counted: str = "abcdef", **given: Any) -> list[str]:
    """Return the rows that are shown as `name:depth=total`."""
    found = show(tree(counted), {}, options_from({"max_depth": 100, **given}), rules)
    totals = found.total[PLACE["bytes"]].tolist()
    rows = zip(found.tree.names, found.tree.depth.tolist(), totals, strict=True)
    return [f"{name}:{depth}={total}" for name, depth, total in rows]


ALL = [f"{ROOT}:0=72", "a:1=65", "b:2=50", "c:3=30", "d:2=5", "e:1=7", "f:2=7"]


def only(*rows: str, root: int = 72) -> list[str]:
    return [f"{ROOT}:0={root}", *rows]


def test_rows_end_where_the_next_as_high_begins() -> None:
    assert ends(np.array(DEPTH)).tolist() == [7, 5, 4, 4, 5, 7, 7]
    assert parents(np.array(DEPTH)).tolist() == [-1, 0, 1, 2, 1, 0, 5]


@pytest.mark.parametrize("rules", [SCOPE, GRAPH, CODE])
def test_a_total_is_that_of_a_row_and_all_below(rules: Rules) -> None:
    assert shown(rules) == ALL


ASKED: list[tuple[Rules, dict[str, Any], list[str]]] = [
    # Depth and size.
    (SCOPE, {"max_depth": 2}, only("a:1=65", "e:1=7")),
    (SCOPE, {"max_depth": 0}, only()),
    (CODE, {"max_depth": 0}, only()),
    (SCOPE, {"min_bytes": 10}, only("a:1=65", "b:2=50", "c:3=30")),
    (SCOPE, {"min_params": 10}, only("a:1=65", "b:2=50", "c:3=30")),
    (CODE, {"min_params": 60}, only("a:1=65")),
    (SCOPE, {"min_params": 25}, only("c:1=30")),
    (SCOPE, {"min_occurrence": 2}, only()),
    (CODE, {"min_occurrence": 2}, ALL),
    # Names.
    (SCOPE, {"show_name_regexes": ["[bf]"]}, only("b:1=50", "f:1=7")),
    (SCOPE, {"show_name_regexes": []}, only()),
    (SCOPE, {"hide_name_regexes": ["a", "c"]}, only("b:1=50", "d:1=5", "e:1=7", "f:2=7")),
    (SCOPE, {"hide_name_regexes": [".*"]}, only()),
    (SCOPE, {"trim_name_regexes": ["a"]}, only("a:1=65", "e:1=7", "f:2=7")),
    (CODE, {"trim_name_regexes": ["a"]}, only("e:1=7", "f:2=7")),
    (CODE, {"trim_name_regexes": [".*"]}, only()),
    (SCOPE, {"trim_name_regexes": [".*"]}, only()),
    # Start.
    (SCOPE, {"start_name_regexes": ["b", "f"]}, only("b:1=50", "c:2=30", "f:1=7")),
    (SCOPE, {"start_name_regexes": ["a", "b"]}, only("a:1=65", "b:2=50", "c:3=30", "d:2=5")),
    (SCOPE, {"start_name_regexes": ["b"], "max_depth": 2}, only("b:1=50")),
    (SCOPE, {"start_name_regexes": ["gone"]}, only()),
    # Order: siblings by their totals, those below stay below.
    (SCOPE, {"order_by": "bytes"}, ALL),
    (GRAPH, {"order_by": "bytes", "start_name_regexes": ["d", "c"]}, only("c:1=30", "d:1=5")),
    # Totals of what is displayed.
    (
        SCOPE,
        {"account_displayed_op_only": True, "hide_name_regexes": ["b", "f"]},
        only("a:1=45", "c:2=30", "d:2=5", "e:1=0", root=45),
    ),
    (
        CODE,
        {"account_displayed_op_only": True, "hide_name_regexes": ["b", "f"]},
        only("a:1=65", "c:2=30", "d:2=5", "e:1=7"),
    ),
    (SCOPE, {"account_displayed_op_only": True, "start_name_regexes": ["b"]}, only("b:1=50", "c:2=30", root=50)),
]


@pytest.mark.parametrize(("rules", "given", "expected"), ASKED)
def test_what_is_shown(rules: Rules, given: dict[str, Any], expected: Sequence[str]) -> None:
    assert shown(rules, **given) == expected


def test_larger_siblings_come_first_with_all_below() -> None:
    names = [name.partition(":")[0] for name in shown(order_by="bytes", hide_name_regexes=["a"])]
    assert names == [ROOT, "b", "c", "e", "f", "d"]


def test_what_does_not_count_stays_if_something_below_does_but_in_a_graph() -> None:
    assert shown(SCOPE, "cf") == only("a:1=30", "b:2=30", "c:3=30", "e:1=7", "f:2=7", root=37)
    assert shown(GRAPH, "cf") == only("c:1=30", "f:1=7", root=37)


@pytest.mark.parametrize("order", ["name", "depth"])
def test_the_other_orders_are_those_of_names(order: str) -> None:
    assert shown(order_by=order) == ALL


def test_the_root_counts_itself_where_only_the_displayed_counts() -> None:
    given = {"account_displayed_op_only": True, "show_name_regexes": ["c"]}
    found = show(tree(), {}, options_from(given), SCOPE)
    assert found.total[PLACE["definitions"]].tolist() == [2, 1]
    assert found.root_total[PLACE["bytes"]] == 72


def test_a_deep_tree_is_not_gone_through_in_pairs() -> None:
    depth = np.arange(1, 200_001)
    own = np.ones((len(ATTRIBUTES), len(depth)), np.int64)
    deep = Tree(names=["x"] * len(depth), node=depth, depth=depth, own=own, accounted=np.ones(len(depth), np.bool_))
    found = show(deep, {}, options_from({"max_depth": 3, "order_by": "bytes"}), GRAPH)
    assert found.total[PLACE["bytes"]].tolist() == [200_000, 199_999, 199_998]
