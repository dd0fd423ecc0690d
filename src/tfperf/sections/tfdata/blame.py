"""Which stage those who wait for input wait for, also where the trace does not hold the whole pipeline."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tfperf.base.units import format_percent
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.pipeline import PASSING_ON, Pipeline, StageStats
from tfperf.sections.tfdata.stage_rules import in_code

Reason = Literal["work", "host_pipeline", "to_device", "workers", "hand_over"]
_HANDING_OVER = (*PASSING_ON, "Prefetch", "ParallelInterleave", "LegacyParallelInterleave")
_LEAST_SHARE = 0.1
"""Of a stage that is waited for less of the time nobody can say that it is what the program waits for."""


class Blame(Struct, frozen=True, kw_only=True):
    """The stage that is waited for most."""

    host: str
    pipeline: str
    stage: str
    """TensorFlow's name of it."""
    code: str
    """What it is called in the program."""
    waited_ps: int
    """How long it is waited for in the capture."""
    share: float
    """That time / the time in which anyone waits for the pipeline, 0 to 1."""
    reason: Reason
    """work: it works; host_pipeline: it hands on what a pipeline of the host makes, of which nothing is known;
    to_device: likewise, but the stages on the host hardly work meanwhile; workers: it waits for those of a data
    service; hand_over: what is waited for is neither work of it nor of another stage."""

    @property
    def why(self) -> str:
        """Return the reason as a clause that follows the name of the stage; empty if it works."""
        return _REASONS[self.reason]

    @property
    def text(self) -> str:
        """Return all of this as a sentence."""
        return f"{format_percent(100.0 * self.share)}% of the waiting is for {self.stage}{self.why}."


def blamed_stage(tfdata: TfData) -> Blame | None:
    """Return the stage that is waited for most; None if nobody waits long, or it is unknown for what.

    It is one of the main pipeline. Where the trace holds only what hands elements to devices, or the stages on the host
    account for less of the waiting, it is one of those.
    """
    main = tfdata.main
    devices = [each for each in tfdata.pipelines if each.is_device and each.blocking is not None]
    if main is not None:
        devices = [each for each in devices if each.host == main.host]
    device = max(devices, key=lambda each: each.waited_ps, default=None)
    pipeline = main if main is not None else device
    if main is not None and device is not None and main.is_handed_on:
        on_host_ps = sum(stage.blocked_ps for stage in main.stages)
        pipeline = main if 2 * on_host_ps >= _blocked_ps(device) else device
    if pipeline is None or pipeline.blocking is None or not pipeline.waited_ps:
        return None
    stage = pipeline.stages[pipeline.blocking]
    share, reason = stage.blocked_ps / pipeline.waited_ps, _reason(pipeline, stage, has_host=main is not None)
    if share < _LEAST_SHARE:
        return None
    return Blame(
        host=pipeline.host,
        pipeline=pipeline.name,
        stage=stage.name,
        code=in_code(stage.name),
        waited_ps=stage.blocked_ps,
        share=share,
        reason=reason,
    )


def _blocked_ps(pipeline: Pipeline) -> int:
    return 0 if pipeline.blocking is None else pipeline.stages[pipeline.blocking].blocked_ps


_REASONS: dict[Reason, str] = {
    "work": "",
    "host_pipeline": (
        ", which asks the pipeline on the host for each batch that the device is given: that pipeline, or the way from "
        "it to the device, is slow, and the trace holds no call of its stages"
    ),
    "to_device": ", which asks the pipeline on the host, whose stages hardly work then: the way to the device is slow",
    "workers": ", which waits for the workers of the data service",
    "hand_over": ", while no stage works: threads wait for a core, or for each other",
}


def _reason(pipeline: Pipeline, stage: StageStats, *, has_host: bool) -> Reason:
    if stage.name == "Generator" and pipeline.is_device:
        return "to_device" if has_host else "host_pipeline"
    if stage.name.startswith("DataService"):
        return "workers"
    return "hand_over" if stage.name.startswith(_HANDING_OVER) else "work"
