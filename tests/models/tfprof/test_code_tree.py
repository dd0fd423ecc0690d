"""The tree of the lines that built nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tfprof_builders import CPU, model, node, op_log, ran, run_metadata

from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import PLACE, options_from
from tfperf.models.tfprof.views import ROOT, forward_of, frame_names, show_tree

MAIN, DENSE, LOSS = ("dir/main.py", 3, "<module>"), ("nn.py", 7, "dense"), ("dir/main.py", 9, "<module>")


def built(folder: Path, stacks: dict[str, list[tuple[str, int, str]]]) -> Model:
    """Return nodes that ran for 1, 2, 4, ... microseconds, with these stacks."""
    nodes = [node(name, f"Op{number}") for number, name in enumerate(stacks)]
    records = [ran(name, 10, 1 << number) for number, name in enumerate(stacks)]
    log = op_log({name: {"stack": stack} for name, stack in stacks.items()})
    return model(folder, nodes, {0: run_metadata({CPU: records})}, log)


def rows(of: Model, **given: Any) -> list[str]:
    shown = show_tree(of, "code", options_from({"max_depth": 100, **given}))
    own, total = shown.tree.own[PLACE["micros"]], shown.total[PLACE["micros"]]
    each = zip(shown.tree.depth.tolist(), shown.tree.names, own.tolist(), total.tolist(), strict=True)
    return [f"{depth} {name} {one}/{every}" for depth, name, one, every in each]


def test_frames_are_below_those_that_call_them(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [MAIN, DENSE], "b": [MAIN], "c": [LOSS], "d": [MAIN, DENSE], "e": []})
    assert rows(of) == [
        f"0 {ROOT} 0/15",
        "1 main.py:3:<module> 2/11",
        "2 nn.py:7:dense 9/9",
        "1 main.py:9:<module> 4/4",
    ]


def test_files_of_the_same_name_are_one_as_in_the_reference(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [("x/main.py", 3, "f")], "b": [("y/main.py", 3, "f")]})
    assert rows(of) == [f"0 {ROOT} 0/3", "1 main.py:3:f 3/3"]


def test_long_functions_are_cut(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [("m.py", 1, "f" * 19), ("m.py", 2, "g" * 20)]})
    assert frame_names(of) == [f"m.py:1:{'f' * 19}", f"m.py:2:{'g' * 17}..."]


def test_gradients_are_where_their_forward_node_is(tmp_path: Path) -> None:
    stacks = {"h/a": [MAIN, DENSE], "gradients/h/a_grad/Mul": [LOSS], "gradients/gone_grad/Mul": [LOSS], "x": []}
    assert rows(built(tmp_path, stacks)) == [
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


def test_types_decide_which_frames_are_there(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [MAIN, DENSE], "b": [MAIN], "c": [LOSS]})
    expected = [f"0 {ROOT} 0/1", "1 main.py:3:<module> 0/1", "2 nn.py:7:dense 1/1"]
    assert rows(of, account_type_regexes=["Op0"]) == expected


def test_the_root_stays_whatever_is_trimmed(tmp_path: Path) -> None:
    """The reference crashes there (D2)."""
    of = built(tmp_path, {"a": [MAIN, DENSE]})
    assert rows(of, trim_name_regexes=[".*"]) == rows(of, max_depth=0) == [f"0 {ROOT} 0/1"]
    assert rows(of, trim_name_regexes=[ROOT])[0] == f"0 {ROOT} 0/1"


def test_a_model_without_stacks_has_a_root_only(tmp_path: Path) -> None:
    assert rows(model(tmp_path, [node("a", "A")])) == [f"0 {ROOT} 0/0"]


def test_a_deep_stack_among_many(tmp_path: Path) -> None:
    of = built(tmp_path, {"a": [("m.py", line, "f") for line in range(5000)], "b": [MAIN]})
    shown = show_tree(of, "code", options_from({"max_depth": 10_000}))
    assert (len(shown.tree), shown.tree.depth.max()) == (5002, 5000)
