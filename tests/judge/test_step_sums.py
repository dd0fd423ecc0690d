"""Sums over the steps of one kind: what evaluation, compiling steps and time between steps take is not in them."""

from __future__ import annotations

from pathlib import Path

from builders import Event, Plane, event, host, iterator_call, line, plane, results_of, trace_of

from tfperf.judge.summarize import StepSums, combine, shorten

US = 1_000_000


def sums_of(folder: Path, *planes: Plane) -> dict[str, StepSums]:
    sums: dict[str, StepSums] = results_of(trace_of(folder, *planes), sections=["step_sums"])["step_sums"]
    return sums


def marks(kind: str, start: float) -> list[Event]:
    """Three steps of 100 us."""
    return [event(kind, start + 100 * number, 100, step_num=int(start) + number) for number in range(3)]


def test_each_kind_has_its_own_sums(tmp_path: Path) -> None:
    """Train steps wait for 10 us and multiply for 20, eval steps wait for 60; 50 us of an op lie between them."""
    events = [*marks("train", 0), event("Save:SaveV2", 310, 50), *marks("test", 400)]
    for start, wait in ((0, 10), (100, 10), (200, 10), (400, 60), (500, 60), (600, 60)):
        events += [
            event("IteratorGetNextOp::DoCompute", start, wait),
            iterator_call("Root", start, wait, 1),
            iterator_call("Root::Map", start, wait, 2, 1),
            event(
                "train_function" if wait == 10 else "test_function",
                start + wait,
                20,
                tf_function_call="notTraced-nonXla",
            ),
            event("MatMul:MatMul", start + wait, 20),
        ]
    sums = sums_of(tmp_path, host(*events))
    assert {kind: of_kind.step_count for kind, of_kind in sums.items()} == {"train": 3, "test": 3}
    train, test = (sums[kind].rankings for kind in ("train", "test"))
    assert train["host_ops"]["MatMul", "MatMul"] == (60 * US, 3)
    assert ("Save", "SaveV2") not in {**train["host_ops"], **test["host_ops"]}
    assert train["functions"] == {("train_function", ""): (60 * US, 3)}
    assert test["functions"] == {("test_function", ""): (60 * US, 3)}
    assert train["stages"]["Iterator::Root::Map", "Map"] == (30 * US, 3)
    assert test["stages"]["Iterator::Root::Map", "Map"] == (180 * US, 3)


def test_kernels_and_copies_count_in_the_step_in_which_they_start(tmp_path: Path) -> None:
    """A kernel of 40 us in each train step, the last one after a pause in it; others in eval steps."""
    kernels = [event("gemm", start, 40, tf_op="d/MatMul:MatMul", correlation_id=start) for start in (10, 110, 270, 420)]
    device = plane("/device:GPU:0", line("Stream #1", *kernels, event("MemcpyH2D", 510, 5, correlation_id=9)))
    sums = sums_of(tmp_path, host(*marks("train", 0), *marks("test", 400)), device)
    train, test = (sums[kind].rankings for kind in ("train", "test"))
    assert (train["kernels"], train["copies"]) == ({("gemm", ""): (120 * US, 3)}, {})
    assert (test["kernels"], test["copies"]) == ({("gemm", ""): (40 * US, 1)}, {("H2D", ""): (5 * US, 1)})
    assert train["device_ops"]["d/MatMul", "MatMul"] == (120 * US, 3)


def test_sums_of_hosts_add_up_and_are_cut_to_the_longest() -> None:
    one = {"train": StepSums(2, {"host_ops": {("a", ""): (5, 1.0), ("b", ""): (7, 1.0)}})}
    other = {"train": StepSums(3, {"host_ops": {("a", ""): (4, 2.0)}}), "eval": StepSums(1, {"host_ops": {}})}
    both = combine([one, other])
    assert both["train"] == StepSums(5, {"host_ops": {("a", ""): (9, 3.0), ("b", ""): (7, 1.0)}})
    assert both["eval"].step_count == 1
    assert shorten(both, 2) is both
    assert shorten(both, 1)["train"].rankings["host_ops"] == {("a", ""): (9, 3.0)}
