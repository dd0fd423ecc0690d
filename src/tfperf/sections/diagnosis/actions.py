"""What to change, in the words of the API that the program uses, and how much of a cost each change takes away."""

from __future__ import annotations

from collections.abc import Mapping

from tfperf.sections.diagnosis.advice import API, GUIDE, NVIDIA, Advice, everywhere, in_tensorflow
from tfperf.sections.diagnosis.compute_actions import COMPUTE_ADVICE
from tfperf.sections.diagnosis.memory_actions import MEMORY_ADVICE

_BATCH = "use a larger batch"

_ONE_LAYOUT = (
    "keep arrays in one layout from the input on, the one that the device computes in: dimension_numbers of "
    "jax.lax.conv_general_dilated"
)
_COPY_AHEAD = "copy ahead: jax.device_put the next batch before the step that runs is waited for"
_SHARD = "shard the batch over all devices (jax.sharding.NamedSharding)"
_IN_BFLOAT16 = "compute matrix products in bfloat16 (the dtype of layers), and keep parameters in float32"
_OFFLOADING = "https://docs.jax.dev/en/latest/notebooks/host-offloading.html"

ADVICE: Mapping[str, Advice] = {
    "use_tf_data": Advice(
        texts={
            "keras": "feed fit() from a tf.data.Dataset that ends with .prefetch(tf.data.AUTOTUNE)",
            "tensorflow": "make batches with tf.data, and end the pipeline with .prefetch(tf.data.AUTOTUNE)",
            "jax": "load the next batch in a thread while the step runs (grain, or tf.data with prefetch)",
        },
        least=0.3,
        most=1.0,
        assumption="batches can be made while the step before runs",
        url=f"{GUIDE}/data_performance",
    ),
    "look_at_stages": Advice(
        texts=everywhere("see what each stage of the pipeline takes: tfperf analyze PATH -s tfdata"),
        least=0.0,
        most=0.0,
        assumption="",
        url=f"{GUIDE}/data_performance_analysis",
    ),
    "prefetch_to_device": Advice(
        texts={
            **in_tensorflow("copy ahead: .apply(tf.data.experimental.prefetch_to_device('/GPU:0')) at the end"),
            "jax": _COPY_AHEAD,
        },
        on_tpus={"jax": _COPY_AHEAD},
        least=0.5,
        most=1.0,
        assumption="half or more of the copy fits beside the device's own work",
        url=f"{API}/data/experimental/prefetch_to_device",
        urls={"jax": "https://docs.jax.dev/en/latest/async_dispatch.html"},
    ),
    "smaller_types": Advice(
        texts=everywhere("send smaller types, such as uint8 instead of float32, and convert them on the device"),
        least=0.5,
        most=0.75,
        assumption="batches hold 32-bit numbers of which 8 or 16 bits suffice",
        url=f"{GUIDE}/gpu_performance_analysis",
    ),
    "fetch_less_often": Advice(
        texts={
            "keras": "read and save less often: in on_epoch_end, or every 100 batches (callbacks per batch, save_freq)",
            "tensorflow": "read losses, metrics and variables every 100 steps only (.numpy(), print, summaries)",
            "jax": "read or await results every 100 steps only (float(), print, device_get, block_until_ready)",
        },
        least=0.9,
        most=1.0,
        assumption="the program can go on without these results in 9 of 10 steps",
        url=f"{GUIDE}/gpu_performance_analysis",
    ),
    "keep_signature": Advice(
        texts={
            "keras": "keep the shapes of batches constant (drop_remainder=True, padded batches)",
            "tensorflow": (
                "fix shapes (input_signature, reduce_retracing=True) and pass tensors, not Python numbers; create "
                "tf.functions once, outside the loop"
            ),
            "jax": (
                "keep shapes (pad batches to a few sizes) and static arguments constant, and call jax.jit once, "
                "outside the loop"
            ),
        },
        least=0.9,
        most=1.0,
        assumption="no call traces or compiles any more; what a new program does at its first run is not counted",
        url=f"{GUIDE}/function#controlling_retracing",
        urls={"jax": "https://docs.jax.dev/en/latest/jit-compilation.html"},
    ),
    "pad_shapes": Advice(
        texts={
            "keras": (
                "pad batches to a few fixed shapes (padded_batch, drop_remainder=True), because XLA compiles for each "
                "shape; where shapes must vary, compile(jit_compile=False)"
            ),
            "tensorflow": (
                "pad inputs to a few fixed shapes, because XLA compiles for each shape, even with reduce_retracing "
                "or an input_signature; where shapes must vary, omit jit_compile=True"
            ),
        },
        least=0.9,
        most=1.0,
        assumption="no call compiles any more; the work for padding is not counted",
        url="https://www.tensorflow.org/xla/known_issues",
    ),
    "create_function_once": Advice(
        texts={
            "keras": "create the model and its tf.functions once, outside the loop",
            "tensorflow": "create the tf.function once, outside the loop",
        },
        least=0.9,
        most=1.0,
        assumption="no call traces any more",
        url=f"{GUIDE}/function#controlling_retracing",
    ),
    "less_between": Advice(
        texts={
            "keras": "if callbacks such as on_epoch_end run there, do less in them, less often, or in a thread",
            **dict.fromkeys(("tensorflow", "jax"), "do what runs there less often, in a thread, or after training"),
        },
        least=0.5,
        most=1.0,
        assumption="training does not need what runs between these steps",
        url=f"{GUIDE}/keras/writing_your_own_callbacks",
        urls={"jax": "https://docs.jax.dev/en/latest/async_dispatch.html"},
    ),
    "less_often": Advice(
        texts={
            "keras": "do what only these steps do less often, or in a thread (callbacks with on_train_batch_end)",
            **dict.fromkeys(("tensorflow", "jax"), "do what only these steps do less often, or in a thread"),
        },
        least=0.5,
        most=1.0,
        assumption="training does not need it in these steps",
        url=f"{GUIDE}/keras/writing_your_own_callbacks",
        urls={"jax": "https://docs.jax.dev/en/latest/async_dispatch.html"},
    ),
    "save_less_often": Advice(
        texts={
            "keras": "save less often: ModelCheckpoint(save_freq=N), or only the weights (save_weights_only=True)",
            "tensorflow": "save less often, or in the background: CheckpointOptions(enable_async=True)",
            "jax": "save less often, or in the background: orbax.checkpoint.AsyncCheckpointer",
        },
        least=0.5,
        most=1.0,
        assumption="fewer checkpoints suffice",
        url=f"{GUIDE}/checkpoint",
        urls={"jax": "https://orbax.readthedocs.io/en/latest/"},
    ),
    "longer_epochs": Advice(
        texts={
            "keras": "make longer epochs: fit(dataset.repeat(), steps_per_epoch=N), with a smaller shuffle buffer",
            "tensorflow": "make the iterator once, of dataset.repeat(), with a smaller shuffle buffer",
        },
        least=0.5,
        most=1.0,
        assumption="an epoch need not start with a new iterator",
        url=f"{GUIDE}/data_performance",
    ),
    "evaluate_less": Advice(
        texts={
            "keras": "evaluate less: fit(validation_freq=N), fewer validation_steps, or a larger validation batch",
            **dict.fromkeys(("tensorflow", "jax"), "evaluate less often, on fewer batches, or in larger batches"),
        },
        least=0.5,
        most=0.9,
        assumption="evaluation every 2nd to 10th time suffices",
        url="https://keras.io/api/models/model_training_apis/",
    ),
    "profile_later": Advice(
        texts={
            "keras": "profile later: TensorBoard(profile_batch=(20, 40)), or tfperf capture on the running job",
            "tensorflow": "profile later: after the first steps, or with tfperf capture on the running job",
            "jax": "profile later: after the first steps, or with tfperf capture on the running job",
        },
        least=0.9,
        most=1.0,
        assumption="later calls do not trace again",
        url=f"{GUIDE}/profiler",
    ),
    "use_function": Advice(
        texts={
            "keras": (
                "compute less often in callbacks, or in the model (metrics, train_step), whose functions run many ops "
                "in one call"
            ),
            "tensorflow": "put the whole step into one tf.function",
            "jax": "put the whole step into one jax.jit",
        },
        least=0.85,
        most=0.98,
        assumption=(
            "an op costs the host 7 to 50 times less inside a function (measured: 6 to 70); its kernel takes as long, "
            "or a fifth of it"
        ),
        url=f"{GUIDE}/function",
        urls={"jax": "https://docs.jax.dev/en/latest/jit-compilation.html"},
    ),
    "mark_steps": Advice(
        texts=in_tensorflow(
            "mark steps with tfperf.step(number) and profile again: the report then shows how much of a step these ops "
            "take, and whether tf.function would help"
        ),
        least=0.0,
        most=0.0,
        assumption="the profile shows no steps",
        url=f"{GUIDE}/function",
    ),
    "omit_run_eagerly": Advice(
        texts={"keras": "compile() without run_eagerly=True, so that each step is one call of a function"},
        least=0.85,
        most=0.98,
        assumption=(
            "an op costs the host 7 to 50 times less inside a function (measured: 6 to 70); its kernel takes as long, "
            "or a fifth of it"
        ),
        url="https://keras.io/api/models/model_training_apis/",
    ),
    "convert_once": Advice(
        texts={
            "keras": (
                "convert what stays the same once (tf.constant, or a weight of the model); feed batches from a "
                "tf.data.Dataset, which converts the next ones meanwhile"
            ),
            "tensorflow": (
                "convert what stays the same once, before the loop (tf.constant, tf.Variable); take batches from a "
                "tf.data.Dataset, which converts the next ones meanwhile"
            ),
            "jax": (
                "put what stays the same on the device once, before the loop (jax.device_put), and the next batch "
                "while the step runs"
            ),
        },
        least=0.7,
        most=1.0,
        assumption="the arrays stay the same, or are converted while the step before runs",
        url=f"{API}/constant",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.device_put.html"},
    ),
    "omit_run_functions_eagerly": Advice(
        texts=in_tensorflow("omit tf.config.run_functions_eagerly(True), which is for debugging"),
        least=0.85,
        most=0.98,
        assumption=(
            "an op costs the host 7 to 50 times less inside a function (measured: 6 to 70); its kernel takes as long, "
            "or a fifth of it"
        ),
        url=f"{API}/config/run_functions_eagerly",
    ),
    "one_iterator": Advice(
        texts={
            "keras": (
                "call predict(), evaluate() or fit() once on all data, not for each batch; for single inputs call the "
                "model itself: model(x, training=False), or predict_on_batch(x)"
            ),
            "tensorflow": "create the dataset and its iterator once, outside the loop",
        },
        least=0.8,
        most=1.0,
        assumption="the function of the step takes as long as now",
        url="https://keras.io/getting_started/faq/",
        urls={"tensorflow": f"{GUIDE}/data"},
    ),
    "jit_compile": Advice(
        texts={
            "keras": "compile(jit_compile=True), which fuses small ops",
            "tensorflow": "tf.function(jit_compile=True) for the step, which fuses small ops",
        },
        least=0.3,
        most=0.8,
        assumption="XLA can compile the model, and launches 1.5 to 5 times less (a guess: it depends on the model)",
        url="https://www.tensorflow.org/xla",
    ),
    "larger_batch": Advice(
        texts=everywhere(_BATCH),
        least=0.4,
        most=0.5,
        assumption="for the same number of examples, in batches twice as large, if memory and accuracy allow them",
        url=f"{GUIDE}/gpu_performance_analysis",
        is_per_examples=True,
    ),
    "steps_per_execution": Advice(
        texts={"keras": "compile(steps_per_execution=10), from TensorFlow 2.4 on"},
        least=0.7,
        most=0.85,
        assumption=(
            "Python between steps does nothing that must happen at each step; of steps of small ops, 28 to 71% were "
            "measured to go, of steps of many ops 0 to 10%"
        ),
        url="https://keras.io/api/models/model_training_apis/",
    ),
    "loop_in_function": Advice(
        texts={
            "tensorflow": "run several steps in one tf.function (for batch in dataset.take(10)), and log after them",
            "jax": "run several steps in one call (jax.lax.scan over batches on the device), and log after them",
        },
        least=0.5,
        most=0.95,
        assumption=(
            "Python between steps does nothing that must happen at each step; of steps of small ops, 41 to 90% were "
            "measured to go"
        ),
        url=f"{GUIDE}/function",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html"},
    ),
    "record_python": Advice(
        texts={
            **in_tensorflow("see which functions take it: tfperf run --python-trace train.py, for ten steps"),
            "jax": "see which functions take it: jax.profiler.ProfileOptions with python_tracer_level = 1",
        },
        least=0.0,
        most=0.0,
        assumption="",
        url=f"{GUIDE}/profiler",
        urls={"jax": "https://docs.jax.dev/en/latest/profiling.html"},
    ),
    "wait_in_threads": Advice(
        texts={
            **in_tensorflow(
                "if it fetches input, fetch it ahead in threads: a tf.data.Dataset with .map(tf.py_function of it, "
                "num_parallel_calls=8).prefetch(2)"
            ),
            "jax": "if it fetches input, fetch it ahead in threads: concurrent.futures.ThreadPoolExecutor, grain",
        },
        least=0.5,
        most=1.0,
        assumption="it does not depend on the step before; from one request at a time during the step to many",
        url=f"{GUIDE}/data_performance",
    ),
    "input_in_python": Advice(
        texts={
            "keras": (
                "if it makes batches, vectorize that, or make them while the step runs: fit() with keras.utils."
                "PyDataset, or a tf.data.Dataset, from_generator(...).prefetch(2); its own ops are faster than a "
                "generator"
            ),
            "tensorflow": (
                "if it makes batches, vectorize that, or make them while the step runs: a tf.data.Dataset, "
                "from_generator(...).prefetch(2); its own ops are faster than a generator"
            ),
            "jax": (
                "if it makes batches, vectorize that, or make them while the step runs: in worker processes (grain), "
                "or in a thread where NumPy does the work"
            ),
        },
        least=0.5,
        most=1.0,
        assumption="a core is free for it; threads of Python take turns, processes and ops of tf.data do not",
        url=f"{GUIDE}/data#consuming_python_generators",
    ),
    "callback_less_often": Advice(
        texts={"keras": "do what callbacks do after each batch every 100 batches only, or in on_epoch_end"},
        least=0.9,
        most=1.0,
        assumption="it is a callback, and need not happen after each batch",
        url="https://keras.io/guides/writing_your_own_callbacks/",
    ),
    "collect_less_often": Advice(
        texts=everywhere("call gc.collect() every 100 steps at most, or leave it to Python"),
        least=0.9,
        most=1.0,
        assumption="the memory of cycles that wait for a collection is there",
        url="https://docs.python.org/3/library/gc.html",
    ),
    "freeze_objects": Advice(
        texts=everywhere(
            "call gc.freeze() once after the setup, so that collections leave out what stays; or gc.disable(), and "
            "gc.collect() every 1,000 steps"
        ),
        least=0.5,
        most=1.0,
        assumption="most objects are of the setup, or none is collected; the memory of cycles is there",
        url="https://docs.python.org/3/library/gc.html#gc.freeze",
    ),
    "mixed_precision": Advice(
        texts={
            "keras": (
                "keras.mixed_precision.set_global_policy('mixed_float16'); 'mixed_bfloat16' from NVIDIA's A100 on; "
                "layer sizes and batch in multiples of 8"
            ),
            "tensorflow": "compute in 16 bit: tf.keras.mixed_precision, or cast what layers compute to tf.bfloat16",
            "jax": _IN_BFLOAT16,
        },
        on_tpus={**in_tensorflow("keras.mixed_precision.set_global_policy('mixed_bfloat16')"), "jax": _IN_BFLOAT16},
        least=0.33,
        most=0.75,
        assumption="a rule of thumb: products take 1.5 to 4 times less time in 16 bit, if the roofline allows it",
        url=f"{GUIDE}/mixed_precision",
        urls={"jax": "https://docs.jax.dev/en/latest/default_dtypes.html"},
    ),
    "keep_layout": Advice(
        texts={
            "keras": (
                "keep images in the layout that the device computes in: data_format 'channels_last' with mixed_float16 "
                "on tensor cores, 'channels_first' in float32"
            ),
            "tensorflow": (
                "keep images in the layout that the device computes in: data_format 'NHWC' in 16 bit on tensor cores, "
                "'NCHW' in float32"
            ),
            "jax": _ONE_LAYOUT,
        },
        on_tpus={"jax": _ONE_LAYOUT},
        least=0.5,
        most=1.0,
        assumption="most of these conversions are not needed then",
        url=f"{NVIDIA}/dl-performance-convolutional/index.html",
    ),
    "fewer_bytes": Advice(
        texts={
            "keras": "move fewer bytes: keras.mixed_precision.set_global_policy('mixed_bfloat16')",
            "tensorflow": "move fewer bytes: 16-bit types, elementwise ops in the function of what feeds them",
            "jax": "move fewer bytes: bfloat16 arrays, elementwise functions inside the jit of what feeds them",
        },
        least=0.0,
        most=0.5,
        assumption="half of the time of ops on 32-bit numbers, as far as the shapes in the trace say which these are",
        url=f"{GUIDE}/gpu_performance_analysis",
    ),
    "aligned_sizes": Advice(
        texts=everywhere("round the sizes up to multiples of 8 (better of 64): units, channels, vocabulary, batch"),
        on_tpus=everywhere("round the sizes up to multiples of 128 (a batch: of 8): units, channels, vocabulary"),
        least=0.0,
        most=1.0,
        assumption="at most what products of aligned sizes reach in this capture",
        url=f"{NVIDIA}/dl-performance-matrix-multiplication/index.html",
    ),
    "larger_products": Advice(
        texts=everywhere("use a larger batch, or wider layers (multiples of 64)"),
        on_tpus=everywhere("use a larger batch, or wider layers (multiples of 128)"),
        least=0.0,
        most=1.0,
        assumption="for as many examples as now; at most what products that reach 30 % of the roofline save",
        url=f"{NVIDIA}/dl-performance-matrix-multiplication/index.html",
        is_per_examples=True,
    ),
    "fewer_exchanges": Advice(
        texts=everywhere("use a larger batch on each device, so that gradients are exchanged less often per example"),
        least=0.25,
        most=0.5,
        assumption="for as many examples as now, in batches twice as large",
        url=f"{GUIDE}/distributed_training",
        is_per_examples=True,
    ),
    "look_at_host": Advice(
        texts=everywhere("look at that host alone (tfperf analyze --host NAME), and compare it with another"),
        least=0.5,
        most=1.0,
        assumption="the host can be as fast as the others",
        url=f"{GUIDE}/distributed_training",
    ),
    "even_work": Advice(
        texts=everywhere("give all hosts the same work in each step, and look for what interrupts them (-s hosts)"),
        least=0.5,
        most=1.0,
        assumption="no host is late",
        url=f"{GUIDE}/distributed_training",
    ),
    "overlap_exchange": Advice(
        texts=everywhere("exchange gradients while others are still computed, and fewer bytes of them (16 bit)"),
        least=0.0,
        most=1.0,
        assumption="gradients are exchanged as soon as they are there",
        url=f"{GUIDE}/distributed_training",
    ),
    "balance_input": Advice(
        texts=everywhere("give each host the same share of the files, and as many cores for its input as the others"),
        least=0.5,
        most=1.0,
        assumption="the input of the host can be as fast as that of the others",
        url=f"{GUIDE}/data_performance_analysis",
    ),
    "use_all_devices": Advice(
        texts={
            "keras": "build and compile the model under tf.distribute.MirroredStrategy(), which uses all GPUs",
            "tensorflow": "give every GPU a part of the batch: tf.distribute.MirroredStrategy()",
            "jax": _SHARD,
        },
        on_tpus={**in_tensorflow("build and run the model under tf.distribute.TPUStrategy()"), "jax": _SHARD},
        least=0.0,
        most=0.0,
        assumption="the devices are meant for this job; how much faster it gets, the trace does not tell",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/sharded-computation.html"},
    ),
    "start_all_devices": Advice(
        texts={
            **in_tensorflow("check that the strategy lists them all, or profile later, when all have started"),
            "jax": "check that the mesh holds them all, or profile later, when all have started",
        },
        least=0.0,
        most=0.0,
        assumption="the devices are meant for this job; how much faster it gets, the trace does not tell",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/sharded-computation.html"},
    ),
    "move_ops": Advice(
        texts=everywhere(
            "let the device do these ops (their types, tf.device), or the input pipeline, which works ahead of the step"
        ),
        least=0.0,
        most=0.0,
        assumption="the ops do not need the host",
        url=f"{GUIDE}/gpu_performance_analysis",
    ),
    **MEMORY_ADVICE,
    **COMPUTE_ADVICE,
    "keep_on_device": Advice(
        texts=everywhere("keep them in the memory of the TPU"),
        least=1.0,
        most=1.0,
        assumption="they fit there together with the program's other arrays",
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
    "capture_less": Advice(
        texts=everywhere("profile fewer things: a lower host tracer level, no Python tracer, fewer steps"),
        least=0.5,
        most=1.0,
        assumption="the job without the profiler is faster by what was measured",
        url=f"{GUIDE}/profiler",
    ),
}
"""Every action by its code."""
