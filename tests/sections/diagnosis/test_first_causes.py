"""The first cause of real traces is the one that people found who read them; see first_causes.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from places import TRACES
from real_runs import analysis_of

from tfperf.sections.diagnosis.cause import Diagnosis
from tfperf.sections.diagnosis.diagnose import sentence_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CAUSES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("first_causes.toml").read_text())
READABLE = [name for name, read in CAUSES.items() if name != "shared/corrupt_tpu"]


def diagnosis_of(name: str, root: Path) -> Diagnosis:
    """Return the diagnosis of a trace; skip where it is not part of this checkout."""
    path = TRACES / name.removeprefix("shared/") if name.startswith("shared/") else root / "sample_traces" / name
    if not path.exists() and path.with_suffix(".xplane.pb").exists():
        path = path.with_suffix(".xplane.pb")
    if not path.exists():
        if TRACES.exists() or not name.startswith("shared/"):
            pytest.fail(f"{path} is gone")
        pytest.skip("test input that is no part of the project is not here")
    found: Diagnosis = analysis_of(path)["diagnosis"]
    return found


def first_of(diagnosis: Diagnosis) -> str:
    """Return the code of the headline's cause: none without one, no_steps where no step was measured."""
    if diagnosis.headline.startswith("No step time was measured"):
        return "no_steps"
    first = next(iter(diagnosis.causes), None)
    return first.code if first is not None and diagnosis.headline == sentence_of(first) else "none"


@pytest.mark.parametrize("name", READABLE)
def test_the_first_cause_is_the_one_that_people_found(name: str, root: Path) -> None:
    read = CAUSES[name]
    diagnosis = diagnosis_of(name, root)
    accepted = {read["first"], read["second"], *read.get("also", ())}
    if "steady" in read:
        accepted = {read["steady"]}
        assert read["first"] in [cause.code for cause in diagnosis.causes]
    if read.get("steps", True) is False:
        accepted = {"no_steps"}
    assert (first_of(diagnosis) in accepted) == ("missed" not in read), diagnosis.headline


@pytest.mark.parametrize(
    "name", [name for name, read in CAUSES.items() if "eval_first" in read and read.get("steps", True)]
)
def test_evaluation_has_a_first_cause_of_its_own(name: str, root: Path) -> None:
    causes = [cause.code for cause in diagnosis_of(name, root).causes if cause.kind.startswith(("eval", "test"))]
    assert (causes or ["none"])[0] == CAUSES[name]["eval_first"]
