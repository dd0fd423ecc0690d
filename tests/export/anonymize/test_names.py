"""Which words of a profile stay, and what stands for the others."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfperf.export.anonymize import Names, known_words
from tfperf.sections.ops.groups import is_backward
from tfperf.trace.device.kernels import bits_of_name, uses_tensor_cores
from tfperf.trace.event_names import is_hand_over, parse_op, pattern_of
from tfperf.trace.host.host_state import state_of


def test_words_are_replaced_and_structure_stays() -> None:
    names = Names()
    assert names.replace("acme_net/secret_7/MatMul:MatMul") == "w1w_w2w/w3w_7/MatMul:MatMul"
    assert names.replace("gradient_tape/acme_net/Secret_7/MatMul") == "gradient_tape/w1w_w2w/W4w_7/MatMul"
    assert names.count == 4


def test_a_number_behind_a_word_does_not_make_it_another_word() -> None:
    names = Names()
    texts = [f"acme{number}" for number in ("", 1, 2, 11)] + [f"other{number}" for number in ("", 1, 2, 11)]
    assert len({names.replace(text) for text in texts}) == len(texts)


def test_addresses_of_machines_are_replaced() -> None:
    names = Names()
    assert names.replace("grpc://10.7.1.22:8470") == names.replace("grpc://10.7.1.22:8470")
    assert "10.7" not in names.replace("grpc://10.7.1.22:8470")
    assert names.replace("grpc://10.7.1.23:8470") != names.replace("grpc://10.7.1.22:8470")


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        ("$backprop.py:901 secret", "$backprop.py:901 w1w"),
        ("$secret.py:901 train", "$w1w.py:901 train"),
        ("$time nap", "$time w1w"),
        ("$secretlib nap", "$w1w w2w"),
        ("$<unknown> secret", "$<unknown> w1w"),
    ],
)
def test_frames_of_python_keep_files_and_modules_that_everybody_has(frame: str, shown: str) -> None:
    assert Names().replace(frame) == shown


@pytest.mark.parametrize(
    "name",
    [
        "acme/transformer_layer_3/dense/MatMul:MatMul",
        "AcmeBlock_12/attention/Softmax:Softmax",
        "gradients/acme/BiasAdd_grad:BiasAddGrad",
        "jit(acme)/jit(main)/dot_general:",
        "void acme::half_gemm_kernel<__half, float>(int)",
        "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x5_nn",
        "AcmeBatchProduce",
        "cuEventSynchronize",
        "EagerLocalExecute: __inference_acme_12",
        "naïve/größe:Ämter",
    ],
)
def test_what_tfperf_reads_in_a_name_stays(name: str) -> None:
    replaced = Names().replace(name)
    assert "acme" not in replaced.lower()
    for read in (state_of, bits_of_name, uses_tensor_cores, is_hand_over, is_backward):
        assert read(replaced) == read(name), read
    assert parse_op(replaced).kind == parse_op(name).kind
    assert ("*" in pattern_of(replaced)) == ("*" in pattern_of(name))


@given(st.lists(st.text(), max_size=8))
def test_other_texts_become_other_texts(texts: list[str]) -> None:
    names = Names()
    replaced = [names.replace(text) for text in texts]
    assert replaced == [names.replace(text) for text in texts]
    assert len(set(replaced)) == len(set(texts))


def test_the_list_holds_the_types_of_all_ops_of_tensorflow() -> None:
    """They stand in the file of `tf.raw_ops`, which is read without TensorFlow's start of seconds."""
    tensorflow = find_spec("tensorflow")
    if tensorflow is None or tensorflow.origin is None:
        pytest.skip("TensorFlow is not installed")
    raw_ops = Path(tensorflow.origin).parent / "_api" / "v2" / "raw_ops" / "__init__.py"
    names = Names()
    types = re.findall(r"(?m)^from \S+ import ([A-Z]\w*)", raw_ops.read_text(encoding="utf-8"))
    assert len(types) > 1000
    assert [name for name in types if names.replace(name) != name] == []


def test_the_list_is_of_words() -> None:
    assert all(word.isalpha() and len(word) > 1 for word in known_words())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("main/3116817", "main/900000001"),
        ("/home/u12345/train.py:1029", "/w1w/w2w/train.py:1029"),
        ("/run/user/10012/a_1234/x.py:5:12", "/run/w1w/w2w/a_900000001/x.py:5:12"),
        ("at /tmp/550e8400-e29b-41d4-a716-446655440000/x", "w1w /w2w/w3w/x"),
        ("session 0f3a9b2c", "w1w w2w"),
        ("/home/max/mesh-add/a.py", "/w1w/w2w/w3w-add/a.py"),
        ("C:\\Users\\add.1\\a.py", "C:\\w1w\\w2w\\a.py"),
        ("jit_f(12190760917235803885)", "jit_f(12190760917235803885)"),
        ("f32[5,1024,1024,256]{3,2,1,0:T(8,128)S(5)}", "f32[5,1024,1024,256]{3,2,1,0:T(8,128)S(5)}"),
        ("jit(f)/layer_1024/add", "jit(f)/layer_1024/add"),
        ("ampere_fp16_s16816gemm_fp16_128x64", None),
    ],
)
def test_numbers_that_are_names_are_replaced_and_others_stay(text: str, shown: str | None) -> None:
    names = Names()
    replaced = names.replace(text)
    if shown is None:
        assert re.findall(r"\d+", replaced)[-6:] == re.findall(r"\d+", text)
    else:
        assert re.sub(r"[wW]\d+[wW]", "w0w", replaced) == re.sub(r"[wW]\d+[wW]", "w0w", shown)


def test_a_number_has_the_same_replacement_everywhere() -> None:
    names = Names()
    assert names.replace("/proc/3116817/x").split("/")[2] == names.replace("main/3116817").split("/")[1]
    assert names.number("3116817") == "900000001"
