"""The grammar of event names: which names are ops, and their types.

The functions work on the distinct names of a trace (thousands), not on events.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Literal

import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools

OpKind = Literal["", "tensorflow", "tf.data", "jax", "copy"]


class Op(Struct, frozen=True):
    """The parts of a name: `kind` is empty if it is not an op, `type` the op type (`MatMul`), `Dataset` for tf.data."""

    kind: OpKind
    name: str
    type: str


HOST_CALLBACK = re.compile(r"(?:^|.*/)(?:(?:pure|io)_callback|debug_(?:callback|print))(?:\.\d+)?$")
"""Ops of JAX with which a compiled program calls Python, and the instructions that XLA names after them."""
_TF_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")
_OLD_TF_NAME = r"[A-Za-z0-9.][A-Za-z0-9_./]*"
_TF_TYPE = re.compile(r"[A-Z_][a-zA-Z0-9_]*")
_JAX_TYPE = r"(?s)[a-z_][a-z0-9_]*(\[.*\])?"
_COPIES = {f"memcpy{kind.lower()}": f"Memcpy{kind}" for kind in ("HToD", "DToH", "DToD", "HToH")}


@lru_cache(maxsize=1 << 15)  # several analyses parse the same names
def parse_op(full_name: str, *, old_names: bool = False) -> Op:
    """Split `scope/name:Type` into name and type.

    `old_names` is the grammar of TensorFlow 2.2 to 2.4, without `-` and `>` in names: it made the whole text the name,
    of type `Unknown`.
    """
    left, colon, right = full_name.partition(":")
    if not colon:
        for prefix, kind in _COPIES.items():
            if full_name.lower().startswith(prefix):
                return Op("copy", full_name, kind)
        return Op("", full_name, "")
    # What a stream of PJRT (JAX) calls on the host, and requests of another process, which run functions.
    if left in ("ThenExecuteCallback", "EagerService"):
        return Op("", full_name, "")
    if left == "Iterator":
        return Op("tf.data", full_name, "Dataset")
    named = re.fullmatch(_OLD_TF_NAME, left) if old_names else _TF_NAME.fullmatch(left)
    if named and _TF_TYPE.fullmatch(right):
        return Op("tensorflow", left, right)
    last = left.rpartition("/")[2]
    head, underscore, number = last.rpartition("_")
    kind = right or (head if underscore and number.isdigit() else last)
    if re.fullmatch(_JAX_TYPE, kind):
        return Op("jax", left, kind.partition("[")[0])
    return Op("", full_name, "") if right else Op("tensorflow", left, kind)


class _Answers(dict[str, bool]):
    """A cache of a function's results by name."""

    def __init__(self, wanted: Callable[[str], object]) -> None:
        self._wanted = wanted

    def __missing__(self, name: str) -> bool:
        answer = self[name] = bool(self._wanted(name))
        return answer


_answers: dict[object, _Answers] = {}
"""Caches by function: a trace, and those of all hosts of a run, contain the same names several times."""
_MOST_FUNCTIONS, _MOST_ANSWERS = 1 << 9, 1 << 12


def mask(names: Sequence[str], wanted: Callable[[str], object]) -> Bools:
    """Return, for each name, whether `wanted` accepts it."""
    key: object = wanted
    if isinstance(wanted, FunctionType):
        key = None if wanted.__closure__ or wanted.__defaults__ else wanted.__code__
    if key is None or len(names) > _MOST_ANSWERS:
        return np.fromiter(map(bool, map(wanted, names)), np.bool_, len(names))
    answers = _answers.get(key)
    if answers is None or len(answers) > _MOST_ANSWERS:
        if len(_answers) > _MOST_FUNCTIONS:
            _answers.clear()
        answers = _answers[key] = _Answers(wanted)
    return np.fromiter(map(answers.__getitem__, names), np.bool_, len(names))


def is_fetch(name: str) -> bool:
    """Return whether the event is a consumer waiting for the next element of a tf.data iterator."""
    return name.startswith("IteratorGetNext") and name.endswith("::DoCompute")


_HANDS_OVER = re.compile(
    r"(?:.*/)?IteratorGetNext(?:/_\d+|_\d+)*:_(?:Host)?Send$|(?i:(?:cu|cuda|hip)?memcpy_?h(?:2|to)d)"
)


def hands_over_batch(name: str) -> bool:
    """Return whether the event sends or copies a batch to a device; copies of other data look the same."""
    return _HANDS_OVER.match(name) is not None


def is_root_iterator(name: str) -> bool:
    """Return whether the event is the outermost stage of a pipeline (`Iterator::Root`, `Iterator::Model`)."""
    return name.startswith("Iterator::") and name.count("::") == 1


def is_iterator(name: str) -> bool:
    """Return whether the event is a call of a tf.data stage."""
    return name.startswith("Iterator::")


def is_labelled_iterator(name: str) -> bool:
    """Return whether the event is a call of a stage that may have a label: the outermost one, or a prefetch."""
    return name.startswith("Iterator::") and (":" not in name[10:] or name.endswith("::Prefetch"))


def names_its_object(name: str) -> bool:
    """Return whether the stat `name` of the event is useful: the label of an iterator, or the compiled program."""
    return is_labelled_iterator(name) or compiles_program(name)


def compiles_program(name: str) -> bool:
    """Return whether XLA generates machine code of a program in the event."""
    return name.endswith("Compiler::RunBackend")


_HLO_OP = re.compile(r"(?:end: )?[a-z_][\w.-]*")


def may_be_hlo_op(name: str) -> bool:
    """Return whether the event may be an op that XLA compiled for the host, or its end."""
    return _HLO_OP.fullmatch(name) is not None


def may_state_batch_size(name: str) -> bool:
    """Return whether the event's `batch_size` counts elements: of a tf.data stage, or of a step of Keras 2."""
    return is_iterator(name) or name in ("train", "TraceContext")


@lru_cache(maxsize=1 << 14)  # planes and hosts of a run have the same names
def carries_run_id(name: str) -> bool:
    """Return whether the `id` of the event identifies an iterator, a function or an executor run."""
    if is_iterator(name) or is_input_function(name) or name.startswith("ExecutorState::Process"):
        return True
    return runs_function(name) or (name.startswith("IteratorGetNext") and "::" in name)


def runs_function(name: str) -> bool:
    """Return whether a program runs a function or a graph in the event."""
    return name in ("FunctionRun", "SessionRun", "RunGraph")


def is_hand_over(name: str) -> bool:
    """Return whether a tf.data stage with its own threads produces an element in the event."""
    return name.endswith("Produce") and bool(re.match(r"\w+Produce$", name))


def hands_over_element(name: str) -> bool:
    """Return whether a stage with its own threads produces an element in the event, or hands it over."""
    return is_hand_over(name) or takes_element(name)


def takes_element(name: str) -> bool:
    """Return whether a tf.data stage takes an element in the event that one with its own threads produced."""
    return name.endswith("Consume") and bool(re.match(r"\w+Consume$", name))


def gives_task(name: str) -> bool:
    """Return whether a host thread submits a numbered task to a thread pool in the event."""
    return name == "ThreadpoolListener::Record"


def begins_task(name: str) -> bool:
    """Return whether a thread of a pool begins a task in the event."""
    return name == "ThreadpoolListener::StartRegion"


def is_input_function(name: str) -> bool:
    """Return whether tf.data runs a user function in the event."""
    return name.startswith("InstantiatedCapturedFunction")


_KERAS = re.compile(
    r"(?:__inference_)?(?:train_function|test_function|predict_function|one_step_on_data|one_step_on_data_distributed"
    r"|one_step_on_iterator|multi_step_on_iterator)(?:_\d+)*$"
)


def runs_keras_function(name: str) -> bool:
    """Return whether Keras runs one or several steps as a tf.function in the event, or as this concrete function."""
    return _KERAS.match(name) is not None


_PREDICTS = re.compile(
    r"(?:__inference_)?(?:predict_function|one_step_on_data_distributed|multi_step_on_data)(?:_\d+)*$"
)
_INFERS = re.compile(
    r"(?i)(?:^|_)(?:predict|predictions?|infer|inference|serve|serving|generate|prefill|decode)(?:_|$)"
)
_JUDGES = re.compile(
    r"(?i)(?:^|_)(?:train|training|eval|evaluate|evaluation|test|valid|validate|validation|loss|accuracy|metrics?|score"
    r"|update|grads?|gradients?)(?:_|$)"
)


def is_keras_predict(name: str) -> bool:
    """Return whether it is the function that `predict` and `predict_on_batch` of Keras call for each batch."""
    return _PREDICTS.match(name) is not None


def judges(name: str) -> bool:
    """Return whether the name of a function or marker says that it trains or evaluates."""
    return _JUDGES.search(name) is not None


def infers(name: str) -> bool:
    """Return whether the name of a function or marker says that it computes answers, and not that it judges them."""
    plain = name.removeprefix("__inference_")
    return is_keras_predict(name) or (_INFERS.search(plain) is not None and not judges(plain))


SERVERS = ("BatchingSessionRun", "TfrtModelRun", "ServingModelRun")
"""Requests of a server, the outer ones first."""
SESSIONS = ("SessionRun", "RunGraph")
"""Requests of a server if it names the model or forms batches; else runs of any program."""
BATCH_SIZES = ("ConcatInputTensors", "MergeInputTensors", "BrainSessionRun", "OrbaxServing::ConcatInputBuffers")
"""Events in the processing of a batch with its size and padding."""
_BATCH = re.compile(r"(?:OrbaxServing::)?ProcessBatch(?::\d+)?$")
_ENTERS_BATCH = re.compile(r"Schedule(?:OutputTask|With(?:out|Eager)?Split)$|ASBSQueue::Schedule$")


def processes_batch(name: str) -> bool:
    """Return whether a server processes a batch of requests in the event."""
    return _BATCH.match(name) is not None


def enters_batch(name: str) -> bool:
    """Return whether a request, or a part of it, begins to wait for its batch in the event."""
    return _ENTERS_BATCH.match(name) is not None


def takes_time(name: str) -> bool:
    """Return whether the event always has a duration: a call of tf.data, of a function, or an executor run."""
    return is_iterator(name) or is_fetch(name) or name == "FunctionRun" or name.startswith("ExecutorState::Process")


def is_memory(name: str) -> bool:
    """Return whether the event records an allocation, which has no duration."""
    return name in ("MemoryAllocation", "MemoryDeallocation")


def names_its_chip(name: str) -> bool:
    """Return whether the event identifies its chip: a run of a program, a transfer, or an allocation."""
    return name in ("DoEnqueueProgram", "CompleteCallbacks") or is_memory(name) or name.startswith("tpu::System::")


def is_transfer_to_tpu(name: str) -> bool:
    """Return whether the event begins a copy from the host to a TPU."""
    return name == "tpu::System::TransferToDevice"


def names_its_task(name: str) -> bool:
    """Return whether the event contains the name of its task: a call on a device, or a send of a tensor."""
    return name.startswith("RemoteCallOp") or name.endswith(":_Send")


def is_python_frame(name: str) -> bool:
    """Return whether the event is a frame of the Python tracer."""
    return name.startswith("$")


def without_frame_mark(name: str) -> str:
    """Return the name of an event as people read it: a frame of the Python tracer without its `$`."""
    return name[1:] if is_python_frame(name) else name


JITTED_CALL = "PjitFunction("
REQUEST = "EagerService:Enqueue"
"""A call that another process sends, as the coordinator of a parameter server job does for each step."""
CUDA_GRAPH = re.compile(r"(?:.*::)?command_buffer(?:_(\d+))?\b")
"""The stat `hlo_op` of kernels that XLA launches as a CUDA graph, with the number of the graph."""


def is_jitted_call(name: str) -> bool:
    """Return whether Python calls a function in the event that JAX compiled."""
    return name.startswith(JITTED_CALL)


_NOT_IN_MODULE = re.compile(r"[^\w.-]")
"""Characters that JAX replaces in a function name to get the program name."""


def called_program(name: str) -> str:
    """Return the XLA program of the JAX function that Python calls in the event."""
    return f"jit_{_NOT_IN_MODULE.sub('_', called_function(name))}"


def called_function(name: str) -> str:
    """Return the JAX function that Python calls in the event."""
    return name.removeprefix(JITTED_CALL).removesuffix(")")


def canonical(function: str) -> str:
    """Return a function name as in the name of its XLA program, without `jit_` or `pmap_`."""
    return re.sub(r"[^A-Za-z0-9_]", "_", re.sub(r"^(jit|pmap)_", "", function)).strip("_")


def is_jax_compilation(name: str) -> bool:
    """Return whether JAX compiles a program with XLA in the event."""
    return name.startswith("backend_compile")


def is_eager_call(name: str) -> bool:
    """Return whether the event is the Python side of running one eager op."""
    return name.startswith(("TFE_Py_", "EagerExecute", "EagerLocalExecute"))


def is_python_op(name: str) -> bool:
    """Return whether a graph runs a Python function in the event, whose ops run eagerly."""
    return name.endswith(":EagerPyFunc")


def is_call(name: str) -> bool:
    """Return whether TensorFlow writes the event: a call, an executor run, or the hand-over of an element."""
    return carries_run_id(name) or name.startswith("Executor") or is_eager_call(name) or is_hand_over(name)


def may_mark_steps(name: str) -> bool:
    """Return whether the event is written by a program, not by TensorFlow, so that it may mark a step."""
    return not (is_call(name) or name.startswith("KernelAndDevice") or name in SERVERS or processes_batch(name))


_HLO_COLLECTIVE = re.compile(
    r"(?:all-reduce|all-gather|reduce-scatter|(?:ragged-)?all-to-all|collective-(?:permute|broadcast))(?!-start)(?:-done)?\b"
)


def is_hlo_collective(name: str) -> bool:
    """Return whether an HLO op exchanges data with other devices; one that only starts an exchange does not wait."""
    return _HLO_COLLECTIVE.match(name) is not None


def is_collective_kernel(name: str) -> bool:
    """Return whether a device kernel exchanges data with other devices."""
    return name.lower().startswith(("nccl", "rccl", "void nccl", "mscclkernel"))


_COLLECTIVE_TYPES = {
    "collectivereducescatter": "reduce-scatter",
    "collectivereduce": "all-reduce",
    "collectivegather": "all-gather",
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "collectivepermute": "permute",
    "sendrecv": "permute",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
}
"""Parts of names without separators, the first one that matches: TensorFlow's ops reduce to all replicas."""


def collective_type(name: str) -> str:
    """Return the type of a collective from the name of its HLO op, TensorFlow op or kernel; empty if unknown.

    NCCL may run several grouped operations in one kernel, named after one of them; some of RCCL's kernels are named
    `Generic`.
    """
    plain = re.sub(r"[^a-z]", "", name.lower())
    return next((kind for part, kind in _COLLECTIVE_TYPES.items() if part in plain), "")


_KERNEL_DTYPES = {
    **dict.fromkeys(("f16", "half"), "f16"),
    **dict.fromkeys(("bf16", "nvbfloat16", "rcclbfloat16", "hipbfloat16"), "bf16"),
    **dict.fromkeys(("f32", "float"), "f32"),
    **dict.fromkeys(("f64", "double"), "f64"),
    **dict.fromkeys(("i8", "int8t"), "s8"),
    **dict.fromkeys(("u8", "uint8t"), "u8"),
    **dict.fromkeys(("i32", "int32t"), "s32"),
    **dict.fromkeys(("u32", "uint32t"), "u32"),
    **dict.fromkeys(("i64", "int64t"), "s64"),
    **dict.fromkeys(("u64", "uint64t"), "u64"),
    "f8e4m3": "f8e4m3fn",
    "f8e5m2": "f8e5m2",
}
_KERNEL_DTYPE = re.compile(
    r"_(?:sum|prod|min|max|minmax|premulsum|sumpostdiv|avg)_+((?:[a-z]+_)?[a-z]+\d*(?:e\dm\d|_t)?)"
)


def kernel_dtype(name: str) -> str:
    """Return the type that a NCCL or RCCL kernel reduces, in XLA's notation; empty if it only moves bytes."""
    found = _KERNEL_DTYPE.search(name.partition("(")[0].lower())
    words = found[1].split("_") if found is not None else []
    # The type may be followed by the algorithm (`f32_RING`), and consist of two words (`nv_bfloat16`, `int8_t`).
    candidates = ("".join(words), words[0]) if words else ()
    return next((_KERNEL_DTYPES[each] for each in candidates if each in _KERNEL_DTYPES), "")


_OPTIMIZER = r"adam|adamw|sgd|rmsprop|adagrad|adadelta|adamax|nadam|ftrl|lamb|lion"
_GRADIENT = re.compile(rf"(?i)gradient_tape/|gradients/|ResourceApply|[/:_]({_OPTIMIZER})/")
_CONCRETE = r"(?:EagerExecute|EagerLocalExecute): (__inference_.+_\d+)$"


def is_gradient(name: str) -> bool:
    """Return whether the op belongs to a backward pass or an optimizer."""
    return bool(_GRADIENT.search(name))


def concrete_function(name: str) -> str:
    """Return the concrete function that an eager event runs (`__inference_f_12`), empty if none."""
    match = re.match(_CONCRETE, name) if name.startswith("Eager") else None
    return match.group(1) if match else ""


# --- names that differ in numbers ---

_BEHIND_A_WORD = r"(?<=layer|block|tower)s?(?:(?:_\._|[_/])?\d+)?"
_IN_A_LIST = r"(?<=_\.)_\d+"
_REPEATED = re.compile(rf"(?:{_BEHIND_A_WORD}|{_IN_A_LIST})(?=\)*/)", re.IGNORECASE)
"""The number at the end of a scope that a model repeats: `layer_17/`, `TransformerBlock_3/`, `layer/17/`, `h_._2/`.

The number may be missing: Keras calls the first three `encoder_layer`, `encoder_layer_1`, `encoder_layer_2`. Names
such as `dense_1` and `conv2d_2` are not repeated scopes, because Keras numbers all layers of a class, alike or not.
"""
_REPLICA = re.compile(r"(?:^|(?<=/))replica_\d+/")
"""The scope of a tf.distribute replica; the first replica has none."""


def starred(names: Collection[str], number: re.Pattern[str]) -> str:
    """Return a common name for names that differ only in matches of `number`."""
    differs = iter([len(set(found)) > 1 for found in zip(*map(number.findall, names), strict=True)])
    # The name with the most scopes and digits has all the numbers.
    longest = max(names, key=lambda name: (name.count("/"), len(name), name))
    return number.sub(lambda match: star(match) if next(differs) else match[0], longest)


def star(number: re.Match[str]) -> str:
    """Return `*` for the digits of a match, with the text before them: `_*`; the same if there are none."""
    before = number[0].rstrip("0123456789")
    return f"{before}_*" if before == number[0] else f"{before}*"


def pattern_of(op_name: str) -> str:
    """Return the part of an op name that is the same in all replicas and repeated layers."""
    return _REPEATED.sub(star, _REPLICA.sub("", op_name))


def name_of_repeated(op_names: Collection[str]) -> str:
    """Return the common name of ops with one pattern: `replica_*/encoder/layer_*/MatMul`."""
    name = starred(op_names, _REPEATED)
    replicas = {scope and scope[0] for scope in map(_REPLICA.search, op_names)}
    return _REPLICA.sub("replica_*/", name) if len(replicas) > 1 else name
