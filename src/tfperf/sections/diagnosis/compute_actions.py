"""What to change in what the step computes: the advice for the causes of `compute_causes`."""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.sections.diagnosis.advice import API, GUIDE, Advice, everywhere, in_tensorflow

COMPUTE_ADVICE: Mapping[str, Advice] = {
    "even_replicas": Advice(
        texts=everywhere("move what only this replica does out of the step (to the input), or share it among replicas"),
        least=0.7,
        most=1.0,
        assumption="no replica has more to do than the others",
        url=f"{GUIDE}/distributed_training",
    ),
    "use_graph_ops": Advice(
        texts={
            **in_tensorflow("write the function with ops of TensorFlow, or call it in the input pipeline (map)"),
            "jax": "write the function in jax.numpy, or call it before or after the jitted step",
        },
        least=0.7,
        most=1.0,
        assumption="ops of the framework do the same in little time",
        url=f"{GUIDE}/function",
        urls={"jax": "https://docs.jax.dev/en/latest/external-callbacks.html"},
    ),
    "no_print": Advice(
        texts={
            **in_tensorflow("remove tf.print from the graph, or print every 100 steps only (tf.cond)"),
            "jax": "remove jax.debug.print from the step",
        },
        least=0.9,
        most=1.0,
        assumption="the text is not needed in each step",
        url=f"{API}/print",
    ),
    "prepare_ahead": Advice(
        texts=in_tensorflow(
            "run these ops in the input pipeline: dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2), or "
            "once before the training"
        ),
        least=0.5,
        most=1.0,
        assumption="a core is free for them while the step before runs, or their results are kept",
        url=f"{GUIDE}/keras/preprocessing_layers",
    ),
    "sparse_product": Advice(
        texts=in_tensorflow(
            "keep the batch sparse: tf.sparse.sparse_dense_matmul, or tf.nn.embedding_lookup_sparse for ids"
        ),
        least=0.4,
        most=1.0,
        assumption="few of the numbers are not zero, so that a sparse product takes less",
        url=f"{API}/sparse/sparse_dense_matmul",
    ),
    "vectorize_loop": Advice(
        texts=in_tensorflow(
            "do all iterations at once, if none needs the one before: ops on the whole batch, or tf.vectorized_map "
            "instead of tf.map_fn"
        ),
        least=0.7,
        most=1.0,
        assumption="no iteration needs the one before, and ops on the whole batch take little time",
        url=f"{API}/vectorized_map",
    ),
    "set_threads": Advice(
        texts=in_tensorflow(
            "do not set the numbers of threads, or set them to the cores: tf.config.threading, TF_NUM_INTRAOP_THREADS, "
            "TF_NUM_INTEROP_THREADS"
        ),
        least=0.0,
        most=0.0,
        assumption="the trace does not show what switching between threads costs",
        url=f"{API}/config/threading",
    ),
    "cast_to_float32": Advice(
        texts={
            **in_tensorflow(
                "make arrays float32, if that is exact enough: np.float32 (NumPy makes float64), or tf.cast"
            ),
            "jax": "compute in float32, if it is exact enough: jax_enable_x64 off, or arrays of dtype float32",
        },
        least=1.0,
        most=1.0,
        assumption="float32 is exact enough, and takes 40 to 80 % less time, as measured",
        url=f"{API}/cast",
        urls={"jax": "https://docs.jax.dev/en/latest/default_dtypes.html"},
    ),
    "sparse_update": Advice(
        texts={
            "keras": (
                "update only the rows that the batch reads: keras.optimizers.SGD, or a lazy Adam, which unlike Adam "
                "leaves the momentum of all other rows as it is"
            ),
            "tensorflow": (
                "update only the rows that the batch reads (IndexedSlices, scatter_sub), as SGD or a lazy Adam does, "
                "which unlike Adam leaves the momentum of all other rows as it is"
            ),
            "jax": "update only the rows that the batch reads (x.at[rows].add)",
        },
        least=0.6,
        most=1.0,
        assumption="a batch reads few of the rows, and the model trains as well with such an optimizer",
        url=f"{API}/IndexedSlices",
    ),
    "fuse_update": Advice(
        texts={
            "keras": "compile(jit_compile=True), which fuses the ops of the update, if XLA can compile the model",
            "tensorflow": "tf.function(jit_compile=True) for the step, which fuses the ops of the update",
        },
        least=0.3,
        most=0.8,
        assumption="XLA can compile the model, and reads and writes each variable once per update",
        url="https://www.tensorflow.org/xla",
    ),
    "gather_rows": Advice(
        texts={
            "keras": "pick rows by their ids: an Embedding layer, or tf.gather, instead of tf.one_hot and a product",
            "tensorflow": "pick rows by their ids: tf.gather instead of tf.one_hot and a product",
            "jax": "pick rows by their ids: weights[ids] instead of jax.nn.one_hot and a product",
        },
        least=0.7,
        most=1.0,
        assumption="the vectors are made from ids",
        url=f"{API}/gather",
    ),
    "fewer_updates": Advice(
        texts=everywhere("use a larger batch, so that variables are updated less often per example"),
        least=0.4,
        most=0.5,
        assumption="for the same number of examples, in batches twice as large, if memory and accuracy allow them",
        url=f"{GUIDE}/gpu_performance_analysis",
        is_per_examples=True,
    ),
    "smaller_layer": Advice(
        texts=everywhere(
            "if that width is not meant: pool before the layer (GlobalAveragePooling instead of Flatten), or give it "
            "fewer units"
        ),
        least=0.0,
        most=0.0,
        assumption="the model needs no layer that large; the trace does not show it",
        url="https://keras.io/api/layers/pooling_layers/global_average_pooling2d/",
    ),
}
"""Every such action by its code."""
