"""Compare the kernels of tfperf with TensorFlow's own, row by row (used by `parity.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfperf.sections.kernels.analysis import Kernels

Check = tuple[str, bool, str]
"""Column, whether it matched, and the values for the message if it did not."""


def check_kernels(kernels: Kernels, rows: list[dict[str, str]]) -> Iterator[Check]:
    """Compare every row of `kernels.csv`, in its order; `kernels` are those of attribution tensorflow.

    A profile without a GPU has none.
    """
    count = len(kernels)
    yield "number of kernels", count == len(rows), f"{count}, expected {len(rows)}"
    for index, row in enumerate(rows):
        ours = _row(kernels, index) if index < count else {}
        for key, wanted in row.items():
            yield f"kernel {key}", ours.get(key) == wanted, f"{row['name'][:60]}: {ours.get(key)}, expected {wanted}"


def _row(kernels: Kernels, index: int) -> dict[str, Any]:
    """Return a row as the columns of `kernels.csv`, which are text."""
    kernel = kernels.kernels[index]
    launch = kernel.launch
    row = {
        "name": kernel.name,
        "op_name": kernel.op.name,
        "occurrences": kernels.occurrences[index],
        "total_duration_ns": kernels.total_ps[index] // 1000,
        "min_duration_ns": kernels.min_ps[index] // 1000,
        "max_duration_ns": kernels.max_ps[index] // 1000,
        "registers_per_thread": launch.registers,
        "static_shmem_bytes": launch.static_shared_bytes,
        "dynamic_shmem_bytes": launch.dynamic_shared_bytes,
        "block_dim": ",".join(map(str, launch.block or ())),
        "grid_dim": ",".join(map(str, launch.grid or ())),
        "is_kernel_using_tensor_core": kernel.uses_tensor_cores,
        "is_op_tensor_core_eligible": kernel.is_eligible,
    }
    return {key: str(value) for key, value in row.items()}
