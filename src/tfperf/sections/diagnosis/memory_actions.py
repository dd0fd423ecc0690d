"""What to change where memory may not suffice: about failing, not about speed."""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.sections.diagnosis.advice import API, GUIDE, Advice, everywhere, in_tensorflow

_ABOUT_FAILING = "the step may take longer than now: this is about failing, not about speed"

MEMORY_ADVICE: Mapping[str, Advice] = {
    "use_less_memory": Advice(
        on_tpus=everywhere("use a smaller batch, or bfloat16, which halves activations"),
        texts={
            "keras": (
                "use a smaller batch, keras.mixed_precision.set_global_policy('mixed_float16'), which halves "
                "activations, or tf.recompute_grad(layer), which computes them again instead of keeping them"
            ),
            "tensorflow": (
                "use a smaller batch, 16 bit, which halves activations, or tf.recompute_grad(layer), which computes "
                "them again instead of keeping them"
            ),
            "jax": (
                "use a smaller batch, bfloat16, which halves activations, jax.checkpoint, which computes them again, "
                "or donate_argnums, so that new state overwrites the old"
            ),
        },
        least=0.0,
        most=0.0,
        assumption=_ABOUT_FAILING,
        url=f"{API}/recompute_grad",
        urls={"jax": "https://docs.jax.dev/en/latest/gradient-checkpointing.html"},
    ),
    "share_device_memory": Advice(
        on_tpus={},
        texts=in_tensorflow(
            "if other processes use the device too: tf.config.experimental.set_memory_growth(gpu, True) in all of them"
        ),
        least=0.0,
        most=0.0,
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu#limiting_gpu_memory_growth",
    ),
    "raise_pinned_limit": Advice(
        texts=in_tensorflow("raise TF_GPU_HOST_MEM_LIMIT_IN_MB, or prefetch fewer batches"),
        on_tpus={},
        least=0.0,
        most=0.0,
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu",
    ),
    "avoid_fragmentation": Advice(
        on_tpus={},
        texts={
            **in_tensorflow(
                "keep shapes constant (pad, or put sequences of similar length together), and try "
                "TF_GPU_ALLOCATOR=cuda_malloc_async (TensorFlow 2.5 and CUDA 11.2, or later)"
            ),
            "jax": "keep shapes constant (pad, or put sequences of similar length together)",
        },
        least=0.0,
        most=0.0,
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu",
    ),
    "release_tensors": Advice(
        texts={
            "keras": (
                "look for tensors that Python keeps (a list of losses: append float(loss) instead), and for models "
                "made in a loop (keras.backend.clear_session() between them)"
            ),
            "tensorflow": (
                "look for tensors that Python keeps (a list of losses: append float(loss) instead), and for functions "
                "that are traced again (-s functions)"
            ),
            "jax": "look for arrays that Python keeps (a list of losses: append float(loss) instead)",
        },
        least=0.0,
        most=0.0,
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu",
    ),
}
"""Actions by their code."""
