"""From evidence to a batch size: what agrees, what contradicts, and what is not enough."""

from __future__ import annotations

import pytest

from tfperf.sections.batch.analysis import Conclusion, Evidence, OpOutputs, Replicas, Weighing

ONE = Replicas(1, 1)
SILENT = OpOutputs({}, None, frozenset())
STAGE = Evidence(source="batch stage", examples=32, text="stage BatchV2 of the pipeline", is_clear=True)
BEHIND_MAP = Evidence(
    source="batch stage",
    examples=32,
    text="stage BatchV2 of the pipeline, behind a map",
    is_clear=True,
    may_change=True,
)
ELEMENTS = Evidence(source="elements", examples=32, text="elements of shape [32,64] [32]", is_clear=True)
SINGLE = Evidence(source="elements", examples=32, text="elements of shape [32,64]")
MARKER = Evidence(source="marker", examples=32, text="batch_size of the step marker", is_of_all=True)
CAPTURE = Evidence(source="capture", examples=32, text="what Keras was told", is_of_all=True)


def layers(*outputs: tuple[int, int]) -> OpOutputs:
    """Layers with these leading dimensions and ranks."""
    return OpOutputs({f"layer{number}": output for number, output in enumerate(outputs)}, 1, frozenset())


def conclude(*evidence: Evidence, ops: OpOutputs = SILENT, replicas: Replicas = ONE) -> Conclusion:
    return Weighing(evidence, ops, replicas).conclusion()


@pytest.mark.parametrize(
    ("evidence", "ops", "confidence"),
    [
        ([STAGE], SILENT, "high"),
        ([BEHIND_MAP], SILENT, "medium"),
        ([BEHIND_MAP], layers((32, 2)), "high"),
        ([BEHIND_MAP, MARKER], SILENT, "high"),
        ([ELEMENTS], SILENT, "medium"),
        ([ELEMENTS, STAGE], SILENT, "high"),
        ([CAPTURE], SILENT, "high"),
        ([MARKER], SILENT, "medium"),
        ([SINGLE], layers((32, 4), (32, 2)), "medium"),
        ([], layers((32, 4), (32, 2)), "low"),
    ],
)
def test_it_is_32_and_so_sure(evidence: list[Evidence], ops: OpOutputs, confidence: str) -> None:
    found = conclude(*evidence, ops=ops)
    assert (found.size, found.per_replica, found.confidence, found.reason) == (32, 32, confidence, "")


@pytest.mark.parametrize(
    ("evidence", "ops", "words"),
    [
        ([], SILENT, "no shape in the trace"),
        ([SINGLE], SILENT, "elements have one part"),
        ([], layers((32, 4)), "only outputs of ops"),
        ([], layers((32, 4), (64, 2)), "only outputs of ops"),
        ([], layers((1536, 2), (1536, 2), (1536, 2)), "only outputs of ops"),  # batches times words, say
        ([SINGLE], layers((64, 4), (64, 2)), "disagrees"),
        ([STAGE, Evidence(source="elements", examples=16, text="b", is_clear=True)], SILENT, "disagrees"),
        ([STAGE], layers((64, 4), (64, 2), (64, 1)), "disagrees"),
        ([STAGE, Evidence(source="capture", examples=40, text="b", is_of_all=True)], SILENT, "disagrees"),
        ([STAGE, Evidence(source="marker", examples=40, text="b", is_of_all=True)], SILENT, "disagrees"),
        ([MARKER], layers((64, 4), (64, 2), (64, 1)), "disagrees"),
    ],
)
def test_it_is_unknown_and_why(evidence: list[Evidence], ops: OpOutputs, words: str) -> None:
    found = conclude(*evidence, ops=ops)
    assert (found.size, found.per_replica, found.confidence) == (None, None, "none")
    assert words in found.reason


def test_what_a_map_made_counts_and_not_what_it_got() -> None:
    """It joined three versions of each batch."""
    ahead = Evidence(source="batch stage", examples=32, text="stage", is_clear=True, may_change=True)
    behind = Evidence(source="elements", examples=96, text="elements", is_clear=True)
    assert (conclude(ahead, behind).size, conclude(ahead, behind).confidence) == (96, "medium")


def test_candidates_that_disagree_are_all_named() -> None:
    other = Evidence(source="copied input", examples=16, text="a device got [16,8]", is_clear=True)
    assert conclude(STAGE, other).reason == (
        "what shows it disagrees (32: stage BatchV2 of the pipeline; 16: a device got [16,8])"
    )


def test_layers_that_fold_other_dimensions_in_do_not_contradict() -> None:
    """Of a transformer, some work on batches times words."""
    assert conclude(STAGE, ops=layers((32, 3), (1536, 2), (1536, 2), (1536, 2))).size == 32


def test_replicas_add_up() -> None:
    assert conclude(ELEMENTS, replicas=Replicas(4, 4)).size == 128
    assert conclude(ELEMENTS, replicas=Replicas(4, 4)).per_replica == 32


def test_what_keras_was_told_is_shared_by_all_replicas() -> None:
    found = conclude(CAPTURE, replicas=Replicas(2, 8))
    assert (found.size, found.per_replica) == (8, 4), "two of eight replicas are here"


def test_a_marker_may_be_about_all_workers() -> None:
    """Keras 2 on two hosts: each takes half of the batch that fit was given."""
    assert conclude(Evidence(source="elements", examples=16, text="", is_clear=True), MARKER).size == 16


def test_without_the_number_of_replicas_only_that_of_one_is_known() -> None:
    found = conclude(ELEMENTS, replicas=Replicas(None, None, "some left no events"))
    assert (found.size, found.per_replica) == (None, 32)
    assert found.reason == "it is 32 for each replica, but how many there are is unknown: some left no events"


def test_what_keras_was_told_needs_no_number_of_replicas() -> None:
    found = conclude(MARKER, replicas=Replicas(None, None, "some left no events"))
    assert (found.size, found.per_replica, found.confidence) == (32, None, "medium")


def test_a_batch_that_replicas_cannot_share_evenly_is_unknown() -> None:
    assert "no multiple" in conclude(MARKER, replicas=Replicas(3, 3)).reason
