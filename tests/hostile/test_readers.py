"""Good files damaged at random: each reader ends with all that is there, or with an error of one line."""

from __future__ import annotations

from pathlib import Path
from random import Random

import mutants
import pytest
from hostile.readers import READERS, ends_well
from hypothesis import given, settings
from hypothesis import strategies as st

EVERY_SAMPLE = [sample for reader in READERS.values() for sample in reader.samples]
OPERATORS = st.lists(st.sampled_from([*mutants.ON_BYTES]), min_size=1, max_size=3)


APART = {"entry of a checkpoint", "list of checkpoints"}
"""Readers of what fits no other part of a file, or is not there."""
BY_OTHERS = {"weights"}
"""What HDF5 reads by itself: damaged bytes are not ours to survive."""


@pytest.mark.parametrize("reader", sorted(READERS.keys() - APART))
def test_good_files_are_read(reader: str, tmp_path: Path) -> None:
    assert {ends_well(reader, tmp_path, sample) for sample in READERS[reader].samples} == {""}


@pytest.mark.parametrize("decoder", ["ptars", "protobuf"])
@pytest.mark.parametrize("reader", sorted(READERS.keys() - BY_OTHERS))
@settings(derandomize=True)
@given(random=st.randoms(use_true_random=False), operators=OPERATORS)
def test_damaged_files_end_well(
    reader: str, decoder: str, random: Random, operators: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = random.choice(READERS[reader].samples)
    for name in operators:
        data = mutants.ON_BYTES[name](random, data, EVERY_SAMPLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFPERF_DECODER", decoder)
        ends_well(reader, tmp_path_factory.mktemp("damaged"), data)
