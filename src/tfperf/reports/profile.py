"""What a report is built from: the results of the analyzers for one profile."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfperf.analyzers.eager import Eager
from tfperf.analyzers.environment import HostEnvironment
from tfperf.analyzers.functions import Functions
from tfperf.analyzers.idle import Idle
from tfperf.analyzers.input_pipeline import InputPipeline
from tfperf.analyzers.kernels import Kernels
from tfperf.analyzers.memory import Memory
from tfperf.analyzers.op_groups import By
from tfperf.analyzers.ops import Ops
from tfperf.analyzers.pipeline import TfData
from tfperf.analyzers.step_breakdown import Breakdown
from tfperf.analyzers.summary import Summary
from tfperf.analyzers.whatif import Outlook
from tfperf.trace.activities import Attribution


@dataclass(frozen=True)
class View:
    """How a report shows a profile: `top` rows of long tables for people, None: all rows, for programs.

    With `page` people get all rows, to search and turn over: sections that have nothing to say are left out, as with
    `top`. The ops are grouped `by` name, type, scope or layer; `filters` keep the ops that any of them is found in.
    """

    top: int | None = None
    by: By = "op"
    filters: tuple[re.Pattern[str], ...] = ()
    page: bool = False


WHOLE = View()


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
    idle: Idle
    ops: Ops
    kernels: Kernels
    functions: Functions
    eager: Eager
    inputs: tuple[InputPipeline, ...]
    """Of each host."""
    input: InputPipeline
    tfdata: TfData
    outlook: Outlook | None
    memory: Memory
