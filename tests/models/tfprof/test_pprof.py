"""The code view for pprof: its sums are those of the view, and pprof itself opens it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfprof_builders import CPU, REFERENCE, model, node, op_log, ran, reference_model, run_metadata

from tfperf.formats.models.input_file import TfprofInputError
from tfperf.formats.wire.schema import Schema
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import PLACE, Options, options_from
from tfperf.models.tfprof.outputs import NOT_SHOWN, UNITS, pprof_bytes
from tfperf.models.tfprof.views import show_tree

PUBLISHED = Schema(
    "tests.pprof",
    {
        "Profile": (
            "sample_type 1 []ValueType, sample 2 []Sample, location 4 []Location, function 5 []Function, "
            "string_table 6 []string, time_nanos 9 int64, duration_nanos 10 int64, comment 13 []int64, "
            "default_sample_type 14 int64"
        ),
        "ValueType": "type 1 int64, unit 2 int64",
        "Sample": "location_id 1 []uint64, value 2 []int64, label 3 []Label",
        "Label": "key 1 int64, str 2 int64",
        "Location": "id 1 uint64, line 4 []Line",
        "Line": "function_id 1 uint64, line 2 int64",
        "Function": "id 1 uint64, name 2 int64, system_name 3 int64, filename 4 int64",
    },
)
"""The messages of pprof's `profile.proto`, so far as these tests read them."""


class Decoded:
    """A profile as pprof would show it."""

    def __init__(self, data: bytes) -> None:
        self.message: Any = PUBLISHED.message_class("Profile")()
        self.message.ParseFromString(gzip.decompress(data))
        self.text = [*self.message.string_table]
        self.kinds = [(self.text[kind.type], self.text[kind.unit]) for kind in self.message.sample_type]
        self._locations = {location.id: location for location in self.message.location}
        self._functions = {function.id: function for function in self.message.function}

    def sums(self) -> dict[str, int]:
        """Return the sum of the samples of each kind."""
        return {
            name: sum(sample.value[place] for sample in self.message.sample)
            for place, (name, _) in enumerate(self.kinds)
        }

    def nodes(self, kind: str) -> dict[str, int]:
        """Return what the samples of each node add up to."""
        place = [name for name, _ in self.kinds].index(kind)
        return {self.labels(sample)[0]: sample.value[place] for sample in self.message.sample}

    def labels(self, sample: Any) -> list[str]:
        return [self.text[label.str] for label in sample.label]

    def stack(self, name: str) -> list[tuple[str, str, int]]:
        """Return function, file and line of the frames of a node, innermost first."""
        sample = next(sample for sample in self.message.sample if self.labels(sample)[0] == name)
        lines = [line for number in sample.location_id for line in self._locations[number].line]
        functions = [self._functions[line.function_id] for line in lines]
        return [
            (self.text[function.name], self.text[function.filename], line.line)
            for function, line in zip(functions, lines, strict=True)
        ]


def options(**given: Any) -> Options:
    return options_from({"max_depth": 100, **given})


def small_model(folder: Path) -> Model:
    """A layer that is called from two lines, its gradient, and a node that no code built."""
    main = ("work/main.py", 3, "<module>")
    nodes = [node(name, "MatMul") for name in ("a", "b", "gradients/a_grad/MatMul", "alone")]
    steps = {
        5: run_metadata({CPU: [ran("a", 1000, 30, memory=64), ran("b", 1030, 5), ran("alone", 1035, 1)]}),
        9: run_metadata({CPU: [ran("a", 2000, 50), ran("gradients/a_grad/MatMul", 2050, 100)]}),
    }
    log: dict[str, dict[str, Any]] = {
        "a": {"float_ops": 7, "stack": [main, ("work/nn.py", 7, "a_function_with_a_long_name")]},
        "b": {"stack": [main]},
        "gradients/a_grad/MatMul": {"stack": [main, ("lib/gradients.py", 1, "gradients")]},
    }
    return model(folder, nodes, steps, op_log(log))


@pytest.fixture
def small(tmp_path: Path) -> Model:
    return small_model(tmp_path)


def test_a_small_profile(small: Model) -> None:
    profile = Decoded(pprof_bytes(small, options(select=["micros", "device", "bytes", "float_ops"], step=5)))
    assert profile.kinds == [("nodes", "count"), ("micros", "microseconds"), ("bytes", "bytes"), ("float_ops", "count")]
    assert profile.sums() == {"nodes": 3, "micros": 35, "bytes": 64, "float_ops": 7}
    assert profile.text[profile.message.default_sample_type] == "micros"
    assert profile.stack("a") == [
        ("nn:a_function_with_a_long_name", "work/nn.py", 7),
        ("main:<module>", "work/main.py", 3),
    ]
    assert profile.stack("b") == [("main:<module>", "work/main.py", 3)]
    assert (profile.message.time_nanos, profile.message.duration_nanos) == (1_000_000, 36_000)
    assert [profile.text[number] for number in profile.message.comment] == ["tfprof code view, step 5"]


def test_a_mean_and_a_gradient(small: Model) -> None:
    profile = Decoded(pprof_bytes(small, options(select=["cpu_micros", "micros"], order_by="micros")))
    assert profile.sums() == {"nodes": 3, "cpu_micros": 145, "micros": 145}
    assert profile.text[profile.message.default_sample_type] == "micros"
    # A gradient stands where its forward node does.
    assert profile.stack("gradients/a_grad/MatMul") == [
        ("nn:a_function_with_a_long_name (gradient)", "work/nn.py", 7),
        ("main:<module> (gradient)", "work/main.py", 3),
    ]
    assert (profile.message.time_nanos, profile.message.duration_nanos) == (1_000_000, 93_000)


def test_what_is_not_shown_stays_with_the_frame_above(small: Model) -> None:
    hidden = Decoded(pprof_bytes(small, options(select=["micros"], step=5, hide_name_regexes=["nn.py.*"])))
    assert hidden.stack("a") == hidden.stack("b") == [("main:<module>", "work/main.py", 3)]
    cut = Decoded(pprof_bytes(small, options(select=["micros"], step=5, max_depth=1)))
    assert cut.stack("a") == [(NOT_SHOWN, "", 0)]
    assert hidden.sums() == cut.sums() == {"nodes": 3, "micros": 35}


def test_frames_that_look_the_same_have_only_what_they_share(tmp_path: Path) -> None:
    log = {
        "a": {"stack": [("one/x.py", 3, "a_function_with_a_long_name")]},
        "b": {"stack": [("two/x.py", 3, "a_function_with_a_name")]},
    }
    of = model(tmp_path, [node("a", "Op"), node("b", "Op")], {}, op_log(log))
    profile = Decoded(pprof_bytes(of, options(select=["params"])))
    assert profile.stack("a") == profile.stack("b") == [("x:a_function_with_a...", "x.py", 3)]
    assert (profile.message.time_nanos, profile.message.duration_nanos) == (0, 0)


@pytest.mark.parametrize(
    ("given", "view", "message"),
    [
        ({"select": ["device"]}, "code", "pprof requires a value to sum: select one or more of micros"),
        ({"step": 6}, "code", "step 6 was not recorded: use one of 5, 9, or -1 for their mean"),
        ({}, "op", "the op view has no pprof output: use the code view"),
        ({}, "graph", "the graph view has no pprof output: use the code view"),
    ],
)
def test_what_cannot_be_a_profile(small: Model, given: dict[str, Any], view: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pprof_bytes(small, options(**given), view)


def test_a_model_without_stacks(tmp_path: Path) -> None:
    of = model(tmp_path, [node("a", "Op")])
    with pytest.raises(TfprofInputError, match="pass the op log with --op-log"):
        pprof_bytes(of, options())


@given(
    depth=st.integers(0, 4),
    least=st.integers(0, 60),
    hidden=st.sampled_from(["", "nn.*", ".*gradient.*", ".*"]),
    started=st.sampled_from([".*", "nn.*", "none"]),
    step=st.sampled_from([-1, 5, 9]),
)
def test_sums_are_those_of_the_view_whatever_is_shown(
    tmp_path_factory: pytest.TempPathFactory, depth: int, least: int, hidden: str, started: str, step: int
) -> None:
    of = small_model(tmp_path_factory.mktemp("model"))
    asked = options(
        select=[*UNITS],
        max_depth=depth,
        min_micros=least,
        hide_name_regexes=[hidden],
        start_name_regexes=[started],
        step=step,
    )
    profile, root = Decoded(pprof_bytes(of, asked)), show_tree(of, "code", asked).root_total
    assert profile.sums() == {"nodes": 3} | {name: int(root[PLACE[name]]) for name in UNITS}
    assert all(sample.location_id for sample in profile.message.sample)


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the profiles of the reference are not beside the project")
@pytest.mark.parametrize("file", [f"{name}.pprof.pb.gz" for name in (*UNITS, "micros_avg")])
def test_profiles_of_the_reference(file: str) -> None:
    kind, step = ("micros", -1) if "avg" in file else (file.partition(".")[0], 70)
    theirs = Decoded((REFERENCE / "mnist" / f"code_{file}").read_bytes())
    ours = Decoded(pprof_bytes(reference_model("mnist"), options(select=[kind], step=step)))
    assert ours.nodes(kind) == theirs.nodes(kind)
    assert ours.sums()[kind] == theirs.sums()[kind]
    assert theirs.kinds[1] == ours.kinds[1]
    # The reference gives a frame the line of its caller, and leaves out the outermost.
    name = "hidden1/Relu"
    assert [function for function, _, _ in theirs.stack(name)] == [function for function, _, _ in ours.stack(name)[:-1]]
    assert [line for _, _, line in theirs.stack(name)] == [line for _, _, line in ours.stack(name)[1:]]
