"""What blocks say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from builders import event, host, host_of, trace_of
from sections.timeline.pictures import gpu_host

from tfperf.report.model import BlockName
from tfperf.sections.timeline.lanes import BlockTexts


def test_kinds_and_ops_of_host_events(tmp_path: Path) -> None:
    names = [
        "model/dense/MatMul:MatMul",
        "Iterator::Map",
        "$train.py:1 f",
        "IteratorGetNextOp::DoCompute",
        "FunctionRun",
    ]
    trace = trace_of(tmp_path, host(*(event(name, 100 * n, 10) for n, name in enumerate(names))))
    texts = BlockTexts(host_of(trace, "steps"))
    name, note = texts.of(np.arange(5))
    assert [[*texts.names][number] for number in name.tolist()] == [
        BlockName(names[0], "Host compute", "MatMul", "model/dense/MatMul"),
        BlockName(names[1], "Input pipeline"),
        BlockName(names[2], "Python"),
        BlockName(names[3], "Input wait"),
        BlockName(names[4], "Call"),
    ]
    assert note.tolist() == [-1] * 5


def test_work_of_a_device_notes_its_op_and_how_it_was_launched(tmp_path: Path) -> None:
    analyzed = gpu_host(tmp_path, "steps")
    texts = BlockTexts(analyzed)
    names, notes = texts.of(analyzed.device_work.rows[:3])
    of_gemm = [*texts.notes][int(notes[0])]
    assert of_gemm.startswith("op model/dense/MatMul (MatMul); ")
    assert "grid" in of_gemm
    assert [[*texts.names][number].kind for number in names.tolist()] == [
        "Device compute", "Device compute", "Device collectives"
    ]  # fmt: skip
    again, _ = texts.of(analyzed.device_work.rows[:1])
    assert again[0] == names[0]


def test_long_names_are_cut_and_notes_have_an_end(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, host(event("x" * 5_000, 0, 10)))
    texts = BlockTexts(host_of(trace, "steps"))
    texts.of(np.arange(1))
    assert [len(name.name) for name in texts.names] == [200]
    assert texts.note("") == -1
    assert texts.note("a") == texts.note("a") == 0
