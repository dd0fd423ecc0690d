"""What each cause of the diagnosis is, in words: for `tfperf explain`, and the table of docs/diagnosis.md."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class CauseMeaning(Struct, frozen=True):
    """A cause in words; Markdown, relative to docs/."""

    text: str
    """What costs the time."""
    taken_from: str
    """Where the number is from."""


CAUSE_MEANINGS: Mapping[str, CauseMeaning] = {
    "input_wait": CauseMeaning("the step waits for the next batch of tf.data", "part of the category Input"),
    "input_copy": CauseMeaning(
        "batches are copied to the device while nothing else goes on", "part of the category Input"
    ),
    "host_copies": CauseMeaning(
        "TPU cores wait for arrays that the program keeps in the memory of the host, or for copies back",
        "[copies](kernels.md#copies-of-tpu-cores), a part of the categories Host to device and Output",
    ),
    "chip_copies": CauseMeaning(
        "TPU cores wait for copies between the memories of their chip", "part of the category Device to device"
    ),
    "kernel_waits": CauseMeaning(
        "a kernel of a TPU core (Pallas) waits for its blocks, in regions that it marks",
        "part of the category Device compute",
    ),
    "input_contention": CauseMeaning(
        (
            "the threads of the input pipeline use cores that the step needs ([how it is "
            "estimated](tfdata.md#what-input-costs))"
        ),
        "part of the categories Host compute and All others",
    ),
    "output_copy": CauseMeaning("results are copied to the host while nothing else goes on", "category Output"),
    "compilation": CauseMeaning("functions are traced or compiled in the steps", "category Compilation"),
    "warm_up": CauseMeaning(
        "only the first steps of the capture are traced, or take very long",
        "category Compilation, or the steps that averages omit",
    ),
    "launch_bound": CauseMeaning(
        "the device waits for the host to launch kernels, or a TPU that is done before each call for these calls",
        "category Kernel launch; for a TPU a part of All others",
    ),
    "small_work_per_step": CauseMeaning(
        (
            "what a step costs whatever its size (calls, launches, Python of the framework, but no waiting for "
            "results) takes 20 % of it or more; host compute without ops does not count where ops take half of the "
            "step, and one op most of that or all of them 5 ms: the step waits for cores then; on a GPU: the "
            "device computes for less than a quarter of it"
        ),
        "Kernel launch, Host compute without ops, All others",
    ),
    "host_ops": CauseMeaning(
        "ops run on host threads and launch nothing, while the device has nothing to do",
        "part of Host compute, as [idle.md](idle.md) counts it",
    ),
    "waiting_for_results": CauseMeaning(
        "the program waits for results, while the device has nothing to do",
        (
            "part of Host compute and All others, as [idle.md](idle.md) counts it; for a TPU that is done before each "
            "call, what a step takes beyond the longer of its runs and what the host does but waiting"
        ),
    ),
    "garbage_collection": CauseMeaning(
        (
            "Python's garbage collector runs, as captures of tfperf [record it](capture.md#what-a-trace-gets-besides), "
            "or as frames of gc.collect show; runs in one step or two of many call for no change"
        ),
        "part of the categories All others and Host compute",
    ),
    "python_between_steps": CauseMeaning(
        (
            "the thread that makes the calls is in none of them: Python that computes or waits ([how that is "
            "told](python_functions.md#between-calls))"
        ),
        "part of the category All others; where JAX's run ends before the next call, also Python beside it",
    ),
    "waiting_in_calls": CauseMeaning(
        "the program is in a call, and nothing is recorded of what the call does", "part of the category All others"
    ),
    "checkpointing": CauseMeaning("steps save checkpoints by ops of TensorFlow", "part of Host compute and All others"),
    "fetch_results": CauseMeaning(
        "steps read the results of metrics or the values of variables one by one, or write summaries",
        "part of Host compute and All others",
    ),
    "eager_ops": CauseMeaning(
        "Python runs ops one by one, outside any function; Python between them counts too",
        "part of Host compute, Kernel launch and All others, without kernels of 1 ms or more on average",
    ),
    "run_eagerly": CauseMeaning(
        "Keras runs the ops of its steps one by one, because of `compile(run_eagerly=True)`",
        "part of Host compute, Kernel launch and All others",
    ),
    "numpy_conversion": CauseMeaning(
        "large NumPy arrays become tensors, or arrays of JAX, in each step",
        "part of Host compute, All others and Input",
    ),
    "iterator_per_step": CauseMeaning(
        "each step creates a tf.data pipeline: `predict` for each example, or an iterator in the loop",
        "Compilation, Input, Host compute and All others, without the function that the step calls",
    ),
    "collectives": CauseMeaning(
        "replicas exchange gradients, or wait for each other to do so",
        "category Device collectives; on CPUs a part of Host compute",
    ),
    "collectives_bound": CauseMeaning(
        "the exchange of data between hosts, without waiting for the last one, takes 10 % of the step or more",
        "no part of the step: `collectives` has the cost",
    ),
    "straggler": CauseMeaning(
        "hosts wait for the last one in a step: one that is always slow, or now this and now that",
        "what that host is slower in, if no other cause has it; without one host to blame, what hosts wait in",
    ),
    "skewed_input": CauseMeaning(
        "the input of one host is slower than that of the others, which wait for it",
        "no part of the step: `input_wait` or `input_copy` has the cost",
    ),
    "slow_replica": CauseMeaning(
        "replicas of one host wait in collectives while another one alone runs ops", "part of the category Host compute"
    ),
    "python_in_graph": CauseMeaning(
        "the graph calls Python: numpy_function, py_function, jax.pure_callback", "part of the category Host compute"
    ),
    "print_in_graph": CauseMeaning(
        "tf.print or jax.debug.print formats text in the graph", "part of the category Host compute"
    ),
    "input_in_step": CauseMeaning(
        "the step itself prepares its input by ops on text, lookup tables, encoded pictures and records",
        "part of the category Host compute",
    ),
    "densified_sparse": CauseMeaning(
        "a sparse batch is made dense in the step, and a product of matrices reads it",
        "part of the category Host compute",
    ),
    "one_hot_product": CauseMeaning(
        "a product of matrices picks rows by one-hot vectors", "part of the category Host compute"
    ),
    "loop_in_graph": CauseMeaning(
        "a loop (tf.map_fn, tf.while_loop) runs small ops for each example; recurrent layers are not meant",
        "part of the category Host compute",
    ),
    "too_many_threads": CauseMeaning(
        "the pools of TensorFlow have more than two threads per core", "part of the category Host compute, as a range"
    ),
    "double_precision": CauseMeaning(
        "ops compute in float64, which takes about twice as long as float32",
        "40 to 80 % of the time of these ops, of the category Host compute",
    ),
    "optimizer_update": CauseMeaning(
        "the optimizer's update takes 30 % of the step or more", "part of the category Host compute"
    ),
    "dominant_layer": CauseMeaning(
        "a dense layer with a very wide input takes half of the step or more, with the update of its weights",
        "part of the category Host compute",
    ),
    "device_compute_32bit": CauseMeaning(
        "kernels that tensor cores could do in 16 bit", "part of the category Device compute"
    ),
    "layout_conversion": CauseMeaning(
        "kernels bring arrays of convolutions into another layout", "part of the category Device compute"
    ),
    "memory_bound": CauseMeaning(
        "ops other than matrix products and convolutions are bound by memory ([roofline](roofline.md))",
        "part of the category Device compute",
    ),
    "unaligned_shapes": CauseMeaning(
        (
            "matrix products with unaligned sizes (GPU: 16-bit, not multiples of 8; TPU: they do not fill tiles) reach "
            "less of the roofline than the others"
        ),
        "part of the category Device compute",
    ),
    "low_utilisation": CauseMeaning(
        "matrix products and convolutions reach less than 30 % of both peaks ([roofline](roofline.md))",
        "part of the category Device compute",
    ),
    "profiling_overhead": CauseMeaning(
        "the profiler makes steps longer, as the capture measured", "part of Host compute, Kernel launch and All others"
    ),
    "between_steps": CauseMeaning(
        "time between steps that belongs to no step: the end of an epoch, a checkpoint, Python",
        "the [wall time](wall.md) between steps",
    ),
    "evaluation": CauseMeaning(
        "evaluation takes 20 % of the wall time or more",
        "the [wall time](wall.md) of steps of other kinds, without what only one evaluation compiles",
    ),
    "slow_steps": CauseMeaning(
        "averaged steps take over twice the median again and again, and no other cause says why",
        "the time beyond the median, as a share of the [wall time](wall.md)",
    ),
    "idle_devices": CauseMeaning("devices do nothing in the steps", "no part of the step: the cost is unknown"),
    "memory_pressure": CauseMeaning("memory is nearly full, fragmented, or grows", "no part of the step"),
}
"""Every cause by its code."""
