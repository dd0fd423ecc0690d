"""The hosts of a run of several, analyzed wherever that is done; and the large results of many, combined there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from tfperf.analysis.many_hosts import MANY_HOSTS, MOST_STEPS, PackedResults, lacking_rows, shortened
from tfperf.analysis.missing import MissingHost
from tfperf.analysis.parallel.engine import Engine, run_on
from tfperf.analysis.parallel.outcomes import Told
from tfperf.analysis.results import HostResults
from tfperf.base.errors import TfperfError, TraceFormatError
from tfperf.base.units import counted
from tfperf.trace.logdir import HostFile, Run
from tfperf.trace.read import Progress

if TYPE_CHECKING:
    from tfperf.analysis.host_tree import FewParts, Part
    from tfperf.analysis.parallel.over_hosts import Workers


def analyze_packed(
    analyze: Callable[..., HostResults], file: HostFile, *, progress: Progress | None = None
) -> HostResults:
    """Do what `analyze` does; what could be of any size is shortened, and the large results are packed."""
    results = analyze(file, progress=progress)
    if len(results["steps"].steps) > MOST_STEPS:
        results = results.counting(np.arange(MOST_STEPS))
    short = shortened(results.results)
    return replace(results, results=PackedResults(short), shortened=lacking_rows(results.results, short))


def analyzed_hosts(
    analyze: Callable[..., HostResults], run: Run, engine: Engine, told: Told
) -> tuple[tuple[HostResults, ...], tuple[MissingHost, ...], dict[str, list[Any]]]:
    """Return the results of the hosts that can be read, the others, and what workers combined of many hosts.

    Raises TfperfError if none can be read.
    """
    if len(run.files) > MANY_HOSTS:
        analyze = partial(analyze_packed, analyze)
    with engine.workers(run.files) as workers:
        outcomes = run_on(workers, analyze, run.files, told)
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if len(errors) == len(outcomes):
            if len(errors) == 1:
                raise errors[0]
            others = counted(len(errors) - 1, "other host")
            raise TraceFormatError(f"{errors[0]}; nor can the {others} of run {run.name} be read")
        results = tuple(outcome.value for outcome in outcomes if outcome.error is None)
        parts = {} if workers is None or len(results) <= MANY_HOSTS else _combined_on(workers, results)
    missing = tuple(
        MissingHost(file.host, str(outcome.error))
        for file, outcome in zip(run.files, outcomes, strict=True)
        if outcome.error is not None
    )
    return results, missing, parts


_WAVE_BYTES = 128_000_000
"""What is sent to workers at a time, so that it lies nowhere twice for long."""


def _combined_on(workers: Workers, hosts: Sequence[HostResults]) -> dict[str, list[Any]]:
    """Have workers combine the large results of many hosts; return the few parts of each section that are left.

    Nothing is left if that fails: this process can do it too, when a section is asked for.
    """
    from tfperf.analysis.host_tree import combine_few, combined_parts
    from tfperf.analysis.parallel.over_hosts import over_hosts

    def combine_all(few: Sequence[FewParts]) -> list[Part]:
        wave_of = [before // _WAVE_BYTES for before in accumulate((each.size_bytes for each in few), initial=0)]
        parts: list[Part] = []
        for _, wave in groupby(zip(wave_of, few, strict=False), key=itemgetter(0)):
            for outcome in over_hosts(combine_few, [each for _, each in wave], workers, Told()):
                if outcome.error is not None:
                    raise outcome.error
                parts.append(outcome.value)
        return parts

    packed = [host.results for host in hosts if isinstance(host.results, PackedResults)]
    try:
        return combined_parts(packed, combine_all)
    except TfperfError:
        return {}
