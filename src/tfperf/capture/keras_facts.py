"""What Keras knows about a training and a trace does not hold: batch size, steps per execution, replicas.

Keras gives its callbacks none of it, so it is read from the call of `fit` that they are called by. Nothing is imported,
fetched or changed for it; where Keras is built in another way, a fact is unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

_CALLS = ("fit", "evaluate", "predict")
_MOST_FRAMES = 100
_WHOLE_ELEMENTS = ("Prefetch", "Cache", "Repeat", "Shuffle", "Take", "Skip", "Options", "Model", "AssertCardinality")
"""Stages of tf.data that hand on whole elements, as the names of their classes start."""


def keras_facts(model: Any) -> dict[str, int]:
    """Return fields of `CaptureFacts`, for the call of `fit`, `evaluate` or `predict` of `model` that runs here."""
    facts: dict[str, int] = {}
    if model is None:
        return facts
    with suppress(Exception):
        facts["steps_per_execution"] = _plain_int(getattr(model, "steps_per_execution", None)) or _plain_int(
            getattr(model, "_steps_per_execution", None)
        )
    with suppress(Exception):
        strategy = model.distribute_strategy
        facts["replicas"] = facts["local_replicas"] = int(strategy.num_replicas_in_sync)
        if facts["replicas"] > 1:
            facts["local_replicas"] = len(strategy.extended.worker_devices)
    with suppress(Exception):
        adapter = next(_adapters(model))
        facts["batch_size"] = _adapter_batch_size(adapter)
    return {name: value for name, value in facts.items() if value and value > 0}


def facts_of_call(arguments: Sequence[Any], options: Mapping[str, Any]) -> dict[str, int]:
    """Return fields of `CaptureFacts` for a call of `train_on_batch` or its like: its first array is a batch."""
    given = [*arguments, *options.values()]
    while given:
        first = given.pop(0)
        if isinstance(first, Mapping):
            given = [*first.values(), *given]
        elif isinstance(first, (list, tuple)):
            given = [*first, *given]
        elif getattr(first, "shape", None) is not None:
            shape = tuple(first.shape)
            return {"batch_size": int(shape[0]), "steps_per_execution": 1} if shape and shape[0] else {}
    return {}


def _plain_int(value: Any) -> int:
    """Return a number, or the value of a variable: Keras 2 keeps `steps_per_execution` in one."""
    return 0 if value is None else int(value.numpy() if hasattr(value, "numpy") else value)


def _adapters(model: Any) -> Iterator[Any]:
    """Iterate over what Keras reads the data of the running call with: of Keras 3, then of Keras 2."""
    frame = sys._getframe()
    for _ in range(_MOST_FRAMES):
        if frame.f_code.co_name in _CALLS and frame.f_locals.get("self") is model:
            for name, attribute in (("epoch_iterator", "data_adapter"), ("data_handler", "_adapter")):
                adapter = getattr(frame.f_locals.get(name), attribute, None)
                if adapter is not None:
                    yield adapter
        if frame.f_back is None:
            return
        frame = frame.f_back


def _adapter_batch_size(adapter: Any) -> int:
    """Return the batch size that an adapter states, else that of the batch stage of its dataset; 0: unknown."""
    stated = adapter.batch_size
    stated = stated() if callable(stated) else stated
    return int(stated) if stated else _dataset_batch_size(adapter._dataset)


def _dataset_batch_size(dataset: Any) -> int:
    """Return the batch size of the outermost batch stage, if only whole elements are handed on behind it."""
    tensorflow = sys.modules["tensorflow"]
    while True:
        name = type(dataset).__name__.lstrip("_")
        if "Batch" in name:
            size = tensorflow.get_static_value(dataset._batch_size)
            return 0 if size is None else int(size)
        if not name.startswith(_WHOLE_ELEMENTS):
            return 0
        dataset = dataset._input_dataset
