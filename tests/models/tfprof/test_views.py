"""The views of small models: by scope, by what feeds what, and by op type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import CPU, GPU, model, node, op_log, ran, run_metadata

from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import PLACE, options_from
from tfperf.models.tfprof.views import ROOT, View, accounted, forward_of, frame_names, show_ops, show_tree


def tree(of: Model, view: View, **given: Any) -> list[str]:
    """Return the rows as `depth name own/total` in microseconds."""
    shown = show_tree(of, view, options_from({"max_depth": 100, **given}))
    own, total = shown.tree.own[PLACE["micros"]], shown.total[PLACE["micros"]]
    rows = zip(shown.tree.depth.tolist(), shown.tree.names, own.tolist(), total.tolist(), strict=True)
    return [f"{depth} {name} {one}/{every}" for depth, name, one, every in rows]


def ops(of: Model, **given: Any) -> list[str]:
    shown = show_ops(of, options_from({"max_depth": 100, **given}))
    rows = zip(shown.names, shown.own[PLACE["micros"]].tolist(), shown.total[PLACE["micros"]].tolist(), strict=True)
    return [f"{name} {one}/{every}" for name, one, every in rows]


@pytest.fixture
def layers(tmp_path: Path) -> Model:
    """Two layers; `a` is a node and a scope too. loss <- b/out <- a/in/mul, a; a/in/mul <- x, a."""
    nodes = [
        node("loss", "Sum", "b/out", "^x"),
        node("b/out", "Relu", "a/in/mul", "a"),
        node("a/in/mul", "Mul", "x", "a"),
        node("a", "Mul", "x"),
        node("x", "Placeholder"),
        node("alone", "NoOp"),
    ]
    times = {"loss": 1, "b/out": 2, "a/in/mul": 4, "a": 8, "x": 16}
    records = [ran(name, 10, micros) for name, micros in times.items()]
    return model(tmp_path, nodes, {0: run_metadata({CPU: records[:3], GPU: records[3:]})})


def test_scopes_hold_what_is_in_them(layers: Model) -> None:
    assert tree(layers, "scope") == [
        f"0 {ROOT} 0/31",
        "1 a 8/12",
        "2 a/in 0/4",
        "3 a/in/mul 4/4",
        "1 alone 0/0",
        "1 b 0/2",
        "2 b/out 2/2",
        "1 loss 1/1",
        "1 x 16/16",
    ]


def test_a_node_of_a_graph_is_below_the_first_that_it_feeds(layers: Model) -> None:
    assert tree(layers, "graph") == [
        f"0 {ROOT} 0/31",
        "1 alone 0/0",
        "1 loss 1/31",
        "2 b/out 2/30",
        "3 a/in/mul 4/28",
        "4 a 8/8",
        "4 x 16/16",
    ]


def test_op_types_count_all_that_follow(layers: Model) -> None:
    assert ops(layers) == ["Mul 12/31", "NoOp 0/19", "Placeholder 16/19", "Relu 2/3", "Sum 1/1"]
    assert ops(layers, order_by="micros") == ["Placeholder 16/31", "Mul 12/15", "Relu 2/3", "Sum 1/1", "NoOp 0/0"]


def test_devices_are_matched_whatever_their_case(layers: Model) -> None:
    """The reference writes devices in lower case, so that its users' `.*CPU:0` matches nothing (D5)."""
    expected = [name in ("loss", "b/out", "a/in/mul") for name in layers.names]
    for regex in (".*CPU:0", ".*cpu:0", ".*/Device:Cpu:0"):
        assert accounted(layers, options_from({"account_type_regexes": [regex]})).tolist() == expected
    assert not accounted(layers, options_from({"account_type_regexes": ["RELU"]})).any()


def test_a_cycle_that_nothing_leaves_is_not_in_the_graph_view(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "A", "b"), node("b", "B", "a"), node("c", "C", "c")])
    assert tree(of, "graph") == [f"0 {ROOT} 0/0"]
    assert len(tree(of, "scope")) == 4


def test_scopes_of_odd_names(tmp_path: Path) -> None:
    of = model(tmp_path, [node(name, "A") for name in ("a.b", "a/c", "a\0d", "a", "/e", "f/", "g//h")])
    names = [row.split(" ")[1] for row in tree(of, "scope")]
    assert names == [ROOT, "", "/e", "a", "a/c", "a\0d", "a.b", "f", "f/", "g", "g/", "g//h"]


def test_a_model_without_anything_that_counts(layers: Model) -> None:
    given = {"account_type_regexes": ["gone"]}
    assert (ops(layers, **given), tree(layers, "scope", **given)) == ([], [f"0 {ROOT} 0/0"])


def test_a_step_that_was_not_recorded_is_refused_by_each_view(layers: Model) -> None:
    for view in ("scope", "graph", "code"):
        with pytest.raises(ValueError, match="step 3 was not recorded: use one of 0"):
            tree(layers, view, step=3)
    with pytest.raises(ValueError, match="step 3 was not recorded"):
        ops(layers, step=3)


def test_a_scope_counts_as_a_definition_and_not_as_a_parameter(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a/w", "VariableV2", variable=[3])], log=op_log({"a/w": {"float_ops": 5}}))
    shown = show_tree(of, "scope", options_from({}))
    columns = {name: shown.total[PLACE[name]].tolist() for name in ("definitions", "params", "float_ops")}
    assert columns == {"definitions": [2, 2, 1], "params": [3, 3, 3], "float_ops": [5, 5, 5]}


MAIN, DENSE, LOSS = ("dir/main.py", 3, "<module>"), ("nn.py", 7, "dense"), ("dir/main.py", 9, "<module>")


def built(folder: Path, stacks: dict[str, list[tuple[str, int, str]]]) -> Model:
    """Return nodes that ran for 1, 2, 4, ... microseconds, with these stacks."""
    nodes = [node(name, f"Op{number}") for number, name in enumerate(stacks)]
    records = [ran(name, 10, 1 << number) for number, name in enumerate(stacks)]
    log = op_log({name: {"stack": stack} for name, stack in stacks.items()})
    return model(folder, nodes, {0: run_metadata({CPU: records})}, log)


def test_frames_are_below_those_that_call_them(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [MAIN, DENSE], "b": [MAIN], "c": [LOSS], "d": [MAIN, DENSE], "e": []})
    assert tree(of, "code") == [
        f"0 {ROOT} 0/15",
        "1 main.py:3:<module> 2/11",
        "2 nn.py:7:dense 9/9",
        "1 main.py:9:<module> 4/4",
    ]


def test_files_of_the_same_name_are_one_as_in_the_reference(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [("x/main.py", 3, "f")], "b": [("y/main.py", 3, "f")]})
    assert tree(of, "code") == [f"0 {ROOT} 0/3", "1 main.py:3:f 3/3"]


def test_long_functions_are_cut(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [("m.py", 1, "f" * 19), ("m.py", 2, "g" * 20)]})
    assert frame_names(of) == [f"m.py:1:{'f' * 19}", f"m.py:2:{'g' * 17}..."]


def test_gradients_are_where_their_forward_node_is(tmp_path: Path) -> None:
    stacks = {"h/a": [MAIN, DENSE], "gradients/h/a_grad/Mul": [LOSS], "gradients/gone_grad/Mul": [LOSS], "x": []}
    assert tree(built(tmp_path, stacks), "code") == [
        f"0 {ROOT} 0/3",
        "1 main.py:3:<module> 0/1",
        "2 nn.py:7:dense 1/1",
        "1 main.py:3:<module> (gradient) 0/2",
        "2 nn.py:7:dense (gradient) 2/2",
    ]


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("gradients/a/b_grad/Mul", "a/b"),
        ("train/gradients/a_grad/x/y", "a"),
        ("gradients/a", ""),
        ("a_grad/gradients/x", ""),
        ("a", ""),
    ],
)
def test_whose_gradient_a_node_is(name: str, forward: str) -> None:
    assert forward_of(name) == forward


def test_the_root_stays_whatever_is_trimmed(tmp_path: Path) -> None:
    """The reference crashes there (D2)."""
    of = built(tmp_path, {"a": [MAIN, DENSE]})
    assert tree(of, "code", trim_name_regexes=[".*"]) == tree(of, "code", max_depth=0) == [f"0 {ROOT} 0/1"]
    assert tree(of, "code", trim_name_regexes=[ROOT])[0] == f"0 {ROOT} 0/1"


def test_a_model_without_stacks_has_a_root_only(tmp_path: Path) -> None:
    assert tree(model(tmp_path, [node("a", "A")]), "code") == [f"0 {ROOT} 0/0"]


def test_a_deep_stack_among_many(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [("m.py", line, "f") for line in range(5000)], "b": [MAIN]})
    shown = show_tree(of, "code", options_from({"max_depth": 10_000}))
    assert (len(shown.tree), shown.tree.depth.max()) == (5002, 5000)
