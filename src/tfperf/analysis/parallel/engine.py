"""The choice of workers for the hosts of a run: none, a pool of processes, a cluster, or any executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tfperf.analysis.many_hosts import (
    FEW,
    MANY_HOSTS,
    MOST_ROWS,
    MOST_STEPS,
    Packed,
    PackedResults,
    by_few,
    combined,
    is_large,
    unpacked,
)
from tfperf.analysis.parallel.outcomes import Analyze, HostOutcome, Told, in_sequence, jobs_for
from tfperf.analysis.registry import HostResults, MissingHost, call, find_section, is_ours
from tfperf.base.errors import StepsNotFoundError, TfperfError, TraceFormatError
from tfperf.base.units import counted
from tfperf.trace.logdir import HostFile, Run
from tfperf.trace.read import Progress

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from tfperf.analysis.parallel.over_hosts import Workers


class Engine(Struct, frozen=True):
    """Where hosts are analyzed: on an executor, else on a cluster, else on `jobs` processes of this machine.

    By default, the number of processes is chosen by the expected time, and small profiles need none.
    """

    jobs: int | None = None
    cluster: str | None = None
    executor: Executor | None = None

    @contextmanager
    def workers(self, files: Sequence[HostFile]) -> Iterator[Workers | None]:
        """Yield the workers for these files; None means that this process does the work itself.

        Raises TfperfError if two of the places are given, or no workers are available.
        """
        if sum(each is not None for each in (self.jobs, self.cluster, self.executor)) > 1:
            raise TfperfError("jobs, cluster and executor are mutually exclusive: pass only one of them")
        if self.jobs is not None and self.jobs < 1:
            raise TfperfError(f"jobs is {self.jobs}, but must be at least 1 (number of processes)")
        jobs = jobs_for(files, self.jobs)
        if jobs == 1 and self.executor is None and self.cluster is None:
            yield None
            return
        from tfperf.analysis.parallel.over_hosts import Workers
        from tfperf.analysis.parallel.worker_pool import WorkerPool

        if self.executor is not None:
            yield Workers(executor=self.executor)
        elif self.cluster is not None:
            from tfperf.analysis.parallel.cluster import connected

            with connected(self.cluster) as workers:
                yield workers
        else:
            with WorkerPool(jobs) as pool:
                yield Workers(executor=pool)


def run_on(workers: Workers | None, analyze: Analyze, files: Sequence[HostFile], told: Told) -> list[HostOutcome]:
    """Analyze hosts; return their outcomes in the order of `files`."""
    if workers is None:
        return in_sequence(analyze, files, told)
    from tfperf.analysis.parallel.over_hosts import over_hosts

    return over_hosts(analyze, files, workers, told)


def analyze_packed(
    analyze: Callable[..., HostResults], file: HostFile, *, progress: Progress | None = None
) -> HostResults:
    """Call `analyze`, shorten the result and pack its sections."""
    results = analyze(file, progress=progress)
    if len(results["steps"].steps) > MOST_STEPS:
        results = results.counting(np.arange(MOST_STEPS))
    short = shortened(results.results)
    return replace(results, results=PackedResults(short), shortened=lacking_rows(results.results, short))


def analyzed_hosts(
    analyze: Callable[..., HostResults], run: Run, engine: Engine, told: Told
) -> tuple[tuple[HostResults, ...], tuple[MissingHost, ...], dict[str, list[Any]]]:
    """Return the results of hosts, those without results, and the parts that workers combined of many hosts.

    Raises TfperfError if no host can be read.
    """
    if len(run.files) > MANY_HOSTS:
        analyze = partial(analyze_packed, analyze)
    with engine.workers(run.files) as workers:
        outcomes = run_on(workers, analyze, run.files, told)
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if len(errors) == len(outcomes):
            if len(errors) == 1:
                raise errors[0]
            if all(isinstance(error, StepsNotFoundError) for error in errors):
                # Helper hosts of a job have no steps at all, which is less informative.
                raise max(errors, key=lambda error: getattr(error, "has_others", False))
            others = counted(len(errors) - 1, "other host")
            raise TraceFormatError(f"{errors[0]}; the {others} of run {run.name} cannot be read either")
        results = tuple(outcome.value for outcome in outcomes if outcome.error is None)
        parts = {} if workers is None or len(results) <= MANY_HOSTS else _combined_on(workers, results)
    missing = tuple(
        MissingHost(file.host, str(outcome.error), isinstance(outcome.error, StepsNotFoundError))
        for file, outcome in zip(run.files, outcomes, strict=True)
        if outcome.error is not None
    )
    return results, missing, parts


_WAVE_BYTES = 128_000_000
"""Maximum number of bytes sent to workers at a time, so that two copies exist only briefly."""


def _combined_on(workers: Workers, hosts: Sequence[HostResults]) -> dict[str, list[Any]]:
    """Have workers combine the large results of many hosts; return the few remaining parts of each section.

    Return no parts if that fails: this process can combine them when a section is needed.
    """
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


Part = Mapping[str, Any]
"""Results of some hosts by section, packed."""


class FewParts(Struct, frozen=True):
    """Parts of the tree that become one: the work of one worker."""

    parts: tuple[Part, ...]
    path: str

    @property
    def size_bytes(self) -> int:
        """Return the total size of the parts."""
        return sum(len(each.data) for part in self.parts for each in part.values() if isinstance(each, Packed))


def combine_few(few: FewParts) -> Part:
    """Combine parts, section by section."""
    sections = dict.fromkeys(section for part in few.parts for section in part)
    results = {}
    for section in sections:
        combine = find_section(section).combine
        assert combine is not None
        results[section] = combined(partial(call, combine), (unpacked(part.get(section)) for part in few.parts))
    return {section: Packed.of(result, section) for section, result in results.items()}


def combined_parts(
    hosts: Sequence[PackedResults], combine_all: Callable[[list[FewParts]], list[Part]]
) -> dict[str, list[Any]]:
    """Combine large results until a few parts are left; return these, packed or not, by section.

    `combine_all` returns the result of `combine_few` for each. Sections of other packages are left out: their errors
    are reported where the section is displayed.
    """
    large = {section for host in hosts for section, each in host.kept.items() if is_large(each)}
    sections = [
        name for name in hosts[0].kept if name in large and is_ours(name) and find_section(name).combines_in_tree
    ]
    if not sections:
        return {}
    parts: list[Part] = [{section: host.kept[section] for section in sections} for host in hosts]
    while len(parts) > FEW:
        groups = by_few(parts)
        parts = combine_all([FewParts(tuple(few), f"part {number} of the hosts") for number, few in enumerate(groups)])
    return {section: [part[section] for part in parts] for section in sections}


def shortened(results: Mapping[str, Any], most: int = MOST_ROWS) -> dict[str, Any]:
    """Return the results of a host; those with more than `most` rows are new objects."""
    specs = {section: find_section(section) for section, result in results.items() if result is not None}
    short = {section: call(spec.shorten, results[section], most) for section, spec in specs.items() if spec.shorten}
    return {**results, **short}


def lacking_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the sections whose tables lost rows when their results were shortened."""
    changed = (section for section, result in before.items() if after[section] is not result)
    return tuple(section for section in changed if find_section(section).tables)
