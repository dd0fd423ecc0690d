"""What the order of a file and its numbers do not say changes no figure, no row and no sentence.

With `TFPERF_EVERY_TRACE=1` in the environment, all shared traces are tried.

A profiler writes planes, lines, names and stats as its hash tables hold them, threads as they come, and events as
buffers are flushed. Three orders mean something, and stay:

- of events of a line with the same start and duration: the first one is the parent;
- of several stats of an event with the same name: the last one counts;
- of hosts, by name: names decide where figures are equal.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from places import SAMPLES, TRACES
from synthetic_gpu import synthetic_gpu
from synthetic_tpu import offload_tpu

import tfperf
from tfperf.formats.wire import schema
from tfperf.report.render import RenderOptions, render
from tfperf.trace.host.activities import Attribution

Job = Mapping[str, bytes]
"""The files of a run, by host."""
Change = Callable[[Any, Random], None]
"""Changes an XSpace in place."""

ATTRIBUTIONS: tuple[Attribution, ...] = ("corrected", "tensorflow")
PROGRAM_PLANE = b"/host:metadata"
SHIFT_NS = 123_456_789
SESSION_PLANE = b"Task Environment"
_ON_CLOCK = ("start_ms", "time_ms", "peak_ms")
"""Keys of times on the clock of the trace."""
_OF_FILES = ("size_bytes",)
"""Keys of what is true of a file and not of what it says."""


def shuffle_planes(space: Any, random: Random) -> None:
    """Put the planes in another order."""
    _replace(space.planes, random.sample(space.planes, len(space.planes)))


def shuffle_lines(space: Any, random: Random) -> None:
    """Put the lines of each plane in another order."""
    for plane in space.planes:
        _replace(plane.lines, random.sample(plane.lines, len(plane.lines)))


def shuffle_events(space: Any, random: Random) -> None:
    """Put the events of each line in another order; those with the same start and duration keep theirs."""
    for line in _lines(space):
        _shuffle(line.events, _time_of, random)


def shuffle_stats(space: Any, random: Random) -> None:
    """Put the stats of each event, name and plane in another order; those with the same name keep theirs."""
    for stats in _lists_of_stats(space):
        _shuffle(stats, lambda stat: stat.metadata_id, random)


def _shuffle(messages: Any, key_of: Callable[[Any], Any], random: Random) -> None:
    keys = [key_of(message) for message in messages]
    random.shuffle(keys)
    alike = defaultdict(list)
    for message in reversed(messages):
        alike[key_of(message)].append(message)
    _replace(messages, [alike[key].pop() for key in keys])


def renumber(space: Any, random: Random) -> None:
    """Give names of events and of stats other ids and another order.

    In the plane of programs the id of a name is that of a program.
    """
    for plane in space.planes:
        events, stats = (
            {
                entry.key: id
                for entry, id in zip(names, random.sample(range(1, 4 * len(names) + 1), len(names)), strict=True)
            }
            for names in (plane.event_metadata, plane.stat_metadata)
        )
        if plane.name != PROGRAM_PLANE:
            for entry in plane.event_metadata:
                entry.key = entry.value.id = events[entry.key]
                entry.value.child_id[:] = [events.get(child, child) for child in entry.value.child_id]
            for line in plane.lines:
                for event in line.events:
                    event.metadata_id = events.get(event.metadata_id, 4 * len(events) + 1)
        for entry in plane.stat_metadata:
            entry.key = entry.value.id = stats[entry.key]
        for stat in (stat for listed in _lists_of_stats(plane) for stat in listed):
            stat.metadata_id = stats.get(stat.metadata_id, 4 * len(stats) + 1)
            if stat.WhichOneof("value") == "ref_value":
                stat.ref_value = stats.get(stat.ref_value, 4 * len(stats) + 1)
        for names in (plane.event_metadata, plane.stat_metadata):
            _replace(names, random.sample(names, len(names)))


def split_lines(space: Any, random: Random) -> None:
    """Write each line as several with its id and name; events with the same start and duration stay together."""
    for plane in space.planes:
        lines = []
        for line in plane.lines:
            parts = [schema.message_class("XLine")() for _ in range(random.randint(1, 3))]
            place: dict[tuple[int, int], Any] = {}
            for part in parts:
                part.CopyFrom(line)
                del part.events[:]
            for event in line.events:
                place.setdefault(_time_of(event), random.choice(parts)).events.add().CopyFrom(event)
            lines += parts
        _replace(plane.lines, lines)


CHANGES: Mapping[str, Change] = {
    each.__name__: each
    for each in (shuffle_planes, shuffle_lines, shuffle_events, shuffle_stats, renumber, split_lines)
}


def _replace(repeated: Any, messages: Sequence[Any]) -> None:
    copies = []
    for message in messages:
        copies.append(type(message)())
        copies[-1].CopyFrom(message)
    del repeated[:]
    repeated.extend(copies)


def _lines(space: Any) -> Iterator[Any]:
    return (line for plane in space.planes for line in plane.lines)


def _time_of(event: Any) -> tuple[int, int]:
    return event.offset_ps, event.duration_ps


def _lists_of_stats(message: Any) -> Iterator[Any]:
    for plane in message.planes if hasattr(message, "planes") else [message]:
        yield plane.stats
        yield from (entry.value.stats for entry in plane.event_metadata)
        yield from (event.stats for line in plane.lines for event in line.events)


# --- runs and answers ---


def edited(job: Job, edit: Callable[[Any], object], prefix: str = "") -> Job:
    """Return a run whose spaces are edited in place, and whose hosts may have other names."""
    files = {}
    for host, data in job.items():
        space = schema.message_class("XSpace").FromString(data)
        edit(space)
        files[prefix + host] = space.SerializeToString()
    return files


def changed(job: Job, changes: Sequence[str], seed: int) -> Job:
    """Return a run whose files are changed."""
    random = Random(seed)
    return edited(job, lambda space: [CHANGES[change](space, random) for change in changes])


def renamed(job: Job, prefix: str) -> Job:
    """Return a run whose hosts have other names, in the same order."""

    def rename(space: Any) -> None:
        space.hostnames[:] = [prefix.encode() + name for name in space.hostnames]

    return edited(job, rename, prefix)


def shifted(job: Job, by_ns: int) -> Job:
    """Return a run whose clocks began earlier, without what says when: the profiler began where the clock does."""

    def shift(space: Any) -> None:
        _replace(space.planes, [plane for plane in space.planes if plane.name != SESSION_PLANE])
        for line in _lines(space):
            line.timestamp_ns += by_ns

    return edited(job, shift)


def answer(job: Job, attribution: Attribution) -> Any:
    """Return the whole JSON of a run, without what is true of its files only."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "run")
        folder.mkdir()
        for host, data in job.items():
            Path(folder, f"{host}.xplane.pb").write_bytes(data)
        text = render(tfperf.load(folder, attribution=attribution).report(), "json", RenderOptions())
    whole = text.replace(parent, "PARENT")
    return json.loads(whole, object_pairs_hook=lambda pairs: {key: each for key, each in pairs if key not in _OF_FILES})


def on_clock(document: Any, by_ns: int, key: str = "") -> Any:
    """Return an answer as a clock that began earlier gives it, without the sentence that says where it began."""
    if isinstance(document, dict):
        return {key: on_clock(value, by_ns, key) for key, value in document.items()}
    if isinstance(document, list):
        return [on_clock(value, by_ns, key) for value in document]
    if isinstance(document, str):
        return re.sub(r" ?Times are on the clock of the trace.*? ms[.]", "", document)
    return round(document * 1e9) + by_ns * 1000 if key in _ON_CLOCK and document is not None else document


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the paths where two documents differ, with what they say there."""
    if isinstance(one, dict) and isinstance(other, dict) and [*one] == [*other]:
        for key in one:
            yield from differences(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{path}[{place}]")
    elif one != other:
        yield f"{path}: {str(one)[:150]} | {str(other)[:150]}"


def job_of(folder: Path) -> Job:
    """Return the files of a folder by host."""
    return {path.name.removesuffix(".xplane.pb"): path.read_bytes() for path in sorted(folder.glob("*.xplane.pb"))}


# --- the tests ---


def _jobs() -> dict[str, Job]:
    samples = {path.parents[3].name: path.parent for path in sorted(SAMPLES.rglob("*.xplane.pb"))}
    some = ("jax_mi300x/jax08_gemm", "multi_host/jax_2/inside/plugins/profile/2026_11_22_02_32_53")
    every = {path.parent for path in TRACES.rglob("*.xplane.pb") if "corrupt_tpu" not in path.parts}
    shared = sorted(every) if "TFPERF_EVERY_TRACE" in os.environ else filter(Path.exists, map(TRACES.joinpath, some))
    folders = samples | {folder.relative_to(TRACES).as_posix(): folder for folder in shared}
    made = {"synthetic GPU": {"host": synthetic_gpu()}, "synthetic TPU": {"host": offload_tpu()}}
    hosts = {folder: next(iter(job_of(samples[folder]).values())) for folder in ("input_fixed", "custom_loop")}
    return {name: job_of(folder) for name, folder in folders.items()} | made | {"two hosts": hosts}


JOBS = _jobs()


@cache
def whole_of(name: str, attribution: Attribution) -> Any:
    """Return the answer of a job as it is, which no test changes."""
    return answer(JOBS[name], attribution)


@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=1)
@example(changes=[*CHANGES], seed=0, attribution="corrected")
@example(changes=[*CHANGES], seed=1, attribution="tensorflow")
@given(
    changes=st.lists(st.sampled_from([*CHANGES]), min_size=1, unique=True),
    seed=st.integers(2, 1 << 32),
    attribution=st.sampled_from(ATTRIBUTIONS),
)
def test_what_means_nothing_changes_nothing(name: str, changes: list[str], seed: int, attribution: Attribution) -> None:
    answered = answer(changed(JOBS[name], changes, seed), attribution)
    assert [*differences(whole_of(name, attribution), answered)] == []


@pytest.mark.parametrize("attribution", ATTRIBUTIONS)
@pytest.mark.parametrize("name", ["two hosts", "synthetic TPU"])
def test_names_of_hosts_change_nothing_but_names(name: str, attribution: Attribution) -> None:
    one, other = (answer(renamed(JOBS[name], prefix), attribution) for prefix in ("ALPHA-", "OMEGA-"))
    assert [*differences(json.loads(json.dumps(one).replace("ALPHA-", "OMEGA-")), other)] == []


@pytest.mark.parametrize("attribution", ATTRIBUTIONS)
@pytest.mark.parametrize("name", ["two hosts", "synthetic GPU", "synthetic TPU"])
def test_the_origin_of_the_clock_changes_nothing_but_times_on_it(name: str, attribution: Attribution) -> None:
    one, other = (answer(shifted(JOBS[name], by_ns), attribution) for by_ns in (0, SHIFT_NS))
    assert [*differences(on_clock(one, SHIFT_NS), on_clock(other, 0))] == []
