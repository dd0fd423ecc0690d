"""A pipeline as code: its calls in order, and where a cache does no harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import Event, event, known, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import main_of, waiting_job

from tfperf.sections.tfdata.advice import rule_for
from tfperf.sections.tfdata.pipeline import Pipeline
from tfperf.sections.tfdata.pipeline_code import (
    NEW_CACHE,
    Call,
    cache_size,
    calls_of,
    changed_code,
    code_of,
    diff_of,
    if_same,
    kept_stages,
    with_cache,
)

AUTOTUNE = "num_parallel_calls=tf.data.AUTOTUNE"
FILES = "tf.data.TFRecordDataset(files)"
LISTED = f"tf.data.Dataset.list_files(PATTERN).interleave(tf.data.TextLineDataset, {AUTOTUNE})"


def made(tmp_path: Path, path: str, op: str = "Cast", **stats: Any) -> Pipeline:
    """The stages, outermost first; the innermost one runs this op."""
    return main_of(tmp_path, *waiting_job(*path.split(), op=op, **stats))


def index_of(pipeline: Pipeline, name: str) -> int:
    return [stage.name for stage in pipeline.stages].index(name)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("Prefetch MapAndBatch Shuffle TFRecord", f"{FILES}.shuffle(n).map(f).batch(n).prefetch(n)"),
        ("MapAndBatch ShuffleAndRepeat Range", "tf.data.Dataset.range(n).shuffle(n).repeat().map(f).batch(n)"),
        ("MapAndBatch FlatMap TFRecord", f"{FILES}.map(f).batch(n)"),
        (
            "MapAndBatch Filter ParallelInterleaveV4 FlatMap TFRecord",
            f"files.interleave(tf.data.TFRecordDataset, {AUTOTUNE}).filter(f).map(g).batch(n)",
        ),
        ("MapAndBatch ParallelInterleaveV4 Map TFRecord", f"files.interleave(f, {AUTOTUNE}).map(g).batch(n)"),
        ("Map FlatMap Filter TFRecord", "ds.flat_map(f).map(g)"),
        ("Prefetch FlatMap Generator", "tf.data.Dataset.from_generator(g).prefetch(n)"),
        ("PaddedBatchV2 Take Map", "ds.map(f).take(...).padded_batch(n)"),
        ("Map MemoryCache MemoryCacheImpl Map Range", "tf.data.Dataset.range(n).map(f).cache().map(g)"),
    ],
)
def test_stages_are_told_in_the_order_of_the_program(path: str, code: str, tmp_path: Path) -> None:
    assert code_of(calls_of(made(tmp_path, path), 0)) == code


def test_settings_are_told(tmp_path: Path) -> None:
    pipeline = made(tmp_path, "BatchV2 ParallelMapV2", autotune="true", parallelism=4)
    assert code_of(calls_of(pipeline, 0)) == "ds.map(f, num_parallel_calls=tf.data.AUTOTUNE).batch(n)"
    pipeline = made(tmp_path, "MapAndBatch", parallelism=4, batch_size=32)
    assert code_of(calls_of(pipeline, 0)) == "ds.map(f, num_parallel_calls=4).batch(32)"


@pytest.mark.parametrize(
    ("path", "kept", "short", "line"),
    [
        ("MapAndBatch TFRecord", "MapAndBatch", "ds.map(f).cache().batch(n)", ".cache()"),
        ("MapAndBatch Shuffle TFRecord", "MapAndBatch", "ds.map(f).cache().shuffle(n).batch(n)", ".map(f).cache()"),
        ("BatchV2 Map ForeverRepeat TFRecord", "Map", "ds.map(f).cache().repeat().batch(n)", ".map(f).cache()"),
        ("BatchV2 Map ShuffleAndRepeat", "Map", "ds.map(f).cache().shuffle(n).repeat().batch(n)", ".map(f).cache()"),
        ("Map Filter Shuffle", "Map", "ds.filter(f).map(g).cache().shuffle(n)", ".filter(f).map(g).cache()"),
        ("BatchV2 Shuffle Map TFRecord", "Map", "ds.map(f).cache().shuffle(n).batch(n)", ".cache()"),
        ("BatchV2 Shuffle TFRecord", "TFRecord", "ds.cache().shuffle(n).batch(n)", ".cache()"),
        ("BatchV2 ParallelInterleaveV4 Map TFRecord", "Map", "ds.cache().batch(n)", ".cache()"),
        ("Map BatchV2 TFRecord", "Map", "ds.batch(n).map(f).cache()", ".cache()"),
    ],
)
def test_a_cache_comes_before_shuffle_batch_and_repeat(
    path: str, kept: str, short: str, line: str, tmp_path: Path
) -> None:
    pipeline = made(tmp_path, path)
    changed = known(with_cache(pipeline, index_of(pipeline, kept)))
    assert (changed.short, changed.line) == (short, line)


@pytest.mark.parametrize(
    ("path", "op", "kept"),
    [
        ("BatchV2 Map", "RandomUniform", "Map"),
        ("BatchV2 Map", "dropout/Mul:Mul", "Map"),
        ("BatchV2 Map", "my_augmentation/Mul:Mul", "Map"),
        ("BatchV2 Shuffle TFRecord", "Cast", "BatchV2"),
        ("BatchV2 Shuffle TFRecord", "Cast", "Shuffle"),
        ("Map BatchV2 Shuffle TFRecord", "Cast", "Map"),
        ("Map Take ForeverRepeat TFRecord", "Cast", "Map"),
        ("MapAndBatch TensorSlice", "Cast", "TensorSlice"),
        ("MapAndBatch DataServiceV4", "Cast", "MapAndBatch"),
        ("MapAndBatch FlatMap ForeverRepeat TFRecord", "Cast", "MapAndBatch"),
        ("MapAndBatch FlatMap Shuffle TFRecord", "Cast", "MapAndBatch"),
        ("BatchV2 Map MemoryCache MemoryCacheImpl Map", "Cast", "Map"),
        ("MemoryCache MemoryCacheImpl Map", "Cast", "Map"),
        # The innermost map is random: what the outer stage makes of it differs in every epoch.
        ("BatchV2 Filter Map", "RandomUniform", "Filter"),
    ],
)
def test_no_cache_keeps_what_is_random_mixed_or_endless(path: str, op: str, kept: str, tmp_path: Path) -> None:
    pipeline = made(tmp_path, path, op)
    assert with_cache(pipeline, index_of(pipeline, kept)) is None


def test_a_full_cache_spares_a_fused_stage_its_function_only(tmp_path: Path) -> None:
    pipeline = made(tmp_path, "MapAndBatch Shuffle TFRecord")
    kept = kept_stages(pipeline, known(with_cache(pipeline, 1)))
    assert kept == {1: False, 3: True}, "the shuffle still works"


@pytest.mark.parametrize(
    ("path", "op", "condition"),
    [
        ("BatchV2 Map TFRecord", "EagerPyFunc", ", if f gives the same result each time"),
        ("BatchV2 Map Filter TFRecord", "Cast", ", if f and g give the same result each time"),
        ("BatchV2 TFRecord", "", ""),
        ("BatchV2 ParallelInterleaveV4 FlatMap TFRecord", "", ""),
        ("BatchV2 ParallelInterleaveV4 Map TFRecord", "Cast", ", if f gives the same result each time"),
        ("BatchV2 FlatMap Generator", "PyFunc", ", if g ends and yields the same elements each time"),
    ],
)
def test_a_cache_has_its_condition(path: str, op: str, condition: str, tmp_path: Path) -> None:
    pipeline = made(tmp_path, path, op)
    changed = known(with_cache(pipeline, index_of(pipeline, path.split()[1])))
    assert if_same(pipeline, changed) == condition


@pytest.mark.parametrize(
    ("path", "change", "stage", "code", "line"),
    [
        ("BatchV2 Map", "parallel_map", "Map", f"ds.map(f, {AUTOTUNE}).batch(n)", f".map(f, {AUTOTUNE})"),
        ("MapAndBatch Shuffle", "vectorize", "MapAndBatch", "ds.shuffle(n).batch(n).map(f)", ".batch(n).map(f)"),
        ("BatchV2 Shuffle Map", "vectorize", "Map", "ds.shuffle(n).batch(n).map(f)", ".batch(n).map(f)"),
        ("Map", "prefetch", None, "ds.map(f).prefetch(tf.data.AUTOTUNE)", ".prefetch(tf.data.AUTOTUNE)"),
        ("Map Shuffle", "split_to_cache", "Map", "ds.map(f1).cache().shuffle(n).map(f2)", ".map(f1).cache().map(f2)"),
        ("BatchV2 FlatMap TextLine", "parallel_read", "TextLine", f"{LISTED}.batch(n)", LISTED),
    ],
)
def test_each_change_has_its_code(
    path: str, change: str, stage: str | None, code: str, line: str, tmp_path: Path
) -> None:
    pipeline = made(tmp_path, path)
    changed = known(changed_code(pipeline, change, None if stage is None else index_of(pipeline, stage)))
    assert (changed.code, changed.line) == (code, line)


def test_what_has_no_code_of_its_own_has_none(tmp_path: Path) -> None:
    pipeline = made(tmp_path, "BatchV2 Map")
    assert changed_code(pipeline, "heavy_map", 1) is None
    assert changed_code(pipeline, "parallel_read", 1) is None


def test_long_code_is_cut_around_the_change(tmp_path: Path) -> None:
    pipeline = made(tmp_path, "Prefetch BatchV2 Map Filter Map Filter Map Shuffle Filter Take TFRecord")
    assert known(with_cache(pipeline, index_of(pipeline, "Map"))).short == "...map(q).cache().shuffle(n)..."


@pytest.mark.parametrize(
    ("path", "iterators", "size"),
    [
        ("BatchV2 Shuffle Map", 3, "about 2.00 MB"),
        ("BatchV2 Map ForeverRepeat", 3, "at most about 2.00 MB"),
        ("Map BatchV2 Map", 3, ""),
        ("BatchV2 Map", 2, ""),
    ],
    ids=["batches of what is kept", "several times what is kept", "other elements", "no whole epoch"],
)
def test_the_memory_of_a_cache_is_that_of_an_epoch(path: str, iterators: int, size: str, tmp_path: Path) -> None:
    """Two batches of 1 MB per epoch; the first iterator was there before, the last one is cut off by the capture."""
    stages, events = ["Root", *path.split()], list[Event]()
    for turn in range(2 * iterators):
        at, epoch = 100 * turn, turn // 2
        if turn == 2:
            events.append(event("MakeIterator", at - 5, 2))
        events.append(event("IteratorGetNextOp::DoCompute", at, 60, element_size=1_000_000))
        for depth in range(len(stages)):
            above = None if not depth else 10 * epoch + depth
            name = "::".join(stages[: depth + 1])
            events.append(call(name, at + depth, 60 - 2 * depth, 10 * epoch + depth + 1, above))
    pipeline = main_of(tmp_path, line("python", *events))
    kept = max(at for at, stage in enumerate(stages) if stage == "Map")
    assert cache_size(pipeline, known(with_cache(pipeline, kept))) == size


def test_no_cache_keeps_batches_of_a_generator_of_keras(tmp_path: Path) -> None:
    """Under a strategy, TensorFlow splits the batches of a PyDataset."""
    pipeline = made(tmp_path, "Rebatch Prefetch FlatMap Generator", "PyFunc")
    assert with_cache(pipeline, index_of(pipeline, "Generator")) is None
    rule = known(rule_for(pipeline, index_of(pipeline, "Generator")))
    assert rule.action.startswith("for a keras.utils.PyDataset: workers=4, max_queue_size=20, and use_multiprocessing")


def test_a_change_is_a_diff_with_one_call_per_line() -> None:
    source, function = Call("source", "ds", 2), Call("map", ".map(f)", 1)
    parallel = Call("map", ".map(f)", 1, options="num_parallel_calls=tf.data.AUTOTUNE")
    assert diff_of((source, function), (source, parallel, NEW_CACHE)).split("\n") == [
        "  ds",
        "-     .map(f)",
        "+     .map(f, num_parallel_calls=tf.data.AUTOTUNE)",
        "+     .cache()",
    ]
