from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tfperf.formats.hlo.hlo_proto import Schedule, ScheduledOp
from tfperf.trace.device.graph_ops import GraphSequence, Symbols, match_sequences

FILL, GEMM, SPLIT, DNN = "Memset 0", "nvjet_sm90_tst_128x128", "cublasLt::splitKreduce_kernel", "cudnn_generated_sdpa"


def fusion(name: str, code: str) -> ScheduledOp:
    return ScheduledOp(name, "fusion", code)


def call(name: str, target: str = "__cublas$lt$matmul") -> ScheduledOp:
    return ScheduledOp(name, "custom-call", name, target=target, is_library=True)


def loop(condition: int, body: int) -> ScheduledOp:
    return ScheduledOp("while.1", "while", "while.1", "loop", (condition, body))


def schedule(*entry: ScheduledOp, **others: Sequence[ScheduledOp]) -> Schedule:
    """A program with computations `c2`, `c3` beside its entry."""
    return Schedule(1, {1: entry, **{int(key[1:]): tuple(ops) for key, ops in others.items()}})


def matched(program: Schedule, *graphs: str, outside: str = "") -> list[str]:
    """The instructions of the kernels of each graph, `?` for unknown ones, and `'` after those that begin no run."""
    sequences = [GraphSequence(number, tuple(each.split(", ")), 10 - number) for number, each in enumerate(graphs)]
    found = match_sequences(program, Symbols(program), sequences, frozenset(outside.split()))
    texts = []
    for ops in found:
        seen: set[int] = set()
        shown = []
        for op in ops:
            shown.append("?" if op is None else op.op + ("'" if op.run in seen else ""))
            seen.add(-1 if op is None else op.run)
        texts.append(" ".join(shown))
    return texts


def layers(count: int) -> list[ScheduledOp]:
    """Equal layers: a kernel that the first one names runs in all of them."""
    made = []
    for number in range(1, count + 1):
        made += [fusion(f"convert.{number}", "A"), call(f"dot.{number}"), fusion(f"add_fusion.{number}", "B")]
    return made


def test_a_shared_kernel_runs_for_each_layer() -> None:
    one = f"convert_1, {FILL}, {GEMM}, add_fusion_1"
    assert matched(schedule(*layers(3)), ", ".join([one] * 3)) == [
        "convert.1 dot.1 dot.1' add_fusion.1 convert.2 dot.2 dot.2' add_fusion.2 convert.3 dot.3 dot.3' add_fusion.3"
    ]


def test_graphs_follow_each_other() -> None:
    """Each has two of four equal layers; together they fit in one way, alone in several."""
    one = f"convert_1, {GEMM}, add_fusion_1"
    both = ", ".join([one] * 2)
    assert matched(schedule(*layers(4)), both, both) == [
        "convert.1 dot.1 add_fusion.1 convert.2 dot.2 add_fusion.2",
        "convert.3 dot.3 add_fusion.3 convert.4 dot.4 add_fusion.4",
    ]
    assert matched(schedule(*layers(4)), both) == ["? ? ? ? ? ?"]
    assert matched(schedule(*layers(3)), both) == ["? ? ? ? ? ?"]


def test_what_runs_outside_limits_a_graph() -> None:
    host = call("callback.1", "xla_ffi_python_gpu_callback")
    program = schedule(*layers(2)[:3], host, call("dot.7"), *layers(2)[3:])
    graphs = f"convert_1, {GEMM}, add_fusion_1", f"{GEMM}, convert_1, {GEMM}, add_fusion_1"
    assert matched(program, *graphs, outside="callback.1") == [
        "convert.1 dot.1 add_fusion.1",
        "dot.7 convert.2 dot.2 add_fusion.2",
    ]


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        (f"{GEMM}, {GEMM}", "dot.1 dot.2"),
        (f"{FILL}, {GEMM}, {FILL}, {GEMM}", "dot.1 dot.1' dot.2 dot.2'"),
        (f"{FILL}, {GEMM}, {SPLIT}, {FILL}, {GEMM}", "dot.1 dot.1' dot.1' dot.2 dot.2'"),
        (f"{GEMM}, {FILL}, {GEMM}", "dot.1 dot.2 dot.2'"),
        # It is unknown which of the two calls launched the second kernel; or the fills tell another story.
        (f"{GEMM}, {SPLIT}, {GEMM}", "? ? ?"),
        (f"{FILL}, {FILL}, {GEMM}, {GEMM}", "? ? ? ?"),
        (f"{GEMM}, {GEMM}, {FILL}", "? ? ?"),
        (f"{GEMM}", "?"),
        (f"{GEMM}, {DNN}", "dot.1 ?"),
    ],
)
def test_calls_in_a_row_are_told_apart_or_left(kernels: str, expected: str) -> None:
    program = schedule(fusion("a.1", "A"), call("dot.1"), call("dot.2"), fusion("b.1", "B"))
    assert matched(program, f"a_1, {kernels}, b_1") == [f"a.1 {expected} b.1"]


def test_one_call_has_all_kernels_and_a_copy_has_its_own() -> None:
    copy = ScheduledOp("copy.3", "copy", "copy")
    program = schedule(fusion("a.1", "A"), call("attention.1", "__cudnn$fmha"), copy, fusion("b.1", "B"))
    assert matched(program, f"a_1, {FILL}, {DNN}, {DNN}, MemcpyD2D, b_1") == [
        "a.1 attention.1 attention.1' attention.1' copy.3 b.1"
    ]


def test_a_graph_of_library_calls_alone() -> None:
    assert matched(schedule(call("dot.1"), call("dot.2")), f"{GEMM}, {GEMM}") == ["dot.1 dot.2"]
    assert matched(schedule(call("dot.1"), call("host.1"), call("dot.2")), GEMM, outside="host.1") == ["?"]


def test_a_loop_in_a_graph_repeats() -> None:
    body = [fusion("b.1", "B"), call("dot.2"), fusion("c.1", "C")]
    program = schedule(fusion("a.1", "A"), loop(2, 3), fusion("d.1", "D"), c2=[fusion("less.1", "L")], c3=body)
    turn = f"less_1, b_1, {GEMM}, c_1"
    assert matched(program, f"a_1, {turn}, {turn}, less_1, d_1") == [
        "a.1 less.1 b.1 dot.2 c.1 less.1 b.1 dot.2 c.1 less.1 d.1"
    ]
    assert matched(program, "a_1, less_1, d_1") == ["a.1 less.1 d.1"]


def test_the_host_repeats_a_graph_in_a_loop() -> None:
    """Its first call is known, because no graph crosses the limits of the loop."""
    program = schedule(fusion("a.1", "A"), loop(2, 3), c2=[], c3=[call("dot.2"), fusion("c.1", "C")])
    assert matched(program, "a_1", f"{GEMM}, c_1") == ["a.1", "dot.2 c.1"]


def test_one_of_several_branches_runs() -> None:
    branch = ScheduledOp("conditional.1", "conditional", "", "branch", (2, 3))
    program = schedule(fusion("a.1", "A"), branch, fusion("d.1", "D"), c2=[fusion("b.1", "B")], c3=[fusion("c.1", "C")])
    assert matched(program, "a_1, c_1, d_1") == ["a.1 c.1 d.1"]


def test_names_of_kernels() -> None:
    """Equal names are numbered; an unknown number leaves the kind; a sort launches several kernels in one run."""
    sort = ScheduledOp("sort.4", "sort", "sort")
    program = schedule(fusion("loop_add_fusion.2", "A"), sort, fusion("loop_mul_fusion", "B"))
    assert matched(program, "loop_add_fusion_9, sort_4, sort_4__1, sort_4__2, loop_mul_fusion__1") == [
        "loop_add_fusion.2 sort.4 sort.4' sort.4' loop_mul_fusion"
    ]


def test_lost_kernels_cost_only_themselves() -> None:
    """Where the sequence has a gap, the rest is still matched if it fits in one way only."""
    ops = [fusion(f"f.{n}", f"code {n}") for n in range(40)]
    names = [f"f_{n}" for n in range(40)]
    del names[20]
    assert matched(schedule(*ops), ", ".join(names)) == [" ".join(f"f.{n}" for n in range(40) if n != 20)]


def test_kernels_of_another_program_are_left() -> None:
    ops = [fusion(f"f.{n}", f"code {n}") for n in range(10)]
    assert matched(schedule(*ops), ", ".join(f"f_{n}" for n in (3, 1, 7, 5, 9, 2))) == ["? ? ? ? ? ?"]
    assert matched(schedule(*ops), "evil, f_\0, , f_1_2_3") == ["? ? ? ?"]
    assert matched(schedule(), "f_1, f_2") == ["? ?"]


def test_another_sequence_of_a_graph_lies_between_the_neighbours() -> None:
    """The capture began in the middle of the first launch of the second graph."""
    one = f"convert_1, {GEMM}, add_fusion_1"
    graphs = [GraphSequence(1, tuple(", ".join([one] * 2).split(", ")), 9) for _ in range(1)]
    graphs += [GraphSequence(2, tuple(one.split(", ")), 9), GraphSequence(2, ("add_fusion_1",), 1)]
    program = schedule(*layers(3))
    found = match_sequences(program, Symbols(program), graphs)
    assert [op and op.op for op in found[2]] == ["add_fusion.3"]


def test_computations_that_call_themselves_end() -> None:
    loops = [ScheduledOp(f"while.{n}", "while", n, "loop", (2, 2)) for n in range(2)]
    program = schedule(*loops, c2=[fusion("a.1", "A"), *loops])
    assert matched(program, "a_1, b_1")


def test_no_kernel_gets_a_wrong_instruction() -> None:
    """Random programs with few codes, and random contiguous parts of them as graphs."""
    random.seed(3)
    for _ in range(200):
        ops = [call(f"dot.{n}") if random.random() < 0.3 else fusion(f"f.{n}", random.choice("ABC")) for n in range(30)]
        first_of: dict[object, str] = {}
        kernels = [GEMM if op.is_library else first_of.setdefault(op.code, op.name).replace(".", "_") for op in ops]
        cuts = sorted(random.sample(range(31), 4))
        parts = [slice(cuts[0], cuts[1]), slice(cuts[1], cuts[2]), slice(cuts[2], cuts[3])]
        program = schedule(*ops)
        graphs = [GraphSequence(n, tuple(kernels[part]), 5) for n, part in enumerate(parts)]
        for part, found in zip(parts, match_sequences(program, Symbols(program), graphs), strict=True):
            for op, kernel in zip(ops[part], found, strict=True):
                assert kernel is None or kernel.op == op.name
