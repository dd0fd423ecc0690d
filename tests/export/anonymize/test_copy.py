"""Copies of profiles: nothing of the names is left, and the analysis finds the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import event, host, line, logdir_of, plane, ref, space
from hlo_builders import F32, computation, instruction, program, shape
from hypothesis import assume, given
from hypothesis import strategies as st
from places import SAMPLES, TRACES
from protobytes import field, message
from sections.requests.jobs import server
from synthetic_tpu import offload_tpu
from tpu_twin import HOSTNAME, tpu_twin

import tfperf
from tfperf.base.errors import OutputError, TraceFormatError
from tfperf.export.anonymize import anonymize, known_words, parts_of
from tfperf.formats.wire.schema import message_class
from tfperf.report.render import render
from tfperf.trace.host.python_frames import is_file_of_package

RUNS = [path for path in sorted(SAMPLES.glob("*/")) if list(path.rglob("*.xplane.pb"))]
SHARED_RUNS = [
    TRACES / name
    for name in (
        "keras_rtx5000/gpu_bs512-20210202-131913",
        "keras_t4/2022_11_04_21_26_12",
        "jax_mi300x/jax_conv_minimal_08",
        "keras_cpu_tf24/prefetch_20210203-124554",
        "cpu_keras3/slow_map",
        "multi_host/keras_healthy/inside",
        "multi_host/parameter_server/remote",
        "multi_host/data_service/inside",
        "xla_reference/captures/tf_keras_fit_jit",
        "xla_reference/captures/jax_flax_optax",
        "xla_reference/tpu_synthetic/tpu.xplane.pb",
        "tpu_v6e/offload",
    )
    if (TRACES / name).exists()
]
_SORTED_BY_NAME = ("rank", "cumulative_self_percent", "cumulative_percent", "cumulative_total_percent")
"""Rows of equal values are in the order of their names, and those are others."""


def values(document: Any) -> Any:
    """A report without its texts, and rows in an order that does not depend on names."""
    if isinstance(document, dict):
        return {key: values(value) for key, value in document.items() if key not in (*_SORTED_BY_NAME, "size_bytes")}
    if isinstance(document, list):
        return sorted(map(values, document), key=lambda item: json.dumps(item, sort_keys=True))
    return "text" if isinstance(document, str) else document


def check_same(path: Path, target: Path) -> None:
    anonymize(path, target)
    original, copy = (json.loads(render(tfperf.load(each).report(), "json")) for each in (path, target))
    found, expected = (
        [(cause["code"], cause["confidence"]) for cause in report["diagnosis"]["causes"]] for report in (copy, original)
    )
    assert found == expected
    assert values(copy) == values(original)


@pytest.mark.parametrize("path", [*RUNS, *SHARED_RUNS], ids=lambda path: path.name)
def test_the_analysis_finds_the_same(path: Path, tmp_path: Path) -> None:
    check_same(path, tmp_path / "copy")


@pytest.mark.parametrize("made", [offload_tpu, tpu_twin], ids=["offload", "twin"])
def test_of_a_made_tpu_profile_the_analysis_finds_the_same(made: Callable[[], bytes], tmp_path: Path) -> None:
    check_same(logdir_of(tmp_path, a=made()), tmp_path / "copy")
    data = next((tmp_path / "copy").rglob("*.xplane.pb")).read_bytes()
    assert HOSTNAME.encode() not in data
    assert b"0a1b2c3d" not in data


def test_of_a_server_the_analysis_finds_the_same(tmp_path: Path) -> None:
    check_same(logdir_of(tmp_path, a=space(server("TfrtModelRun", model_id="secret:3"))), tmp_path / "copy")
    assert b"secret" not in next((tmp_path / "copy").rglob("*.xplane.pb")).read_bytes()


def texts_of(made: Any) -> Iterator[str]:
    """All texts of a message and of those inside it."""
    for declared, value in made.ListFields():
        repeated = value if declared.is_repeated else [value]
        if declared.message_type is not None:
            for each in repeated:
                yield from texts_of(each)
        else:
            yield from (each.decode("utf-8", "replace") for each in repeated if isinstance(each, bytes))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.name)
def test_all_words_that_are_left_are_in_the_list(path: Path, tmp_path: Path) -> None:
    copy = message_class("XSpace").FromString(anonymize(path, tmp_path / "copy").files[0].read_bytes())
    texts = set(texts_of(copy))
    assert any("MatMul" in text for text in texts)
    for text in texts:
        if not (text.startswith("$") and (is_file_of_package(text[1:].partition(":")[0]) or " " in text)):
            left = {word for word in re.findall(r"[^\W\d_]{3,}", text) if word not in known_words()}
            assert all(len(parts_of(word)) > 1 for word in left), text


letters = st.characters(categories=("Lu", "Ll"), max_codepoint=0x17F)
secrets = st.lists(st.text(letters, min_size=4, max_size=12), min_size=12, max_size=12, unique=True)


def named_program(module: str, op: str, file: str, other: str) -> bytes:
    """An HloProto with names in fields that tfperf keeps, and in one that it does not."""
    metadata = message(field(1, b"MatMul"), field(2, op.encode()), field(3, file.encode()))
    config = b'{"known_trip_count":{"n":"4"},"' + other.encode() + b'":1}'
    made = instruction(1, f"{module}.1", "dot", shape(F32, 8), extra=field(7, metadata) + field(43, config))
    return program(computation(module, made), extra=field(14, other.encode()))


@given(secrets)
def test_no_name_survives(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    assume(not any(word in known for word in words for known in known_words()))
    assume(not any(word == part for word in words for part in parts_of(word)[1::2]))
    one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve = words
    assume(not is_file_of_package(f"{five}.py"))
    folder = tmp_path_factory.mktemp("anonymize")
    data = space(
        plane(
            "/host:CPU",
            line(
                two,
                event(f"{three}/{four}_7:MatMul", 0, 10, step_num=1),
                event(f"${five}.py:12 {six}", 1, 2, **{seven: 3, "shape": eight, "hlo_op": ref(nine)}),
                event("plain", 4, 1, blob=one.encode()),
            ),
            stats={"cpu_model": f"{ten} 4"},
            name_stats={"plain": {"Hlo Proto": named_program(eleven, one, two, three)}},
        ),
        hostname=twelve,
        errors=(f"{one}: cannot {two}",),
    )
    logdir = logdir_of(folder, host0=data)
    source = next(logdir.rglob("*.xplane.pb"))
    source.rename(source.with_name("localmachine.xplane.pb"))
    source.parent.rename(source.parent.with_name("localproject"))
    copied = anonymize(logdir, folder / "copy")
    written = copied.files[0].read_bytes()
    assert b"MatMul" in written
    assert b"dot" in written
    for word in words:
        assert word.encode() not in written, word
    assert copied.files[0].relative_to(folder / "copy") == Path("plugins/profile/run/host1.xplane.pb")


def test_hosts_have_the_same_words_and_keep_their_order(tmp_path: Path) -> None:
    def one(name: str) -> bytes:
        return space(host(event(name, 0, 10, step_num=1), event("penguin_name", 1, 1)))

    logdir = logdir_of(tmp_path, b=one("walrus"), a=one("ostrich"))
    copied = anonymize(logdir, tmp_path / "copy")
    assert [file.name for file in copied.files] == ["host1.xplane.pb", "host2.xplane.pb"]
    first, second = (file.read_bytes() for file in copied.files)
    assert b"w1w" in first
    assert b"w1w" not in second
    assert b"w2w_name" in first
    assert b"w2w_name" in second
    assert copied.files[0].parent.name == next(logdir.rglob("*.xplane.pb")).parent.name


def test_nothing_is_replaced_unless_it_is_asked_for(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, a=space(host(event("acme", 0, 10, step_num=1))))
    anonymize(logdir, tmp_path / "copy")
    with pytest.raises(OutputError, match="exists; choose another folder, or pass --force to replace it"):
        anonymize(logdir, tmp_path / "copy")
    anonymize(logdir, tmp_path / "copy", force=True)


def test_the_original_is_never_replaced(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, host1=space(host(event("acme", 0, 10, step_num=1))))
    before = next(logdir.rglob("*.xplane.pb")).read_bytes()
    with pytest.raises(OutputError, match="is the folder of the profile itself"):
        anonymize(logdir, logdir, force=True)
    assert next(logdir.rglob("*.xplane.pb")).read_bytes() == before


def test_a_copy_is_not_mixed_with_another_profile(tmp_path: Path) -> None:
    trace = space(host(event("acme", 0, 10, step_num=1)))
    anonymize(logdir_of(tmp_path / "two", a=trace, b=trace), tmp_path / "copy")
    with pytest.raises(OutputError, match="is a host of another profile"):
        anonymize(logdir_of(tmp_path / "one", a=trace), tmp_path / "copy", force=True)


def test_of_a_damaged_profile_nothing_is_written(tmp_path: Path) -> None:
    whole = space(host(event("acme", 0, 10, step_num=1)))
    logdir = logdir_of(tmp_path, a=whole, b=whole[:-3])
    with pytest.raises(TraceFormatError, match="damaged"):
        anonymize(logdir, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_any_number_of_jobs_writes_the_same(tmp_path: Path) -> None:
    """Words are numbered in the order of hosts; the first host shares one with the second, not with the third."""
    spaces = [
        space(plane("/host:CPU", line("python/3116817", *(event(name, 10 * at, 5) for at, name in enumerate(names)))))
        for names in (("acme", "zorb"), ("quux", "acme", "10.7.1.22"), ("/home/acme_0f3a9b2c/w12345w", "quux"))
    ]
    logdir = logdir_of(tmp_path, a=spaces[0], b=spaces[1], c=spaces[2])
    copies = {}
    for jobs in (1, 3):
        copied = anonymize(logdir, tmp_path / f"copy{jobs}", jobs=jobs)
        copies[jobs] = [path.read_bytes() for path in copied.files]
    assert copies[3] == copies[1]
    assert b"w3w" in copies[3][1]
    assert b"w3w" in copies[3][2]
