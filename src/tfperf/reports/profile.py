"""What a report is built from: the results of the analyzers for one profile."""

from __future__ import annotations

from dataclasses import dataclass

from tfperf.analyzers.eager import Eager
from tfperf.analyzers.environment import HostEnvironment
from tfperf.analyzers.functions import Functions
from tfperf.analyzers.input_pipeline import InputPipeline
from tfperf.analyzers.memory import Memory
from tfperf.analyzers.ops import Ops
from tfperf.analyzers.pipeline import TfData
from tfperf.analyzers.step_breakdown import Breakdown
from tfperf.analyzers.summary import Summary
from tfperf.analyzers.whatif import Outlook
from tfperf.trace.activities import Attribution


@dataclass(frozen=True)
class Profile:
    """Results over all hosts, and those of each host in the order of `environments`."""

    run_name: str
    folder: str
    attribution: Attribution
    environments: tuple[HostEnvironment, ...]
    breakdowns: tuple[Breakdown, ...]
    gaps: tuple[tuple[str, ...], ...]
    steps: Breakdown
    overview: Summary
    ops: Ops
    functions: Functions
    eager: Eager
    inputs: tuple[InputPipeline, ...]
    """Of each host."""
    input: InputPipeline
    tfdata: TfData
    outlook: Outlook | None
    memory: Memory
