"""What a report is built from: the results of the analyzers for one profile."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfperf.sections.functions.eager import Eager
from tfperf.sections.environment.analysis import HostEnvironment
from tfperf.sections.functions.calls import Functions
from tfperf.sections.idle.analysis import Idle
from tfperf.sections.input.analysis import InputPipeline
from tfperf.sections.kernels.analysis import Kernels
from tfperf.sections.memory.analysis import Memory
from tfperf.sections.ops.groups import By
from tfperf.sections.ops.analysis import Ops
from tfperf.sections.tfdata.pipeline import TfData
from tfperf.sections.steps.breakdown import Breakdown
from tfperf.sections.overview.summary import Summary
from tfperf.sections.tfdata.whatif import Outlook
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
