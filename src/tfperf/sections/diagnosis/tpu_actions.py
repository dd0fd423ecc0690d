"""What to change where TPU cores wait for data: copies from and to the memory of the host, and on the chip."""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.sections.diagnosis.advice import Advice, everywhere

_OFFLOADING = "https://docs.jax.dev/en/latest/notebooks/host-offloading.html"

TPU_ADVICE: Mapping[str, Advice] = {
    "keep_on_device": Advice(
        texts=everywhere("keep them in the memory of the TPU"),
        least=1.0,
        most=1.0,
        assumption="they fit beside what else the program has there",
        url=_OFFLOADING,
    ),
    "halve_copies": Advice(
        texts=everywhere("bfloat16 arrays, which are half as large"),
        least=0.5,
        most=0.5,
        assumption="the numbers need no more precision; what computes with them may take half of its time, too",
        url=_OFFLOADING,
    ),
    "overlap_copies": Advice(
        texts=everywhere("smaller pieces that begin earlier"),
        least=0.0,
        most=1.0,
        assumption="copies both ways and computing overlap",
        url=_OFFLOADING,
    ),
    "feed_kernel": Advice(
        texts=everywhere("bfloat16 inputs, larger blocks, or more buffers in the kernel's pipeline"),
        least=0.0,
        most=1.0,
        assumption="blocks arrive while the kernel computes",
        url="https://docs.jax.dev/en/latest/pallas/tpu/pipelining.html",
    ),
}
"""Actions by their code."""
