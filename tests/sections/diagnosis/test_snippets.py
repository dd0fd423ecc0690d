"""Code to copy in the cards of causes: it compiles, its names exist, and what is cheap runs."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from job_environment import needs_tensorflow, run_tensorflow
from places import ROOT

from tfperf.sections.diagnosis.catalogue import ADVICE, Advice, with_open_conditions
from tfperf.sections.diagnosis.program import Api

SNIPPETS = [
    pytest.param(code, api, text, id=f"{code}-{api}")
    for code, advice in ADVICE.items()
    for api, text in advice.snippets.items()
]
SHELL = ("tfperf ", "TF_GPU_ALLOCATOR=")
MODULES = {"tf": "tensorflow", "keras": "keras", "jax": "jax", "jnp": "jax.numpy", "np": "numpy", "gc": "gc"}


def program(snippet: str, left_out: str = "-") -> str:
    """Return a program before or after a change: without the lines that the other one has."""
    lines = [line[2:] for line in snippet.split("\n") if not line.startswith(left_out)]
    kept = [re.sub(r"^(\s*def \w+)\(\.\.\.\):$", r"\1(*_): ...", line) for line in lines]
    inside = [f"class Callback:\n    {line}" if "(self, " in line else f"    {line}" for line in kept]
    return "\n".join(inside if any("(self, " in line for line in kept) else kept)


def code_of(advice: str, api: str) -> str:
    return dict(ADVICE[advice].snippets.items())[api]  # type: ignore[index,unused-ignore]


def runs(text: str, **values: Any) -> dict[str, Any]:
    """Run a program of this project, with its source as AutoGraph needs it."""
    name = f"<snippet {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), values)
    return values


@pytest.mark.parametrize(("code", "api", "text"), SNIPPETS)
def test_each_line_has_its_mark_and_the_program_compiles(code: str, api: str, text: str) -> None:
    assert api in ADVICE[code].texts
    assert all(re.match(r"[+-] \S|[+-]  {3,}\S| {2}", line) for line in text.split("\n")), text
    assert max(map(len, text.split("\n"))) <= 100
    if text.strip("+- ").startswith(SHELL):
        return
    for left_out in "+-" if re.search("^- ", text, re.MULTILINE) else "-":
        compile(program(text, left_out), code, "exec")


def test_several_steps_in_a_function_go_on_with_the_same_iterator() -> None:
    """A dataset in the function would start again in each call."""
    assert "next(iterator)" in ADVICE["loop_in_function"].texts["tensorflow"]


@pytest.mark.parametrize(
    ("option", "since"),
    [
        (" compile(jit_compile=True)", "2.8"),  # release notes
        ("tf.function(jit_compile=True)", "2.5"),  # experimental_compile in the pages of 2.4
        ("reduce_retracing=True", "2.9"),
        ("mixed_precision", "2.4"),  # release notes: no longer experimental
        ("steps_per_execution=", "2.4"),
        ("enable_async=True", "2.13"),  # the pages of 2.11 lack it
    ],
)
def test_options_name_the_first_tensorflow_with_them(option: str, since: str) -> None:
    texts = [text for advice in ADVICE.values() for text in (*_of_tensorflow(advice.texts), *_on_tpus(advice))]
    with_it = [text for text in texts if option in f" {text}"]
    assert with_it
    assert all(f" (TensorFlow {since} or later)" in text for text in with_it)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        (None, "a (TensorFlow 2.10 or later), b (TensorFlow 2.4 or later)"),
        ((2, 3), "a (TensorFlow 2.10 or later), b (TensorFlow 2.4 or later)"),
        ((2, 9), "a (TensorFlow 2.10 or later), b"),
        ((2, 21), "a, b"),
    ],
)
def test_a_known_version_meets_conditions(version: tuple[int, int] | None, text: str) -> None:
    assert with_open_conditions("a (TensorFlow 2.10 or later), b (TensorFlow 2.4 or later)", version) == text


def _on_tpus(advice: Advice) -> list[str]:
    return _of_tensorflow(advice.on_tpus or {})


def _of_tensorflow(texts: Mapping[Api, str]) -> list[str]:
    return [text for api, text in texts.items() if api != "jax"]


def test_most_changes_have_code() -> None:
    """Advice without code depends on the program: where its work is, or which sizes fit."""

    def has_code(advice: Advice) -> bool:
        return bool(advice.snippets)

    assert sum(map(has_code, ADVICE.values())) > 40


def names_in(api: str) -> Iterator[str]:
    """Yield the dotted names of modules in the code for an API, such as `tf.data.AUTOTUNE`."""
    for advice in ADVICE.values():
        text = advice.snippets.get(api, "")  # type: ignore[call-overload,unused-ignore]
        if text.strip("+- ").startswith(SHELL):
            continue
        for node in ast.walk(ast.parse(program(text))):
            dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if re.fullmatch(r"[\w.]+", dotted) and dotted.split(".")[0] in MODULES:
                yield dotted


def check_names(api: str) -> None:
    names = sorted({*names_in(api)})
    assert len(names) > 5
    for dotted in names:
        root, *parts = dotted.split(".")
        value = import_module(MODULES[root])
        for part in parts:
            assert hasattr(value, part), dotted
            value = getattr(value, part)


def test_names_of_jax_exist_and_its_code_runs() -> None:
    jax = pytest.importorskip("jax")
    jnp = import_module("jax.numpy")
    check_names("jax")
    given: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np}
    x, w, ids = jnp.ones((2, 3)), jnp.arange(12.0).reshape(3, 4), jnp.array([2, 0])
    for code in ("gather_rows", "mixed_precision", "stack_arrays"):
        values = {"x": x, "w": w, "weights": w, "ids": ids, "depth": 3, "arrays": [np.ones(3)] * 2}
        before, after = (runs(program(code_of(code, "jax"), each), **given, **values) for each in "+-")
        key = "arrays" if code == "stack_arrays" else "y"
        np.testing.assert_allclose(np.stack(before[key]), after[key], rtol=0.02)

    def train_step(state: Any, batch: Any) -> Any:
        return state + batch.sum()

    batches = jnp.arange(6.0).reshape(3, 2)
    many = runs(program(code_of("loop_in_function", "jax")), **given, train_step=train_step)["train_steps"]
    assert float(many(0.0, batches)) == 15.0
    ahead = runs(
        program(code_of("prefetch_to_device", "jax")),
        **given,
        train_step=train_step,
        batches=iter(batches),
        steps=2,
        state=0,
    )
    assert float(ahead["state"]) == 1.0 + 5.0
    spread = runs(program(code_of("use_all_devices", "jax")), **given, batch=np.ones((jax.device_count(), 2)))["batch"]
    assert len(spread.sharding.device_set) == jax.device_count()
    halves = runs(program(code_of("halve_copies", "jax")), **given, arrays={"a": x})["arrays"]
    assert halves["a"].dtype == jnp.bfloat16


@needs_tensorflow
def test_names_of_tensorflow_exist_and_its_code_runs() -> None:
    script = "from sections.diagnosis.test_snippets import check_tensorflow; check_tensorflow()"
    run_tensorflow("-c", script, cwd=ROOT / "tests")


def check_tensorflow() -> None:
    tf: Any = import_module("tensorflow")
    check_names("tensorflow")
    check_names("keras")
    given: dict[str, Any] = {"tf": tf, "np": np}
    weights, ids = tf.reshape(tf.range(12.0), (3, 4)), tf.constant([2, 0])
    sparse = tf.sparse.from_dense([[0.0, 1.0, 0.0]])
    for code, x in (("gather_rows", ids), ("sparse_product", sparse), ("vectorize_loop", weights)):
        values = {"x": x, "weights": weights, "ids": ids, "depth": 3, "f": lambda row: row * 2}
        before, after = (runs(program(code_of(code, "tensorflow"), each), **given, **values) for each in "+-")
        np.testing.assert_allclose(before["y"], after["y"])
    seen = tf.Variable(0.0)
    dataset = tf.data.Dataset.range(20).map(lambda number: tf.cast(number, tf.float32))
    many = runs(program(code_of("loop_in_function", "tensorflow")), **given, train_step=seen.assign_add)["train_steps"]
    many(iter(dataset))
    assert float(seen) == 45.0
    for code, total in (("one_iterator", 1.0), ("longer_epochs", 1.0)):
        seen.assign(0.0)
        runs(program(code_of(code, "tensorflow")), **given, dataset=dataset, steps=2, train_step=seen.assign_add)
        assert float(seen) == total
    made = runs(
        program(code_of("input_in_python", "tensorflow")),
        **given,
        batches=lambda: iter([1.0, 2.0]),
        signature=tf.TensorSpec((), tf.float32),
    )
    assert [float(each) for each in made["dataset"]] == [1.0, 2.0]
    fetched = runs(
        program(code_of("wait_in_threads", "tensorflow")), **given, dataset=dataset.take(2), read=lambda key: key + 1.0
    )
    assert [float(each) for each in fetched["dataset"]] == [1.0, 2.0]
