from __future__ import annotations

from hlo_builders import F32, computation, instruction, program, scheduled, shape
from protobytes import field

from tfperf.formats.hlo.hlo_proto import Schedule, read_schedule

KIND = field(11, b"kLoop")


def add(number: int, name: str, kind: str, of: bytes) -> bytes:
    """A fused computation of one instruction and its parameter."""
    parameter = instruction(10 * number, "p", "parameter", of)
    return computation(name, parameter, instruction(10 * number + 1, "r", kind, of, [10 * number] * 2), number=number)


def read(data: bytes) -> Schedule:
    found = read_schedule(data)
    assert found is not None
    return found


def test_the_schedule_orders_the_instructions() -> None:
    """Those without work are left out; the instructions of a file are in any order."""
    vector = shape(F32, 8)
    made = computation(
        "main",
        instruction(1, "x", "parameter", vector),
        instruction(2, "copy.1", "copy", vector, [1]),
        instruction(3, "custom-call.1", "custom-call", vector, [1], extra=field(28, b"__cublas$gemm")),
        instruction(4, "all-reduce-done.1", "all-reduce-done", vector, [3]),
    )
    (last, first) = read(program(made, extra=scheduled(c1=[1, 3, 4, 2, 99]))).computations[1]
    assert (last.name, last.is_library, last.target) == ("custom-call.1", True, "__cublas$gemm")
    assert (first.name, first.is_library, first.target) == ("copy.1", False, "")
    assert [op.name for op in read(program(made)).computations[1]] == ["copy.1", "custom-call.1"]


def test_equal_code_has_equal_shapes_and_instructions() -> None:
    vector, matrix = shape(F32, 8), shape(F32, 8, 8)
    fusions = [(2, "f.1", vector), (3, "f.2", vector), (4, "f.3", vector), (5, "f.4", matrix)]
    made = computation("main", *(instruction(n, name, "fusion", of, [], [n], KIND) for n, name, of in fusions))
    of_fusions = [add(n, f"fused.{n}", "multiply" if n == 4 else "add", of) for n, _, of in fusions]
    one, same, other, larger = read(program(made, *of_fusions)).computations[1]
    assert one.code == same.code
    assert len({one.code, other.code, larger.code}) == 3


def test_loops_branches_and_calls_contain_the_schedules_of_others() -> None:
    flows = [("while", [3, 2]), ("conditional", [2, 3]), ("call", [2]), ("async-start", [3])]
    main = computation("main", *(instruction(n, op, op, shape(F32), [], calls) for n, (op, calls) in enumerate(flows)))
    inner = [computation(f"c{n}", instruction(1, f"copy.{n}", "copy", shape(F32)), number=n) for n in (2, 3, 4)]
    found = read(program(main, *inner))
    # The condition of a loop runs before its body.
    assert [(op.flow, op.calls) for op in found.computations[1]] == [
        ("loop", (2, 3)),
        ("branch", (2, 3)),
        ("call", (2,)),
        ("call", (3,)),
    ]
    assert found.computations.keys() == {1, 2, 3}


def test_other_bytes() -> None:
    assert read_schedule(b"no program") is None
    assert read(b"") == Schedule(0, {})
    lost = computation("main", instruction(1, "while.1", "while", shape(F32), [], [7, 8]))
    assert read(program(lost)).computations.keys() == {1}
