"""The rules of GPUs, each declared once."""

from __future__ import annotations

from tfperf.models.linter.rule import BOTH, Rule, needs_of

GPU_GUIDE = "NVIDIA, Matrix Multiplication Background User's Guide, and its guide to convolutional layers"


def _gpu(id: str, title: str, level: str, *, says: str, **texts: str) -> Rule:
    return Rule(
        id=id,
        title=title,
        device="gpu",
        level=level,
        reads=frozenset(BOTH),
        needs=needs_of(BOTH),
        says=says,
        source=GPU_GUIDE,
        **texts,
    )


GPU_RULES = (
    _gpu(
        "GPU-MM-1",
        "Matrix product off the multiples of tensor cores",
        "medium, low, info",
        when="M, N or K is not a multiple of 8 (16 bit), 4 (float32), 2 (float64) or 16 (int8); 1 is exempt",
        advice="round the size up",
        unless="the type is float32 and TF32 is off, or the product takes little of the step",
        says="Tensor cores are fastest where dimensions are multiples of 16 bytes, on A100 of 128 bytes.",
    ),
    _gpu(
        "GPU-CV-1",
        "Channels off the multiples of tensor cores",
        "medium, low, info",
        when="input or output channels are even, and not a multiple of 8 (16 bit) or 4 (float32)",
        advice="round channels up; pad an image of 3 channels to 4",
        unless="the type is float32 and TF32 is off, or the convolution takes little of the step",
        says="Choose channels as multiples of 8 in 16 bit, and of 4 in TF32.",
    ),
    _gpu(
        "GPU-CV-2",
        "Odd number of channels",
        "medium, low, info",
        when="input or output channels are odd, and not 1",
        advice="round channels up; pad an image of 3 channels to 4",
        unless="the type is float32 and TF32 is off, or the convolution takes little of the step",
        says="Choose channels as multiples of 8 in 16 bit, and of 4 in TF32.",
    ),
    _gpu(
        "GPU-LY-1",
        "Layout of images",
        "medium",
        when="a convolution in 16 bit has the layout NCHW",
        advice="use NHWC (channels_last) in 16 bit",
        unless="the GPU has no tensor cores, or a profile shows no layout conversion: measure both",
        says="Tensor cores read NHWC; other layouts are converted.",
    ),
    _gpu(
        "GPU-LY-2",
        "Layout conversion",
        "medium, info",
        when="a transpose between NHWC and NCHW feeds a convolution, or reads one",
        advice="keep images in one layout",
        unless="the compiler removes it; look for Transpose in a profile",
        says="Tensor cores read NHWC; other layouts are converted.",
    ),
    _gpu(
        "GPU-BT-1",
        "Tiny batch",
        "info",
        when="the batch of a convolution, or the rows of a matrix product, are fewer than 8",
        advice="use a larger batch, if memory and latency allow it",
        unless="answers are wanted one by one, as in serving",
        says="Small dimensions leave tiles of a GPU empty (tile and wave quantization).",
    ),
)
