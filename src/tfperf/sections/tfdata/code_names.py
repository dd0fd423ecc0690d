"""What stages of tf.data are called in the user's program."""

from __future__ import annotations

_BY_PREFIX = (
    ("MapAndBatch", "map().batch()"),
    ("ParallelMap", "map()"),
    ("Map", "map()"),
    ("ParallelInterleave", "interleave()"),
    ("Interleave", "interleave()"),
    ("FlatMap", "flat_map()"),
    ("ParallelBatch", "batch()"),
    ("PaddedBatch", "padded_batch()"),
    ("Batch", "batch()"),
    ("ShuffleAndRepeat", "shuffle().repeat()"),
    ("Shuffle", "shuffle()"),
    ("Filter", "filter()"),
    ("Unbatch", "unbatch()"),
    ("MemoryCache", "cache()"),
    ("FileCache", "cache()"),
    ("Zip", "zip()"),
    ("Generator", "from_generator()"),
    ("ForeverRepeat", "repeat()"),
    ("FiniteRepeat", "repeat()"),
    ("Prefetch", "prefetch()"),
    ("TFRecord", "TFRecordDataset"),
    ("TextLine", "TextLineDataset"),
    ("FixedLengthRecord", "FixedLengthRecordDataset"),
    ("TensorSlice", "from_tensor_slices()"),
    ("FromTensor", "from_tensors()"),
    ("Range", "range()"),
)
_CHANGES = {
    "prefetch": "prefetch() at the end",
    "parallel_map": "parallel calls in {}",
    "parallel_read": "interleave() several {}",
    "cache": "cache() behind {}",
    "vectorize": "batch() before {}",
}


def in_code(stage: str) -> str:
    """Return what a stage of this name is called in the user's program."""
    return next((code for prefix, code in _BY_PREFIX if stage.startswith(prefix)), stage)


def change_in_code(change: str, stage: str | None) -> str:
    """Return a change of a stage of this name as the user would make it."""
    return _CHANGES[change].format(in_code(stage) if stage else "")
