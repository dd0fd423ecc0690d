"""The meaning of each cause and action: texts per API, and the share of a cost that an action saves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tfperf.report.palette import Role
    from tfperf.sections.diagnosis.program import Api


class CauseMeaning(Struct, frozen=True):
    """A cause in words, as Markdown with links relative to docs/."""

    text: str
    taken_from: str
    """Source of the number."""
    role: Role = "compute"
    """The role of its time in the step, which decides its color."""


_HOST_COMPUTE = "part of the category Host compute"
_DEVICE_COMPUTE = "part of the category Device compute"
_OF_CALLBACKS = (
    "on a GPU, idle time from the first copy of the callback to the next work, or the end of the program (part of Host "
    "compute, Kernel launch, Output, Host to device and All others); on a TPU, its sends and receives"
)
_HOST = "part of Host compute and All others"
_HOST_AND_LAUNCH = "part of Host compute, Kernel launch and All others"
CAUSE_MEANINGS: Mapping[str, CauseMeaning] = {
    "input_wait": CauseMeaning(
        "the step waits for the next batch of tf.data", "part of the category Input", role="input"
    ),
    "input_copy": CauseMeaning(
        "batches are copied to the device, not overlapped with compute", "part of the category Input", role="copy"
    ),
    "host_copies": CauseMeaning(
        "TPU cores wait for arrays in host memory, or for copies to the host",
        "[copies](kernels.md#copies-of-tpu-cores), part of the categories Host to device and Output",
        role="copy",
    ),
    "chip_copies": CauseMeaning(
        "TPU cores wait for copies between the memories of their chip",
        "part of the category Device to device",
        role="copy",
    ),
    "kernel_waits": CauseMeaning(
        "a kernel of a TPU core (Pallas) waits for its blocks, in regions marked by the kernel", _DEVICE_COMPUTE
    ),
    "input_contention": CauseMeaning(
        ("threads of the input pipeline use cores that the step needs ([estimate](tfdata.md#what-input-costs))"),
        "part of the categories Host compute and All others",
        role="input",
    ),
    "output_copy": CauseMeaning(
        "results are copied to the host, not overlapped with compute", "category Output", role="copy"
    ),
    "compilation": CauseMeaning(
        "functions are traced or compiled during the steps", "category Compilation", role="compile"
    ),
    "warm_up": CauseMeaning(
        "only the first steps of the capture trace functions or take very long",
        "category Compilation, or the steps that are excluded from the averages",
        role="compile",
    ),
    "launch_bound": CauseMeaning(
        "the device waits for kernel launches; a TPU that finishes before each call waits for the calls",
        (
            "category Kernel launch; in JAX on a GPU, also Host compute in which the device waits for a launch; on "
            "a TPU, part of All others"
        ),
        role="launch",
    ),
    "small_work_per_step": CauseMeaning(
        (
            "per-step overhead (calls, launches, framework Python, but not waiting for results) takes 20% of the "
            "step or more; host compute without ops does not count if ops take half of the step, and either one op "
            "takes most of that time or all ops take 5 ms, because the step then waits for cores; on a GPU, the "
            "device also computes for less than a quarter of the step"
        ),
        "Kernel launch, Host compute without ops, All others",
        role="launch",
    ),
    "host_ops": CauseMeaning(
        "ops run on host threads and launch no device work while the device is idle",
        "part of Host compute, measured as in [idle.md](idle.md)",
    ),
    "waiting_for_results": CauseMeaning(
        "the program waits for results while the device is idle",
        (
            "part of Host compute and All others, measured as in [idle.md](idle.md); for a TPU that finishes "
            "before each call, the step time minus the longer of its device runs and the host work without waiting"
        ),
        role="python",
    ),
    "device_sync": CauseMeaning(
        "CUDA or HIP calls wait for the device, and their thread then launches the next work late",
        (
            "idle time between such a call and the next work, at most the time waited; part of Host compute, All "
            "others and Kernel launch ([API calls](kernels.md#api-calls))"
        ),
        role="python",
    ),
    "garbage_collection": CauseMeaning(
        (
            "Python's garbage collector runs, as [recorded](capture.md#facts-about-the-job) by tfperf captures or "
            "shown by frames of gc.collect; if it runs in only one or two of many steps, there is no action"
        ),
        "part of the categories All others and Host compute",
        role="python",
    ),
    "python_between_steps": CauseMeaning(
        (
            "the calling thread is outside any framework call: Python computes or waits ([how tfperf "
            "decides](python_functions.md#between-calls))"
        ),
        "part of the category All others; if a JAX run ends before the next call, also the Python that overlaps it",
        role="python",
    ),
    "waiting_in_calls": CauseMeaning(
        "a framework call is running, but has no recorded events inside",
        "part of the category All others",
        role="unexplained",
    ),
    "checkpointing": CauseMeaning("steps save checkpoints with TensorFlow ops", _HOST, role="python"),
    "fetch_results": CauseMeaning(
        "steps read the results of metrics or the values of variables one by one, or write summaries",
        _HOST,
        role="python",
    ),
    "eager_ops": CauseMeaning(
        "eager execution: Python runs ops one by one, outside any function; includes the Python between them",
        "part of Host compute, Kernel launch and All others, excluding kernels of 1 ms or more on average",
        role="launch",
    ),
    "run_eagerly": CauseMeaning(
        "Keras runs the ops of its steps one by one, because of `compile(run_eagerly=True)`",
        _HOST_AND_LAUNCH,
        role="launch",
    ),
    "numpy_conversion": CauseMeaning(
        "large NumPy arrays are converted to tensors or JAX arrays in each step, or many small ones one by one (JAX)",
        "part of Host compute, All others and Input",
        role="copy",
    ),
    "iterator_per_step": CauseMeaning(
        "each step creates a tf.data pipeline: `predict` per example, or an iterator inside the loop",
        "Compilation, Input, Host compute and All others, excluding the function that the step calls",
        role="python",
    ),
    "barriers": CauseMeaning(
        "devices wait for others at barriers (TPU) or in collectives, for 10% of the step or more",
        "category Device collectives: barriers, and the share of collectives that is [waiting](collectives.md)",
        role="others",
    ),
    "collectives": CauseMeaning(
        "replicas exchange gradients, or wait for each other before the exchange",
        "category Device collectives; on CPUs, part of Host compute",
        role="others",
    ),
    "collectives_bound": CauseMeaning(
        "data exchange between devices or hosts, without waiting (if it is known), takes 10% of the step or more",
        "not part of the step: `collectives` has the cost",
        role="others",
    ),
    "straggler": CauseMeaning(
        "hosts wait for the last host of a step: always the same host, or varying ones",
        "the extra time of that host, unless another cause has it; if the host varies, the waiting time of hosts",
        role="others",
    ),
    "skewed_input": CauseMeaning(
        "one host has slower input than the others, and they wait for it",
        "not part of the step: `input_wait` or `input_copy` has the cost",
        role="input",
    ),
    "slow_replica": CauseMeaning(
        "replicas of one host wait in collectives while only one replica runs ops", _HOST_COMPUTE, role="others"
    ),
    "python_in_graph": CauseMeaning(
        "the graph or compiled program calls Python: numpy_function, py_function, jax.pure_callback, io_callback",
        f"{_HOST_COMPUTE}; {_OF_CALLBACKS}",
    ),
    "print_in_graph": CauseMeaning(
        "tf.print or jax.debug.print formats text in the graph or compiled program", f"{_HOST_COMPUTE}; {_OF_CALLBACKS}"
    ),
    "input_in_step": CauseMeaning(
        "the step itself prepares its input with ops on text, lookup tables, encoded images and records", _HOST_COMPUTE
    ),
    "densified_sparse": CauseMeaning(
        "the step converts a sparse batch to dense as input of a matrix product", _HOST_COMPUTE
    ),
    "one_hot_product": CauseMeaning("a matrix product selects rows with one-hot vectors", _HOST_COMPUTE),
    "loop_in_graph": CauseMeaning(
        "a loop (tf.map_fn, tf.while_loop) runs small ops for each example; recurrent layers are excluded",
        _HOST_COMPUTE,
    ),
    "too_many_threads": CauseMeaning(
        "TensorFlow's thread pools have more than two threads per core", "part of the category Host compute, as a range"
    ),
    "double_precision": CauseMeaning(
        "ops compute in float64, which takes about twice as long as float32",
        "40 to 80% of the time of these ops, part of the category Host compute, or Device compute for XLA ops of a GPU",
    ),
    "optimizer_update": CauseMeaning("the optimizer's update takes 30% of the step or more", _HOST_COMPUTE),
    "unfused_update": CauseMeaning(
        "on a GPU, the optimizer updates variables by 50 or more kernels per step, each shorter than 10 us",
        _DEVICE_COMPUTE,
    ),
    "dominant_layer": CauseMeaning(
        "a dense layer with a very wide input takes half of the step or more, including the update of its weights",
        _HOST_COMPUTE,
    ),
    "device_compute_32bit": CauseMeaning("kernels that could use tensor cores in 16-bit precision", _DEVICE_COMPUTE),
    "converted_fp8": CauseMeaning(
        "products convert both inputs from FP8 to a wider type first, although the device multiplies FP8 faster",
        _DEVICE_COMPUTE,
    ),
    "layout_conversion": CauseMeaning("kernels convert arrays of convolutions to another layout", _DEVICE_COMPUTE),
    "memory_bound": CauseMeaning(
        "ops other than matrix products and convolutions are memory-bound ([roofline](roofline.md))", _DEVICE_COMPUTE
    ),
    "unaligned_shapes": CauseMeaning(
        (
            "matrix products with unaligned sizes (GPU: 16-bit, not multiples of 8; TPU: partly filled tiles) "
            "reach a smaller share of the roofline than the others, or cuDNN pads the channels of convolutions"
        ),
        _DEVICE_COMPUTE,
    ),
    "low_utilisation": CauseMeaning(
        (
            "matrix products and convolutions reach less than 30% of both peaks ([roofline](roofline.md)): small ones, "
            "or large ones in slow kernels"
        ),
        _DEVICE_COMPUTE,
    ),
    "profiling_overhead": CauseMeaning(
        "the profiler makes steps longer (measured by captures)", _HOST_AND_LAUNCH, role="python"
    ),
    "between_steps": CauseMeaning(
        "time between steps that belongs to no step: the end of an epoch, a checkpoint, Python",
        "the [wall time](wall.md) between steps",
        role="python",
    ),
    "evaluation": CauseMeaning(
        "evaluation takes 20% of the wall time or more",
        "the [wall time](wall.md) of steps of other kinds, excluding compilation that only one evaluation does",
    ),
    "slow_steps": CauseMeaning(
        "averaged steps repeatedly take over twice the median, and no other cause explains it",
        "the time beyond the median, as a share of the [wall time](wall.md)",
        role="python",
    ),
    "idle_devices": CauseMeaning(
        "devices run nothing, or only copies outside of steps", "not part of the step: the cost is unknown"
    ),
    "memory_pressure": CauseMeaning("memory is nearly full, fragmented or growing", "not part of the step"),
    "captured_constants": CauseMeaning(
        "a program contains 32 MiB or more in constants of at least 1 MiB each: arrays that a jitted function captures",
        "not part of the step: constants take memory, and time and space when the program is compiled or profiled",
    ),
}

PRODUCTS: Mapping[frozenset[str], str] = {
    frozenset(("product",)): "matrix products",
    frozenset(("convolution",)): "convolutions",
    frozenset(("product", "convolution")): "matrix products and convolutions",
}
"""Names of what matrix units compute, in titles of causes."""
CAUSE_TITLES: Mapping[str, tuple[str, ...]] = {
    "input_wait": ("Waiting for input",),
    "input_copy": ("Copying batches to the device",),
    "host_copies": ("Waiting for copies between host and TPU memory",),
    "chip_copies": ("Waiting for copies between the chip's memories",),
    "kernel_waits": ("Waiting for blocks inside a kernel",),
    "input_contention": ("CPU contention with the input pipeline",),
    "output_copy": ("Copying results to the host",),
    "compilation": ("Compilation",),
    "warm_up": (
        "The capture includes warm-up",
        "Tracing in the first calls of the program",
        "Compiling in the first calls of the program",
    ),
    "launch_bound": ("Launching kernels", "Waiting for the host's calls"),
    "small_work_per_step": ("Per-step overhead",),
    "host_ops": ("Running ops on the host",),
    "waiting_for_results": ("Waiting for results", "Waiting for each result before the next call"),
    "garbage_collection": ("Python garbage collection",),
    "device_sync": ("Calls that wait for the device",),
    "python_between_steps": ("Python between calls", "Time between requests", "Time without recorded events"),
    "waiting_in_calls": ("Waiting inside calls", "Work inside calls"),
    "checkpointing": ("Saving checkpoints",),
    "fetch_results": ("Reading metrics", "Reading variables", "Reading device arrays", "Writing summaries"),
    "eager_ops": ("Eager execution", "Eager execution of tf.functions"),
    "run_eagerly": ("compile(run_eagerly=True)",),
    "numpy_conversion": ("Converting NumPy arrays", "Copying NumPy arrays"),
    "iterator_per_step": ("Creating an input pipeline in each step",),
    "barriers": ("Waiting for other devices",),
    "collectives": ("Collective communication",),
    "collectives_bound": ("Communication between hosts",),
    "straggler": (
        "One slow host",
        "Waiting for the slowest host of each step",
        "Waiting for HOST during the first steps",
    ),
    "skewed_input": ("Uneven input",),
    "slow_replica": ("One slow replica",),
    "python_in_graph": ("Python in the graph", "Calling Python from the device"),
    "print_in_graph": ("Printing in the graph", "Printing from the device"),
    "input_in_step": ("Preparing input in the step",),
    "densified_sparse": ("Converting sparse batches to dense",),
    "one_hot_product": ("Multiplying one-hot vectors",),
    "loop_in_graph": ("A loop in the graph",),
    "too_many_threads": ("Thread oversubscription",),
    "double_precision": ("Float64 compute",),
    "optimizer_update": ("The optimizer's update",),
    "unfused_update": ("An optimizer update in many short kernels",),
    "dominant_layer": ("The layer NAME",),
    "device_compute_32bit": ("32-bit compute",),
    "converted_fp8": ("Multiplying FP8 in a wider type",),
    "layout_conversion": ("Converting layouts around convolutions",),
    "memory_bound": ("Memory-bound work",),
    "unaligned_shapes": (
        *(f"Running {what} of unaligned sizes" for what in PRODUCTS.values()),
        "Padding channels of convolutions",
    ),
    "low_utilisation": (
        *(f"Running small {what}" for what in PRODUCTS.values()),
        *(f"Running {what} slowly" for what in PRODUCTS.values()),
    ),
    "profiling_overhead": ("Profiling overhead",),
    "between_steps": ("Time between steps",),
    "evaluation": ("Evaluation",),
    "slow_steps": ("Extra time in slow steps",),
    "idle_devices": ("N of N devices are unused", "N of N device is unused"),
    "memory_pressure": ("Memory is nearly full, fragmented or growing",),
    "captured_constants": ("Large constants in a program",),
}
"""Titles of causes on screens, for `tfperf explain`; HOST, NAME and N stand for values."""

GUIDE = "https://www.tensorflow.org/guide"
API = "https://www.tensorflow.org/api_docs/python/tf"
NVIDIA = "https://docs.nvidia.com/deeplearning/performance"


class Advice(Struct, frozen=True, kw_only=True):
    """A change that saves a share of a cost, from lowest to highest (0 to 1), under an assumption."""

    texts: Mapping[Api, str]
    """An API without a text does not get the advice."""
    url: str
    saves: tuple[float, float] = (0.0, 0.0)
    """0 if the trace does not show the saving."""
    assumption: str = ""
    urls: Mapping[Api, str] = {}
    """Pages for an API, if they differ."""
    tpu_url: str = ""
    """Page for jobs on TPUs, if it differs."""
    is_per_examples: bool = False
    """As in `Action`."""
    on_tpus: Mapping[Api, str] | None = None
    """Texts for jobs on TPUs, if they differ."""
    snippets: Mapping[Api, str] = {}
    """Code to type, as in `tfperf.report.model.Change`."""

    def text(self, api: Api, *, is_tpu: bool) -> str | None:
        """Return the change as text; None if the advice does not apply."""
        return (self.texts if self.on_tpus is None or not is_tpu else self.on_tpus).get(api)

    def page(self, api: Api, *, is_tpu: bool) -> str:
        """Return the URL of the documentation of the change."""
        return (is_tpu and self.tpu_url) or self.urls.get(api, self.url)

    def snippet(self, api: Api, *, is_tpu: bool) -> str:
        """Return code to type; empty if there is none, or if TPUs have another text."""
        return "" if is_tpu and self.on_tpus is not None else self.snippets.get(api, "")


_SINCE = re.compile(r" \(TensorFlow (\d+)\.(\d+) or later\)")


def with_open_conditions(text: str, version: tuple[int, int] | None) -> str:
    """Return a text without the conditions that this version of TensorFlow meets; all remain if it is unknown."""
    return _SINCE.sub(lambda since: "" if version and version >= (int(since[1]), int(since[2])) else since[0], text)


def everywhere(text: str) -> dict[Api, str]:
    """Return a text for every API."""
    return {"keras": text, "tensorflow": text, "jax": text}


def in_tensorflow(text: str) -> dict[Api, str]:
    """Return a text for both APIs of TensorFlow."""
    return {"keras": text, "tensorflow": text}


_BATCH = "use a larger batch"

_ONE_LAYOUT = (
    "keep arrays in the layout in which the device computes, from the input on: dimension_numbers of "
    "jax.lax.conv_general_dilated"
)
_OF_ARRAYS = "tf.data.Dataset of the arrays: from_tensor_slices((x, y)).shuffle(n).batch(m)"
_MAKE_DATASET = "+ dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(batch_size)"
_IF_DATASET_SERVES = "the arrays fit into memory twice, and making batches row by row is fast enough"
_COPY_AHEAD = "copy ahead: call jax.device_put on the next batch before waiting for the running step"
_SHARD = "shard the batch over all devices (jax.sharding.NamedSharding)"
_COMPILED_BY_XLA = "compile(jit_compile=True) (TensorFlow 2.8 or later)"
_FUNCTION_COMPILED_BY_XLA = "tf.function(jit_compile=True) for the step (TensorFlow 2.5 or later)"
_IN_FLOAT16 = "keras.mixed_precision.set_global_policy('mixed_float16') (TensorFlow 2.4 or later)"
_IN_MIXED_BFLOAT16 = "keras.mixed_precision.set_global_policy('mixed_bfloat16') (TensorFlow 2.4 or later)"
_IN_BFLOAT16 = "compute matrix products in bfloat16 (the dtype of layers), and keep parameters in float32"
_OFFLOADING = "https://docs.jax.dev/en/latest/notebooks/host-offloading.html"
_TPU_PERFORMANCE = "https://cloud.google.com/tpu/docs/performance-guide"
_ABOUT_FAILING = "this prevents failures, not slowness: the step may take longer than now"

ADVICE: Mapping[str, Advice] = {
    "use_tf_data": Advice(
        texts={
            "keras": "feed fit() from a tf.data.Dataset that ends with .prefetch(tf.data.AUTOTUNE)",
            "tensorflow": "make batches with tf.data, and end the pipeline with .prefetch(tf.data.AUTOTUNE)",
            "jax": "load the next batch in a thread while the step runs (grain, or tf.data with prefetch)",
        },
        saves=(0.3, 1.0),
        assumption="batches can be made during the previous step",
        url=f"{GUIDE}/data_performance",
        urls={"jax": "https://google-grain.readthedocs.io/en/latest/"},
        snippets={
            "keras": "+ model.fit(dataset.prefetch(tf.data.AUTOTUNE))",
            "tensorflow": (
                "+ dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(batch_size)\n"
                "+ for batch in dataset.prefetch(tf.data.AUTOTUNE):\n"
                "+     train_step(*batch)"
            ),
        },
    ),
    "look_at_stages": Advice(
        texts=everywhere("list the time of each pipeline stage: tfperf analyze PATH -s tfdata"),
        url=f"{GUIDE}/data_performance_analysis",
    ),
    "prefetch_to_device": Advice(
        texts={
            **in_tensorflow("append .apply(tf.data.experimental.prefetch_to_device('/GPU:0')) to the pipeline"),
            "jax": _COPY_AHEAD,
        },
        on_tpus={"jax": _COPY_AHEAD},
        saves=(0.5, 1.0),
        assumption="at least half of the copy overlaps device compute",
        url=f"{API}/data/experimental/prefetch_to_device",
        urls={"jax": "https://docs.jax.dev/en/latest/async_dispatch.html"},
        snippets={
            **in_tensorflow("+ dataset = dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0'))"),
            "jax": (
                "+ batch = jax.device_put(next(batches))\n"
                "  for step in range(steps):\n"
                "-     state = train_step(state, next(batches))\n"
                "+     state = train_step(state, batch)  # returns before it is done\n"
                "+     batch = jax.device_put(next(batches))"
            ),
        },
    ),
    "arrays_to_device": Advice(
        texts={
            "keras": (
                f"pass fit() a {_OF_ARRAYS}, then .apply(tf.data.experimental.prefetch_to_device('/GPU:0')) at its end"
            )
        },
        on_tpus={},
        saves=(0.5, 1.0),
        assumption=f"{_IF_DATASET_SERVES}; at least half of the copy overlaps device compute",
        url=f"{API}/data/experimental/prefetch_to_device",
        snippets={
            "keras": (
                f"{_MAKE_DATASET}\n"
                "+ dataset = dataset.apply(tf.data.experimental.prefetch_to_device('/GPU:0'))\n"
                "- model.fit(x, y, batch_size=batch_size)\n"
                "+ model.fit(dataset)"
            )
        },
    ),
    "smaller_types": Advice(
        texts=everywhere("send smaller types, such as uint8 instead of float32, and convert them on the device"),
        saves=(0.5, 0.75),
        assumption="batches have 32-bit numbers, and 8 or 16 bits suffice",
        url=f"{GUIDE}/gpu_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.device_put.html"},
        tpu_url=_TPU_PERFORMANCE,
        snippets={
            "jax": (
                "+ batch = jax.device_put(images)  # uint8\n"
                "  @jax.jit\n"
                "  def train_step(state, batch):\n"
                "+     images = batch.astype(jnp.float32)"
            )
        },
    ),
    "fetch_less_often": Advice(
        texts={
            "keras": "read and save less often: in on_epoch_end, or every 100 batches (callbacks per batch, save_freq)",
            "tensorflow": "read losses, metrics and variables every 100 steps only (.numpy(), print, summaries)",
            "jax": "read or await results every 100 steps only (float(), print, device_get, block_until_ready)",
        },
        saves=(0.9, 1.0),
        assumption="the program can continue without these results in 9 of 10 steps",
        url=f"{GUIDE}/gpu_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/async_dispatch.html"},
        tpu_url=_TPU_PERFORMANCE,
        snippets={
            "tensorflow": ("- print(step, float(loss))\n+ if step % 100 == 0:\n+     print(step, float(loss))"),
            "jax": ("- print(step, float(loss))\n+ if step % 100 == 0:\n+     print(step, float(loss))"),
            "keras": (
                "- def on_train_batch_end(self, batch, logs=None):\n"
                "+ def on_epoch_end(self, epoch, logs=None):\n"
                "      ..."
            ),
        },
    ),
    "fixed_trip_count": Advice(
        texts={
            "jax": (
                "if the number of iterations is known, use lax.fori_loop or lax.scan with constant bounds: the host "
                "reads the condition of other loops in each iteration"
            ),
            **in_tensorflow(
                "if the number of iterations is known, loop over a constant range: the host reads the condition of "
                "other loops in each iteration"
            ),
        },
        assumption="the number of iterations does not depend on computed values",
        url=f"{API}/while_loop",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.lax.fori_loop.html"},
    ),
    "omit_waiting_op": Advice(
        texts=in_tensorflow(
            "if the model allows it, avoid the op that waits: the size of its result (tf.where with one argument, "
            "tf.boolean_mask, tf.unique) must reach the host before the next ops; multiply by a mask instead"
        ),
        assumption="the model needs only values, not sizes that depend on them",
        url=f"{GUIDE}/gpu_performance_analysis",
        tpu_url=_TPU_PERFORMANCE,
    ),
    "keep_signature": Advice(
        texts={
            "keras": "keep the shapes of batches constant (drop_remainder=True, padded batches)",
            "tensorflow": (
                "set input_signature or reduce_retracing=True (TensorFlow 2.9 or later), and pass tensors, not Python "
                "numbers; create each tf.function once, outside the loop"
            ),
            "jax": (
                "keep shapes (pad batches to a few sizes) and static arguments constant, and call jax.jit once, "
                "outside the loop"
            ),
        },
        saves=(0.9, 1.0),
        assumption="later calls neither trace nor compile; first-run work of a new program is not counted",
        url=f"{GUIDE}/function#controlling_retracing",
        urls={"jax": "https://docs.jax.dev/en/latest/jit-compilation.html"},
        snippets={
            "tensorflow": "+ @tf.function(reduce_retracing=True)\n  def train_step(...):",
            "keras": (
                "- dataset = dataset.batch(batch_size)\n+ dataset = dataset.batch(batch_size, drop_remainder=True)"
            ),
            "jax": (
                "+ step = jax.jit(train_step)  # once, before the loop\n"
                "  for batch in batches:\n"
                "-     state = jax.jit(train_step)(state, batch)\n"
                "+     state = step(state, batch)"
            ),
        },
    ),
    "pad_shapes": Advice(
        texts={
            "keras": (
                "pad batches to a few fixed shapes (padded_batch, drop_remainder=True), because XLA compiles for "
                "each shape; if shapes must vary, compile(jit_compile=False)"
            ),
            "tensorflow": (
                "pad inputs to a few fixed shapes, because XLA compiles for each shape, even with reduce_retracing "
                "or an input_signature; if shapes must vary, omit jit_compile=True"
            ),
        },
        saves=(0.9, 1.0),
        assumption="later calls do not compile; the cost of padding is not counted",
        url="https://www.tensorflow.org/xla/known_issues",
    ),
    "create_function_once": Advice(
        texts={
            "keras": "create the model and its tf.functions once, outside the loop",
            "tensorflow": "create the tf.function once, outside the loop",
        },
        saves=(0.9, 1.0),
        assumption="later calls do not trace",
        url=f"{GUIDE}/function#controlling_retracing",
        snippets={
            "tensorflow": (
                "+ step = tf.function(train_step)  # once, before the loop\n"
                "  for batch in dataset:\n"
                "-     tf.function(train_step)(batch)\n"
                "+     step(batch)"
            )
        },
    ),
    "less_between": Advice(
        texts={
            "keras": "if callbacks such as on_epoch_end run there, do less work in them, less often, or in a thread",
            **dict.fromkeys(("tensorflow", "jax"), "run this work less often, in a thread, or after training"),
        },
        saves=(0.5, 1.0),
        assumption="training does not depend on the work between these steps",
        url=f"{GUIDE}/keras/writing_your_own_callbacks",
        urls={"jax": "https://docs.jax.dev/en/latest/async_dispatch.html"},
    ),
    "less_often": Advice(
        texts={
            "keras": "run the extra work of these steps less often, or in a thread (callbacks with on_train_batch_end)",
            **dict.fromkeys(("tensorflow", "jax"), "run the extra work of these steps less often, or in a thread"),
        },
        saves=(0.5, 1.0),
        assumption="training does not depend on the extra work in these steps",
        url=f"{GUIDE}/keras/writing_your_own_callbacks",
        urls={"jax": "https://docs.jax.dev/en/latest/async_dispatch.html"},
    ),
    "save_less_often": Advice(
        texts={
            "keras": "save less often: ModelCheckpoint(save_freq=N), or only the weights (save_weights_only=True)",
            "tensorflow": (
                "save less often, or in the background: CheckpointOptions(enable_async=True) (TensorFlow 2.13 or later)"
            ),
            "jax": "save less often, or in the background: orbax.checkpoint.AsyncCheckpointer",
        },
        saves=(0.5, 1.0),
        assumption="fewer checkpoints suffice",
        url=f"{GUIDE}/checkpoint",
        urls={"jax": "https://orbax.readthedocs.io/en/latest/"},
        snippets={
            "keras": "+ keras.callbacks.ModelCheckpoint(..., save_freq=1000)",
            "tensorflow": "+ options = tf.train.CheckpointOptions(enable_async=True)",
        },
    ),
    "longer_epochs": Advice(
        texts={
            "keras": "use longer epochs: fit(dataset.repeat(), steps_per_epoch=N), with a smaller shuffle buffer",
            "tensorflow": "create the iterator once, from dataset.repeat(), with a smaller shuffle buffer",
        },
        saves=(0.5, 1.0),
        assumption="epochs do not require a new iterator",
        url=f"{GUIDE}/data_performance",
        snippets={
            "keras": "+ model.fit(dataset.repeat(), steps_per_epoch=1000)",
            "tensorflow": (
                "+ batches = iter(dataset.repeat())  # once, before the loop\n"
                "  for step in range(steps):\n"
                "+     train_step(next(batches))"
            ),
        },
    ),
    "longer_epochs_of_arrays": Advice(
        texts={"keras": f"use longer epochs: pass fit() a {_OF_ARRAYS}.repeat(), and steps_per_epoch=N"},
        saves=(0.5, 1.0),
        assumption=f"{_IF_DATASET_SERVES}; epochs do not require a new iterator",
        url=f"{GUIDE}/data_performance",
        snippets={
            "keras": (
                f"{_MAKE_DATASET}\n"
                "- model.fit(x, y, batch_size=batch_size)\n"
                "+ model.fit(dataset.repeat(), steps_per_epoch=1000)"
            )
        },
    ),
    "evaluate_less": Advice(
        texts={
            "keras": (
                "evaluate less often: fit(validation_freq=N); or evaluate fewer or larger batches (validation_steps, "
                "validation_batch_size)"
            ),
            **dict.fromkeys(("tensorflow", "jax"), "evaluate less often; or evaluate fewer or larger batches"),
        },
        saves=(0.5, 0.9),
        assumption="evaluation every 2nd to 10th time suffices",
        url="https://keras.io/api/models/model_training_apis/",
        urls={"jax": "https://flax.readthedocs.io/en/latest/mnist_tutorial.html"},
        snippets={
            "keras": "+ model.fit(..., validation_freq=5)",
            "tensorflow": ("- evaluate(model)\n+ if epoch % 5 == 0:\n+     evaluate(model)"),
            "jax": ("- evaluate(state)\n+ if epoch % 5 == 0:\n+     evaluate(state)"),
        },
    ),
    "profile_later": Advice(
        texts={
            "keras": "profile later: TensorBoard(profile_batch=(20, 40)), or tfperf capture on the running job",
            "tensorflow": "profile later: after the first steps, or with tfperf capture on the running job",
            "jax": "profile later: after the first steps, or with tfperf capture on the running job",
        },
        saves=(0.9, 1.0),
        assumption="later calls do not retrace",
        url=f"{GUIDE}/profiler",
        urls={"jax": "https://docs.jax.dev/en/latest/profiling.html"},
        snippets={
            "keras": "+ keras.callbacks.TensorBoard(..., profile_batch=(20, 40))",
            "tensorflow": (
                "+ if step == 20:\n"
                "+     tf.profiler.experimental.start('logs')\n"
                "+ if step == 40:\n"
                "+     tf.profiler.experimental.stop()"
            ),
            "jax": (
                "+ if step == 20:\n"
                "+     jax.profiler.start_trace('logs')\n"
                "+ if step == 40:\n"
                "+     jax.block_until_ready(state)\n"
                "+     jax.profiler.stop_trace()"
            ),
        },
    ),
    "use_function": Advice(
        texts={
            "keras": (
                "compute less often in callbacks, or compute in the model (metrics, train_step), where one call "
                "runs many ops"
            ),
            "tensorflow": "put the whole step into one tf.function",
            "jax": "put the whole step into one jax.jit",
        },
        saves=(0.85, 0.98),
        assumption=(
            "an op takes 7 to 50 times less host time inside a function (measured: 6 to 70); its kernel takes as "
            "long as now, or a fifth of that"
        ),
        url=f"{GUIDE}/function",
        urls={"jax": "https://docs.jax.dev/en/latest/jit-compilation.html"},
        snippets={"tensorflow": "+ @tf.function\n  def train_step(...):", "jax": "+ @jax.jit\n  def train_step(...):"},
    ),
    "mark_steps": Advice(
        texts=in_tensorflow(
            "mark steps with tfperf.step(number) and profile again: the report then shows the share of these ops "
            "in a step, and whether tf.function would help"
        ),
        assumption="the profile shows no steps",
        url=f"{GUIDE}/function",
        snippets=in_tensorflow(
            "  for number, batch in enumerate(dataset):\n"
            "-     train_step(batch)\n"
            "+     with tfperf.step(number):\n"
            "+         train_step(batch)"
        ),
    ),
    "omit_run_eagerly": Advice(
        texts={"keras": "compile() without run_eagerly=True, so that each step is one function call"},
        saves=(0.85, 0.98),
        assumption=(
            "an op takes 7 to 50 times less host time inside a function (measured: 6 to 70); its kernel takes as "
            "long as now, or a fifth of that"
        ),
        url="https://keras.io/api/models/model_training_apis/",
        snippets={"keras": "- model.compile(..., run_eagerly=True)\n+ model.compile(...)"},
    ),
    "convert_once": Advice(
        texts={
            "keras": (
                "convert constant arrays once (tf.constant, or a weight of the model); feed batches from a "
                "tf.data.Dataset, which converts ahead of the step"
            ),
            "tensorflow": (
                "convert constant arrays once, before the loop (tf.constant, tf.Variable); take batches from a "
                "tf.data.Dataset, which converts ahead of the step"
            ),
            "jax": (
                "copy constant arrays to the device once, before the loop (jax.device_put), and the next batch "
                "while the step runs"
            ),
        },
        saves=(0.7, 1.0),
        assumption="the arrays are constant, or are converted during the previous step",
        url=f"{API}/constant",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.device_put.html"},
        snippets={
            **in_tensorflow("+ table = tf.constant(table)  # once, before the loop"),
            "jax": "+ table = jax.device_put(table)  # once, before the loop",
        },
    ),
    "stack_arrays": Advice(
        texts={"jax": "stack small arrays into one (np.stack), copy it at once, and take it apart in the jit"},
        saves=(0.5, 1.0),
        assumption="one copy takes as long as one of these, and at most as long as half of them",
        url="https://docs.jax.dev/en/latest/_autosummary/jax.device_put.html",
        snippets={
            "jax": ("- arrays = [jnp.asarray(array) for array in arrays]\n+ arrays = jnp.asarray(np.stack(arrays))")
        },
    ),
    "omit_run_functions_eagerly": Advice(
        texts=in_tensorflow("remove tf.config.run_functions_eagerly(True), a debugging option"),
        saves=(0.85, 0.98),
        assumption=(
            "an op takes 7 to 50 times less host time inside a function (measured: 6 to 70); its kernel takes as "
            "long as now, or a fifth of that"
        ),
        url=f"{API}/config/run_functions_eagerly",
        snippets=in_tensorflow("- tf.config.run_functions_eagerly(True)"),
    ),
    "one_iterator": Advice(
        texts={
            "keras": (
                "call predict(), evaluate() or fit() once on all data, not once per batch; for single inputs call "
                "the model itself: model(x, training=False), or predict_on_batch(x)"
            ),
            "tensorflow": "create the dataset and its iterator once, outside the loop",
        },
        saves=(0.8, 1.0),
        assumption="the step function takes as long as now",
        url="https://keras.io/getting_started/faq/",
        urls={"tensorflow": f"{GUIDE}/data"},
        snippets={
            "keras": ("- for x in batches:\n-     model.predict(x)\n+ model.predict(dataset)"),
            "tensorflow": (
                "+ batches = iter(dataset)  # once, before the loop\n"
                "  for step in range(steps):\n"
                "-     train_step(next(iter(dataset)))\n"
                "+     train_step(next(batches))"
            ),
        },
    ),
    "jit_compile": Advice(
        texts={
            "keras": f"{_COMPILED_BY_XLA}, which fuses small ops",
            "tensorflow": f"{_FUNCTION_COMPILED_BY_XLA}, which fuses small ops",
        },
        saves=(0.3, 0.8),
        assumption="XLA can compile the model, and launches 1.5 to 5 times fewer kernels (a guess)",
        url="https://www.tensorflow.org/xla",
        snippets={
            "keras": "+ model.compile(..., jit_compile=True)",
            "tensorflow": "+ @tf.function(jit_compile=True)\n  def train_step(...):",
        },
    ),
    "larger_batch": Advice(
        texts=everywhere(_BATCH),
        saves=(0.4, 0.5),
        assumption="for the same number of examples, in batches twice as large, if memory and accuracy allow them",
        url=f"{GUIDE}/gpu_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/gpu_performance_tips.html"},
        tpu_url=_TPU_PERFORMANCE,
        is_per_examples=True,
        snippets=in_tensorflow("- dataset = dataset.batch(batch_size)\n+ dataset = dataset.batch(2 * batch_size)"),
    ),
    "steps_per_execution": Advice(
        texts={"keras": "compile(steps_per_execution=10) (TensorFlow 2.4 or later)"},
        saves=(0.7, 0.85),
        assumption=(
            "Python between steps does nothing that each step needs; measured savings: 28 to 71% of steps of small "
            "ops, 0 to 10% of steps of many ops"
        ),
        url="https://keras.io/api/models/model_training_apis/",
        snippets={"keras": "+ model.compile(..., steps_per_execution=10)"},
    ),
    "loop_in_function": Advice(
        texts={
            "tensorflow": (
                "run several steps in one tf.function, in a loop over tf.range(10) with next(iterator), and log after "
                "them"
            ),
            "jax": "run several steps in one call (jax.lax.scan over batches on the device), and log after them",
        },
        saves=(0.5, 0.95),
        assumption=(
            "Python between steps does nothing that each step needs; measured savings: 41 to 90% of steps of small ops"
        ),
        url=f"{GUIDE}/function",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.lax.scan.html"},
        snippets={
            "tensorflow": (
                "+ @tf.function\n"
                "+ def train_steps(iterator):  # iter(dataset), once, before the loop\n"
                "+     for _ in tf.range(10):\n"
                "+         train_step(next(iterator))"
            ),
            "jax": (
                "+ @jax.jit\n"
                "+ def train_steps(state, batches):  # stacked along a new first axis\n"
                "+     return jax.lax.scan(lambda state, batch: (train_step(state, batch), None), state, batches)[0]"
            ),
        },
    ),
    "record_python": Advice(
        texts=everywhere("record the Python functions: tfperf run --python-trace train.py, for ten steps"),
        url=f"{GUIDE}/profiler",
        urls={"jax": "https://docs.jax.dev/en/latest/profiling.html"},
        snippets=everywhere("  tfperf run --python-trace train.py"),
    ),
    "wait_in_threads": Advice(
        texts={
            **in_tensorflow(
                "if this code fetches input, fetch ahead in threads: a tf.data.Dataset with .map(f, "
                "num_parallel_calls=8).prefetch(2), where f is a tf.py_function of it"
            ),
            "jax": "if this code fetches input, fetch ahead in threads: concurrent.futures.ThreadPoolExecutor, grain",
        },
        saves=(0.5, 1.0),
        assumption="it does not depend on the previous step; from one request during the step at a time to many",
        url=f"{GUIDE}/data_performance",
        urls={"jax": "https://google-grain.readthedocs.io/en/latest/"},
        snippets=in_tensorflow(
            "+ def fetch(key):\n"
            "+     return tf.py_function(read, [key], tf.float32)\n"
            "+ dataset = dataset.map(fetch, num_parallel_calls=8).prefetch(2)"
        ),
    ),
    "input_in_python": Advice(
        texts={
            "keras": (
                "if this code makes batches, vectorize it, or make batches while the step runs: fit() with "
                "keras.utils.PyDataset, or a tf.data.Dataset, from_generator(...).prefetch(2); tf.data ops are "
                "faster than a generator"
            ),
            "tensorflow": (
                "if this code makes batches, vectorize it, or make batches while the step runs: a tf.data.Dataset, "
                "from_generator(...).prefetch(2); tf.data ops are faster than a generator"
            ),
            "jax": (
                "if this code makes batches, vectorize it, or make batches while the step runs: in worker "
                "processes (grain), or in a thread if NumPy does the work"
            ),
        },
        saves=(0.5, 1.0),
        assumption="a core is free for this work; Python threads take turns, processes and tf.data ops do not",
        url=f"{GUIDE}/data#consuming_python_generators",
        urls={"jax": "https://google-grain.readthedocs.io/en/latest/"},
        snippets=in_tensorflow(
            "+ dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)\n"
            "+ dataset = dataset.prefetch(2)"
        ),
    ),
    "callback_less_often": Advice(
        texts={"keras": "do the per-batch work of callbacks only every 100 batches, or in on_epoch_end"},
        saves=(0.9, 1.0),
        assumption="it is a callback, and does not have to run after each batch",
        url="https://keras.io/guides/writing_your_own_callbacks/",
        snippets={
            "keras": ("  def on_train_batch_end(self, batch, logs=None):\n+     if batch % 100:\n+         return")
        },
    ),
    "collect_less_often": Advice(
        texts=everywhere("call gc.collect() at most every 100 steps, or remove the call"),
        saves=(0.9, 1.0),
        assumption="memory for uncollected reference cycles is available",
        url="https://docs.python.org/3/library/gc.html",
        snippets=everywhere("- gc.collect()\n+ if step % 100 == 0:\n+     gc.collect()"),
    ),
    "freeze_objects": Advice(
        texts=everywhere(
            "call gc.freeze() once after the setup, so that collections skip permanent objects; or gc.disable(), "
            "and gc.collect() every 1,000 steps"
        ),
        saves=(0.5, 1.0),
        assumption="most objects are from the setup, or collection is off; memory for reference cycles is available",
        url="https://docs.python.org/3/library/gc.html#gc.freeze",
        snippets=everywhere("+ gc.freeze()  # once, after the setup"),
    ),
    "mixed_precision": Advice(
        texts={
            "keras": (
                f"{_IN_FLOAT16}; 'mixed_bfloat16' on NVIDIA A100 or later; layer sizes and batch in multiples of 8"
            ),
            "tensorflow": (
                "compute in 16 bit: tf.keras.mixed_precision (TensorFlow 2.4 or later), or cast the inputs of layers "
                "to tf.bfloat16"
            ),
            "jax": _IN_BFLOAT16,
        },
        on_tpus={**in_tensorflow(_IN_MIXED_BFLOAT16), "jax": _IN_BFLOAT16},
        saves=(0.33, 0.75),
        assumption="rule of thumb: matrix products take 1.5 to 4 times less time in 16 bit, if the roofline allows it",
        url=f"{GUIDE}/mixed_precision",
        urls={"jax": "https://docs.jax.dev/en/latest/default_dtypes.html"},
        snippets={
            "keras": "+ keras.mixed_precision.set_global_policy('mixed_float16')",
            "jax": (
                "- y = x @ w\n"
                "+ y = jnp.dot(x.astype(jnp.bfloat16), w.astype(jnp.bfloat16), preferred_element_type=jnp.float32)"
            ),
        },
    ),
    "keep_layout": Advice(
        texts={
            "keras": (
                "keep images in the layout in which the device computes: data_format 'channels_last' with "
                "mixed_float16 on tensor cores, 'channels_first' in float32"
            ),
            "tensorflow": (
                "keep images in the layout in which the device computes: data_format 'NHWC' in 16 bit on tensor "
                "cores, 'NCHW' in float32"
            ),
            "jax": _ONE_LAYOUT,
        },
        on_tpus={"jax": _ONE_LAYOUT},
        saves=(0.5, 1.0),
        assumption="most of these conversions are then unnecessary",
        url=f"{NVIDIA}/dl-performance-convolutional/index.html",
        tpu_url=_TPU_PERFORMANCE,
    ),
    "fewer_bytes": Advice(
        texts={
            "keras": f"move fewer bytes: {_IN_MIXED_BFLOAT16}",
            "tensorflow": "move fewer bytes: 16-bit types, elementwise ops in the same function as their inputs",
            "jax": "move fewer bytes: bfloat16 arrays, elementwise functions in the same jit as their inputs",
        },
        saves=(0.0, 0.5),
        assumption="16 bit halves the time of ops on 32-bit numbers, if the shapes in the profile identify these ops",
        url=f"{GUIDE}/gpu_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/gpu_performance_tips.html"},
        tpu_url=_TPU_PERFORMANCE,
        snippets={"keras": "+ keras.mixed_precision.set_global_policy('mixed_bfloat16')"},
    ),
    "aligned_sizes": Advice(
        texts=everywhere("round sizes up to multiples of 8 (better 64): units, channels, vocabulary, batch"),
        on_tpus=everywhere("round sizes up to multiples of 128 (batch: 8): units, channels, vocabulary"),
        saves=(0.0, 1.0),
        assumption="aligned sizes bring these products at most to the performance of aligned products in this capture",
        url=f"{NVIDIA}/dl-performance-matrix-multiplication/index.html",
        tpu_url=_TPU_PERFORMANCE,
    ),
    "larger_products": Advice(
        texts=everywhere("use a larger batch, or wider layers (multiples of 64)"),
        on_tpus=everywhere("use a larger batch, or wider layers (multiples of 128)"),
        saves=(0.0, 1.0),
        assumption="for the same number of examples; at most the savings at 30% of the roofline",
        url=f"{NVIDIA}/dl-performance-matrix-multiplication/index.html",
        tpu_url=_TPU_PERFORMANCE,
        is_per_examples=True,
    ),
    "other_kernels": Advice(
        texts=everywhere("time each of them alone, in other layouts and with kernels of other libraries"),
        on_tpus=everywhere("time each of them alone, in other layouts"),
        saves=(0.0, 1.0),
        assumption="at most the savings at 30% of the roofline",
        url=f"{NVIDIA}/dl-performance-matrix-multiplication/index.html",
        urls={"jax": "https://docs.jax.dev/en/latest/gpu_performance_tips.html"},
        tpu_url=_TPU_PERFORMANCE,
    ),
    "fewer_exchanges": Advice(
        texts=everywhere("use a larger batch per device, so that gradients are exchanged less often per example"),
        saves=(0.25, 0.5),
        assumption="for the same number of examples, in batches twice as large",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/sharded-computation.html"},
        is_per_examples=True,
    ),
    "look_at_host": Advice(
        texts=everywhere("analyze that host alone (tfperf analyze --host NAME), and compare it with another one"),
        saves=(0.5, 1.0),
        assumption="the host can be as fast as the others",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/multi_process.html"},
    ),
    "even_work": Advice(
        texts=everywhere("give all hosts the same work in each step, and look for interruptions (-s hosts)"),
        saves=(0.5, 1.0),
        assumption="all hosts are equally fast",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/multi_process.html"},
    ),
    "even_devices": Advice(
        texts=everywhere(
            "give every device the same work in each step (shards, lengths of sequences, experts), and look for the "
            "device that is late (-s collectives)"
        ),
        on_tpus=everywhere(
            "give every core the same work in each step (shards, lengths of sequences, experts), and look for the host "
            "whose input or Python is late (-s hosts)"
        ),
        saves=(0.5, 1.0),
        assumption="all devices are equally fast",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/sharded-computation.html"},
    ),
    "overlap_exchange": Advice(
        texts={
            **in_tensorflow("exchange gradients while others are still being computed, and in fewer bytes (16 bit)"),
            "jax": "let XLA overlap exchanges with compute: XLA_FLAGS=--xla_gpu_enable_latency_hiding_scheduler=true",
        },
        on_tpus=everywhere("split arrays so that compute on one part overlaps the exchange of another one"),
        urls={"jax": "https://docs.jax.dev/en/latest/gpu_performance_tips.html"},
        tpu_url=_TPU_PERFORMANCE,
        saves=(0.0, 1.0),
        assumption="gradients are exchanged as soon as they are available, and compute does not slow down",
        url=f"{GUIDE}/distributed_training",
    ),
    "balance_input": Advice(
        texts=everywhere("give each host the same share of the files, and as many cores for its input as the others"),
        saves=(0.5, 1.0),
        assumption="the host can have input as fast as the other hosts",
        url=f"{GUIDE}/data_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/multi_process.html"},
    ),
    "use_all_devices": Advice(
        texts={
            "keras": "build and compile the model under tf.distribute.MirroredStrategy(), which uses all GPUs",
            "tensorflow": "give every GPU a part of the batch: tf.distribute.MirroredStrategy()",
            "jax": _SHARD,
        },
        on_tpus={**in_tensorflow("build and run the model under tf.distribute.TPUStrategy()"), "jax": _SHARD},
        assumption="the devices are intended for this job; the profile does not show the speedup",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/sharded-computation.html"},
        snippets={
            "keras": (
                "+ with tf.distribute.MirroredStrategy().scope():\n"
                "+     model = build_model()\n"
                "+     model.compile(...)"
            ),
            "jax": (
                "+ mesh = jax.make_mesh((jax.device_count(),), ('batch',))\n"
                "+ sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('batch'))\n"
                "+ batch = jax.device_put(batch, sharding)"
            ),
        },
    ),
    "find_device": Advice(
        texts={
            **in_tensorflow(
                "find out why no op runs on the device: is it in tf.config.list_physical_devices('GPU')? If not, check "
                "CUDA_VISIBLE_DEVICES, the GPU libraries, and TensorFlow's log at its start; if so, tf.device and the "
                "types of the ops"
            ),
            "jax": (
                "find out why no op runs on the device: is it in jax.devices()? If not, check JAX_PLATFORMS, "
                "CUDA_VISIBLE_DEVICES, and the plugin of jaxlib for it, such as jax[cuda12]"
            ),
        },
        on_tpus={
            **in_tensorflow(
                "find out why no op runs on the TPU: is it in tf.config.list_logical_devices('TPU')? If so, build and "
                "run the model under tf.distribute.TPUStrategy()"
            ),
            "jax": (
                "find out why no op runs on the TPU: is it in jax.devices()? If not, check JAX_PLATFORMS and the "
                "plugin of jaxlib for it, jax[tpu]"
            ),
        },
        assumption="the device is intended for this job; the profile does not show the speedup",
        url=f"{GUIDE}/gpu",
        urls={"jax": "https://docs.jax.dev/en/latest/installation.html"},
        tpu_url=f"{GUIDE}/tpu",
        snippets={**in_tensorflow("+ print(tf.config.list_physical_devices('GPU'))"), "jax": "+ print(jax.devices())"},
    ),
    "start_all_devices": Advice(
        texts={
            **in_tensorflow("check that the strategy includes every device, or profile later, once all have started"),
            "jax": "check that the mesh includes every device, or profile later, once all have started",
        },
        assumption="the devices are intended for this job; the profile does not show the speedup",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/sharded-computation.html"},
    ),
    "move_ops": Advice(
        texts=everywhere(
            "run these ops on the device (their types, tf.device), or in the input pipeline, ahead of the step"
        ),
        assumption="the ops do not need the host",
        url=f"{GUIDE}/gpu_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/gpu_performance_tips.html"},
        tpu_url=_TPU_PERFORMANCE,
    ),
    "use_less_memory": Advice(
        on_tpus=everywhere("use a smaller batch, or bfloat16, which halves activations"),
        texts={
            "keras": (
                f"use a smaller batch, {_IN_FLOAT16}, which halves activations, or "
                "tf.recompute_grad(layer), which recomputes them instead of keeping them"
            ),
            "tensorflow": (
                "use a smaller batch, 16 bit, which halves activations, or tf.recompute_grad(layer), which "
                "recomputes them instead of keeping them"
            ),
            "jax": (
                "use a smaller batch, bfloat16, which halves activations, jax.checkpoint, which recomputes them, "
                "or donate_argnums, so that new state overwrites the old"
            ),
        },
        assumption=_ABOUT_FAILING,
        url=f"{API}/recompute_grad",
        urls={"jax": "https://docs.jax.dev/en/latest/gradient-checkpointing.html"},
        snippets={"jax": ("- train_step = jax.jit(train_step)\n+ train_step = jax.jit(train_step, donate_argnums=0)")},
    ),
    "find_kept_arrays": Advice(
        texts={"jax": "list the arrays that the program keeps (jax.live_arrays()), and delete those it does not need"},
        assumption="no other arrays are needed in each step",
        url="https://docs.jax.dev/en/latest/device_memory_profiling.html",
    ),
    "donate_arguments": Advice(
        texts={"jax": "donate arguments that results replace, such as the training state (donate_argnums)"},
        assumption="the caller does not use the old arrays after the call",
        url="https://docs.jax.dev/en/latest/buffer_donation.html",
        snippets={"jax": ("- train_step = jax.jit(train_step)\n+ train_step = jax.jit(train_step, donate_argnums=0)")},
    ),
    "recompute_activations": Advice(
        texts={
            **in_tensorflow("recompute activations instead of keeping them for the backward pass: tf.recompute_grad"),
            "jax": "recompute activations instead of keeping them for the backward pass: jax.checkpoint",
        },
        assumption="about one more forward pass of these layers per step is acceptable",
        url=f"{API}/recompute_grad",
        urls={"jax": "https://docs.jax.dev/en/latest/gradient-checkpointing.html"},
        snippets={"jax": ("- x = layer(x)\n+ x = jax.checkpoint(layer)(x)")},
    ),
    "accumulate_gradients": Advice(
        texts={
            "keras": "use a smaller batch, and gradient_accumulation_steps of the optimizer",
            "tensorflow": "use a smaller batch, and add up the gradients of several batches before apply_gradients",
            "jax": "use a smaller batch, and add up the gradients of several batches (optax.MultiSteps)",
        },
        assumption="batch normalization may see fewer examples; without accumulation, training itself changes",
        url="https://keras.io/api/optimizers/",
        urls={"jax": "https://optax.readthedocs.io/en/latest/_collections/examples/gradient_accumulation.html"},
    ),
    "smaller_batch": Advice(
        texts=everywhere("use a smaller batch"),
        assumption="fewer examples per call are acceptable",
        url=f"{GUIDE}/gpu_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/device_memory_profiling.html"},
        tpu_url=_TPU_PERFORMANCE,
    ),
    "halve_activations": Advice(
        texts={
            "keras": f"keep activations in 16 bit: {_IN_MIXED_BFLOAT16}",
            "tensorflow": "keep activations in 16 bit: cast the inputs of layers to tf.bfloat16",
            "jax": "keep activations in bfloat16 (the dtype of layers), and parameters in float32",
        },
        assumption="the accuracy in 16 bit is sufficient",
        url=f"{GUIDE}/mixed_precision",
        urls={"jax": "https://docs.jax.dev/en/latest/jep/9407-type-promotion.html"},
    ),
    "share_device_memory": Advice(
        on_tpus={},
        texts=in_tensorflow(
            "if other processes use the device too: tf.config.experimental.set_memory_growth(gpu, True) in all of them"
        ),
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu#limiting_gpu_memory_growth",
        snippets=in_tensorflow(
            "+ for gpu in tf.config.list_physical_devices('GPU'):\n"
            "+     tf.config.experimental.set_memory_growth(gpu, True)"
        ),
    ),
    "raise_pinned_limit": Advice(
        texts=in_tensorflow("raise TF_GPU_HOST_MEM_LIMIT_IN_MB, or prefetch fewer batches"),
        on_tpus={},
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu",
    ),
    "avoid_fragmentation": Advice(
        on_tpus={},
        texts={
            **in_tensorflow(
                "keep shapes constant (pad, or group sequences of similar length), and try "
                "TF_GPU_ALLOCATOR=cuda_malloc_async (TensorFlow 2.5 and CUDA 11.2, or later)"
            ),
            "jax": "keep shapes constant (pad, or group sequences of similar length)",
        },
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu",
        urls={"jax": "https://docs.jax.dev/en/latest/gpu_memory_allocation.html"},
        snippets=in_tensorflow("  TF_GPU_ALLOCATOR=cuda_malloc_async python train.py"),
    ),
    "release_tensors": Advice(
        texts={
            "keras": (
                "look for tensors that Python keeps (a list of losses: append float(loss) instead), and for models "
                "created in a loop (keras.backend.clear_session() between them)"
            ),
            "tensorflow": (
                "look for tensors that Python keeps (a list of losses: append float(loss) instead), and for functions "
                "that are retraced (-s functions)"
            ),
            "jax": "look for arrays that Python keeps (a list of losses: append float(loss) instead)",
        },
        assumption=_ABOUT_FAILING,
        url=f"{GUIDE}/gpu",
        urls={"jax": "https://docs.jax.dev/en/latest/device_memory_profiling.html"},
        tpu_url=_TPU_PERFORMANCE,
        snippets=everywhere("- losses.append(loss)\n+ losses.append(float(loss))"),
    ),
    "pass_arrays": Advice(
        texts={
            **in_tensorflow("pass large arrays as arguments, or keep them in a tf.Variable, instead of tf.constant"),
            "jax": "pass the arrays to the jitted function as arguments, instead of using them from outside",
        },
        assumption="the function uses them from outside, or XLA computes them from such arrays when it compiles",
        url=f"{GUIDE}/function",
        urls={"jax": "https://docs.jax.dev/en/latest/jit-compilation.html"},
        snippets={"jax": ("  @jax.jit\n- def lookup(ids):\n+ def lookup(table, ids):\n      return table[ids]")},
    ),
    "even_replicas": Advice(
        texts=everywhere("move the extra work of this replica out of the step (to the input), or share it"),
        saves=(0.7, 1.0),
        assumption="all replicas have the same work",
        url=f"{GUIDE}/distributed_training",
        urls={"jax": "https://docs.jax.dev/en/latest/sharded-computation.html"},
    ),
    "use_graph_ops": Advice(
        texts={
            **in_tensorflow("write the function with TensorFlow ops, or call it in the input pipeline (map)"),
            "jax": "write the function in jax.numpy, or call it before or after the jitted step",
        },
        saves=(0.7, 1.0),
        assumption="ops of the framework do the same work in little time",
        url=f"{GUIDE}/function",
        urls={"jax": "https://docs.jax.dev/en/latest/external-callbacks.html"},
    ),
    "call_less_often": Advice(
        texts={
            **in_tensorflow("call Python only every 100 steps (tf.cond), if other steps do not need the result"),
            "jax": "call Python only every 100 steps (jax.lax.cond), if other steps do not need the result",
        },
        assumption="the other steps do not need the result (the profile does not show it)",
        url=f"{API}/cond",
        urls={"jax": "https://docs.jax.dev/en/latest/external-callbacks.html"},
        snippets={
            "jax": (
                "- jax.debug.callback(log, loss)\n"
                "+ jax.lax.cond(step % 100 == 0, lambda: jax.debug.callback(log, loss), lambda: None)"
            )
        },
    ),
    "no_print": Advice(
        texts={
            **in_tensorflow("remove tf.print from the graph, or print only every 100 steps (tf.cond)"),
            "jax": "remove jax.debug.print from the step, or print only every 100 steps (jax.lax.cond)",
        },
        saves=(0.9, 1.0),
        assumption="the text is not needed in each step",
        url=f"{API}/print",
        urls={"jax": "https://docs.jax.dev/en/latest/debugging/print_breakpoint.html"},
        snippets={**in_tensorflow("- tf.print(loss)"), "jax": "- jax.debug.print('{}', loss)"},
    ),
    "prepare_ahead": Advice(
        texts=in_tensorflow(
            "run these ops in the input pipeline: dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2), or "
            "once before the training"
        ),
        saves=(0.5, 1.0),
        assumption="a core is free for them during the previous step, or their results are stored",
        url=f"{GUIDE}/keras/preprocessing_layers",
        snippets=in_tensorflow("+ dataset = dataset.map(f, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)"),
    ),
    "sparse_product": Advice(
        texts=in_tensorflow(
            "keep the batch sparse: tf.sparse.sparse_dense_matmul, or tf.nn.embedding_lookup_sparse for ids"
        ),
        saves=(0.4, 1.0),
        assumption="few of the numbers are nonzero, so a sparse product takes less time",
        url=f"{API}/sparse/sparse_dense_matmul",
        snippets=in_tensorflow(
            "- y = tf.matmul(tf.sparse.to_dense(x), weights)\n+ y = tf.sparse.sparse_dense_matmul(x, weights)"
        ),
    ),
    "vectorize_loop": Advice(
        texts=in_tensorflow(
            "run all iterations at once, if they are independent: ops on the whole batch, or tf.vectorized_map "
            "instead of tf.map_fn"
        ),
        saves=(0.7, 1.0),
        assumption="the iterations are independent, and ops on the whole batch take little time",
        url=f"{API}/vectorized_map",
        snippets=in_tensorflow("- y = tf.map_fn(f, x)\n+ y = tf.vectorized_map(f, x)"),
    ),
    "set_threads": Advice(
        texts=in_tensorflow(
            "do not set thread counts, or set them to the number of cores: tf.config.threading, "
            "TF_NUM_INTRAOP_THREADS, TF_NUM_INTEROP_THREADS"
        ),
        assumption="the profile does not show the cost of thread switches",
        url=f"{API}/config/threading",
    ),
    "cast_to_float32": Advice(
        texts={
            **in_tensorflow(
                "use float32 arrays, if they are exact enough: np.float32 (the NumPy default is float64), or tf.cast"
            ),
            "jax": "use float32 arrays, if they are exact enough: jax_enable_x64 off, or dtype float32",
        },
        saves=(1.0, 1.0),
        assumption="float32 is exact enough, and takes 40 to 80% less time (measured)",
        url=f"{API}/cast",
        urls={"jax": "https://docs.jax.dev/en/latest/default_dtypes.html"},
        snippets={**in_tensorflow("+ x = x.astype(np.float32)"), "jax": "- jax.config.update('jax_enable_x64', True)"},
    ),
    "multiply_fp8": Advice(
        texts={
            "jax": (
                "multiply the FP8 arrays themselves, and scale the result: jax.nn.scaled_matmul, or jnp.matmul with "
                "preferred_element_type"
            )
        },
        assumption="the products reach the same share of the FP8 peak",
        url="https://docs.jax.dev/en/latest/_autosummary/jax.nn.scaled_matmul.html",
    ),
    "sparse_update": Advice(
        texts={
            "keras": (
                "update only the rows that the batch reads: keras.optimizers.SGD, or a lazy Adam, which, unlike "
                "Adam, does not update the momentum of other rows"
            ),
            "tensorflow": (
                "update only the rows that the batch reads (IndexedSlices, scatter_sub), with SGD or a lazy Adam, "
                "which, unlike Adam, does not update the momentum of other rows"
            ),
            "jax": "update only the rows that the batch reads (x.at[rows].add)",
        },
        saves=(0.6, 1.0),
        assumption="a batch reads few of the rows, and the model trains as well with such an optimizer",
        url=f"{API}/IndexedSlices",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.ndarray.at.html"},
    ),
    "fuse_update": Advice(
        texts={
            "keras": f"{_COMPILED_BY_XLA}, which fuses the ops of the update, if XLA can compile the model",
            "tensorflow": f"{_FUNCTION_COMPILED_BY_XLA}, which fuses the ops of the update",
        },
        saves=(0.3, 0.8),
        assumption="XLA can compile the model, and reads and writes each variable once per update",
        url="https://www.tensorflow.org/xla",
        snippets={
            "keras": "+ model.compile(..., jit_compile=True)",
            "tensorflow": "+ @tf.function(jit_compile=True)\n  def train_step(...):",
        },
    ),
    "fuse_update_kernels": Advice(
        texts={
            "keras": f"{_COMPILED_BY_XLA}: XLA fuses the ops of the update, if it can compile the model",
            "tensorflow": f"{_FUNCTION_COMPILED_BY_XLA}: XLA fuses the ops of the update",
            "jax": (
                "if the parameters are small and not sharded, update them as one array, inside the jitted step: "
                "optax.flatten(optimizer), which copies gradients and updates"
            ),
        },
        saves=(0.0, 0.8),
        assumption="fewer kernels read and write the same variables",
        url="https://www.tensorflow.org/xla",
        urls={"jax": "https://optax.readthedocs.io/en/latest/api/transformations.html"},
        snippets={
            "keras": "+ model.compile(..., jit_compile=True)",
            "tensorflow": "+ @tf.function(jit_compile=True)\n  def train_step(...):",
        },
    ),
    "gather_rows": Advice(
        texts={
            "keras": "select rows by their ids: an Embedding layer or tf.gather instead of tf.one_hot and a matmul",
            "tensorflow": "select rows by their ids: tf.gather instead of tf.one_hot and a matmul",
            "jax": "select rows by their ids: weights[ids] instead of jax.nn.one_hot and a matmul",
        },
        saves=(0.7, 1.0),
        assumption="the one-hot vectors are made from ids",
        url=f"{API}/gather",
        urls={"jax": "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.take.html"},
        snippets={
            **in_tensorflow("- y = tf.matmul(tf.one_hot(ids, depth), weights)\n+ y = tf.gather(weights, ids)"),
            "jax": ("- y = jax.nn.one_hot(ids, depth) @ weights\n+ y = weights[ids]"),
        },
    ),
    "fewer_updates": Advice(
        texts=everywhere("use a larger batch, so that variables are updated less often per example"),
        saves=(0.4, 0.5),
        assumption="for the same number of examples, in batches twice as large, if memory and accuracy allow them",
        url=f"{GUIDE}/gpu_performance_analysis",
        urls={"jax": "https://docs.jax.dev/en/latest/gpu_performance_tips.html"},
        tpu_url=_TPU_PERFORMANCE,
        is_per_examples=True,
    ),
    "smaller_layer": Advice(
        texts=everywhere(
            "if that width is not intended: pool before the layer (GlobalAveragePooling instead of Flatten), or "
            "use fewer units"
        ),
        assumption="the model does not need such a large layer (the profile does not show it)",
        url="https://keras.io/api/layers/pooling_layers/global_average_pooling2d/",
        snippets={"keras": ("- x = keras.layers.Flatten()(x)\n+ x = keras.layers.GlobalAveragePooling2D()(x)")},
    ),
    "keep_on_device": Advice(
        texts=everywhere("keep them in TPU memory"),
        saves=(1.0, 1.0),
        assumption="they fit in TPU memory together with the program's other arrays",
        url=_OFFLOADING,
    ),
    "halve_copies": Advice(
        texts=everywhere("use bfloat16 arrays, which are half as large"),
        saves=(0.5, 0.5),
        assumption="bfloat16 precision suffices; compute on these arrays may also take half of its time",
        url=_OFFLOADING,
        snippets={"jax": "+ arrays = jax.tree.map(lambda array: array.astype(jnp.bfloat16), arrays)"},
    ),
    "overlap_copies": Advice(
        texts=everywhere("copy smaller pieces, and start earlier"),
        saves=(0.0, 1.0),
        assumption="copies in both directions overlap with compute",
        url=_OFFLOADING,
    ),
    "feed_kernel": Advice(
        texts=everywhere("use bfloat16 inputs, larger blocks, or more buffers in the kernel's pipeline"),
        saves=(0.0, 1.0),
        assumption="blocks arrive while the kernel computes",
        url="https://docs.jax.dev/en/latest/pallas/tpu/pipelining.html",
    ),
    "capture_less": Advice(
        texts=everywhere("record less: a lower host tracer level, no Python tracer, fewer steps"),
        saves=(0.5, 1.0),
        assumption="the job without the profiler is faster by the measured overhead",
        url=f"{GUIDE}/profiler",
        urls={"jax": "https://docs.jax.dev/en/latest/profiling.html"},
        snippets={
            "tensorflow": (
                "+ options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=1, python_tracer_level=0)\n"
                "+ tf.profiler.experimental.start('logs', options)"
            ),
            "jax": (
                "+ options = jax.profiler.ProfileOptions()\n"
                "+ options.python_tracer_level = 0\n"
                "+ jax.profiler.start_trace('logs', profiler_options=options)"
            ),
        },
    ),
}
