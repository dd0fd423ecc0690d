"""What is read from Keras, with doubles of its objects; tests/capture/test_keras_callback.py asks real ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tfperf.capture.keras_callback import facts_of_call, keras_facts


class Model:
    """A model whose `fit` keeps what it reads data with in a local variable, as Keras 3 and Keras 2 do."""

    steps_per_execution: Any = 1

    def fit(self, hook: Callable[[Any], dict[str, int]], adapter: Any, keras: int) -> dict[str, int]:
        if keras == 3:
            epoch_iterator = SimpleNamespace(data_adapter=adapter)
            found = hook(self)
            del epoch_iterator
        else:
            data_handler = SimpleNamespace(_adapter=adapter)
            found = hook(self)
            del data_handler
        return found


def fitted(adapter: Any, keras: int = 3) -> dict[str, int]:
    return Model().fit(keras_facts, adapter, keras)


def test_keras_2_has_the_batch_size_as_a_method() -> None:
    assert fitted(SimpleNamespace(batch_size=40)) == {"steps_per_execution": 1, "batch_size": 40}
    assert fitted(SimpleNamespace(batch_size=lambda: 40), keras=2)["batch_size"] == 40


def test_steps_per_execution_may_be_a_variable() -> None:
    model = Model()
    model.steps_per_execution = SimpleNamespace(numpy=lambda: np.int64(5))
    assert model.fit(keras_facts, None, 3) == {"steps_per_execution": 5}


def dataset_class(name: str, **attributes: Any) -> Any:
    return type(name, (), attributes)()


@pytest.fixture
def tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much of TensorFlow as is asked: the value of a constant is the constant."""
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(get_static_value=lambda value: value))


@pytest.mark.usefixtures("tensorflow")
@pytest.mark.parametrize(("stages", "size"), [(["Cache", "_Prefetch"], 16), (["_Map"], None)])
def test_without_a_static_shape_the_batch_stage_tells_unless_a_map_follows(stages: list[str], size: int | None) -> None:
    dataset = dataset_class("_BatchDataset", _batch_size=16)
    for stage in stages:
        dataset = dataset_class(f"{stage}Dataset", _input_dataset=dataset)
    assert fitted(SimpleNamespace(batch_size=None, _dataset=dataset)).get("batch_size") == size


def test_a_keras_of_another_structure_is_unknown() -> None:
    assert keras_facts(Model()) == {"steps_per_execution": 1}
    assert fitted(SimpleNamespace()) == {"steps_per_execution": 1}
    assert keras_facts(None) == {}


def test_replicas_are_those_of_the_strategy() -> None:
    model: Any = Model()
    extended = SimpleNamespace(worker_devices=("GPU:0", "GPU:1"))
    model.distribute_strategy = SimpleNamespace(num_replicas_in_sync=4, extended=extended)
    assert model.fit(keras_facts, None, 3) == {"steps_per_execution": 1, "replicas": 4, "local_replicas": 2}


@pytest.mark.parametrize(
    ("arguments", "options", "size"),
    [
        ((np.zeros((24, 3)), np.zeros(24)), {}, 24),
        ((), {"x": np.zeros((7, 3))}, 7),
        (({"image": np.zeros((5, 2)), "text": np.zeros((5, 9))},), {}, 5),
        (([np.zeros((6, 1)), np.zeros((6, 2))],), {}, 6),
        ((object(), np.zeros((4, 1))), {}, 4),
        ((3, "x", None), {}, None),
        ((np.float32(3.0),), {}, None),
    ],
)
def test_the_first_array_of_a_call_is_a_batch(arguments: Any, options: Any, size: int | None) -> None:
    assert facts_of_call(arguments, options) == ({"batch_size": size, "steps_per_execution": 1} if size else {})
