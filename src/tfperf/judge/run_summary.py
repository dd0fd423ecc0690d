"""The stored summary of a run for comparisons: its step times, and time per step by category, op and so on.

A summary contains no folder names of the machine. Numbers have six digits. The annotations are checked when a summary
is read from a baseline, which is a JSON file with the summary of one run.

Runs whose steps have different numbers of examples are compared per example. Times are then per 1,000 examples:
milliseconds, the unit of all tables, equal microseconds per example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, structs
from msgspec.structs import replace

from tfperf.base.errors import TraceFormatError, TraceNotFoundError
from tfperf.base.files import elsewhere
from tfperf.base.storage.remote_path import Location
from tfperf.formats.wire.trace_file import open_anywhere

LONGEST_NAME = 200
MOST_MS = 1e15
LONGEST_STEP_MS = 2e9
"""23 days: longer steps are from damaged files."""
MOST_COUNT = 1 << 53
Name = Annotated[str, Meta(max_length=LONGEST_NAME)]
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
Number = Annotated[float, Meta(ge=0, le=MOST_MS)]
StepMs = Annotated[float, Meta(gt=0, le=LONGEST_STEP_MS)]
RankingName = Literal["device_ops", "host_ops", "kernels", "copies", "stages", "functions", "idle"]
RANKING_NAMES: tuple[RankingName, ...] = get_args(RankingName)


class RankedEntry(Struct, frozen=True):
    """One op, kernel, kind of copy, tf.data stage, tf.function, or cause of idle time; None is unknown."""

    name: Name
    """For stages their path."""
    detail: Name
    """The type of an op, or the name of a stage; else empty."""
    ms: Number | None
    """ms per step: self time of ops and tf.functions, time of kernels and copies, waiting for stages, idle time."""
    count: Number | None = None
    """Count per step; for tf.functions, tracings in the capture."""
    element_ms: Number | None = None
    """For stages: their own work per element, on all threads."""


class Ranking(Struct, frozen=True):
    """Entries, longest first; `total_rows` is their number before the list was cut."""

    rows: tuple[RankedEntry, ...] = ()
    total_rows: Count = 0

    @property
    def is_cut(self) -> bool:
        """Return whether entries were omitted."""
        return self.total_rows > len(self.rows)


class Rankings(Struct, frozen=True, kw_only=True):
    """All rankings of a run; empty if the profile has no such entries, or no steps to divide by."""

    device_ops: Ranking = Ranking()
    host_ops: Ranking = Ranking()
    kernels: Ranking = Ranking()
    copies: Ranking = Ranking()
    stages: Ranking = Ranking()
    functions: Ranking = Ranking()
    idle: Ranking = Ranking()


class CauseTime(Struct, frozen=True, kw_only=True):
    """A cause of the diagnosis, with its ms per step by the category that they belong to."""

    code: Name
    title: Name
    category_ms: dict[Name, Number]


class HostSummary(Struct, frozen=True, kw_only=True):
    """One host. `step_ms` are its averaged whole steps in time order (`step_count` before a long list was cut)."""

    host: Name
    step_ms: tuple[StepMs, ...]
    step_count: Count
    category_ms: dict[Name, Number | None]
    """Mean of each category, and of both parts of input, over these steps; empty without steps."""
    input_percent: Number | None
    input_class: Name
    device_type: Name
    device_model: Name
    device_count: Count
    half_precision_percent: Number | None
    """16-bit compute / all device compute; None without any."""
    cpu_model: Name = ""
    """The host's CPU; empty if unknown, in which case `cores` is None."""
    cores: Number | None = None
    causes: tuple[CauseTime, ...] = ()
    """Causes of the host's averaged steps; empty if the diagnosis is of other steps, and in older baselines."""

    def __post_init__(self) -> None:
        """Reject a count that contradicts the list."""
        if self.step_count < len(self.step_ms):
            raise ValueError(f"`step_count` is {self.step_count}, but there are {len(self.step_ms)} step times")


class AllocatorPeak(Struct, frozen=True):
    """Peak bytes in use of an allocator, over all hosts."""

    name: Name
    peak_bytes: Count


class RunSummary(Struct, frozen=True, kw_only=True):
    """The summary of a run. `host_count` is the number of hosts before the list was cut to the slowest."""

    label: Name
    run: Name
    tfperf_version: Name
    attribution: Name
    skip_first: Count
    step_kind: Name
    step_source: Name
    step_confidence: Name
    batches_per_step: Count | None
    batch_size: Count | None
    """Examples per batch on all hosts and replicas; None if unknown."""
    hosts: tuple[HostSummary, ...]
    host_count: Count
    rankings: Rankings
    allocators: tuple[AllocatorPeak, ...]
    """Most important first."""
    examples_per_step: Count | None = None
    """Examples per batch times batches per step; None if one is unknown or of low confidence."""
    tensorflow_version: Name = ""
    wall_step_ms: Number | None = None
    """Longest wall time per step of a host, with gaps and steps not averaged; None if unknown, as in old baselines."""
    steps: Name = ""
    """The steps that the run is limited to, as in `--steps`: `10..20`; empty: all, and in older baselines."""
    doubt: Name = ""
    """Why the step times are doubtful or wrong; empty if they are not, and in baselines of earlier versions."""

    def __post_init__(self) -> None:
        """Reject a count that contradicts the list."""
        if self.host_count < len(self.hosts):
            raise ValueError(f"`host_count` is {self.host_count}, but there are {len(self.hosts)} hosts")

    def ranking(self, name: RankingName) -> Ranking:
        """Return one of the rankings."""
        ranking: Ranking = getattr(self.rankings, name)
        return ranking


_KIND, _FORMAT = "tfperf baseline", 1
_LARGEST_BYTES = 1_000_000
_READ_BYTES = 4 * _LARGEST_BYTES
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HINT = "create one with tfperf analyze LOGDIR --save-baseline FILE"


class _Header(Struct):
    """The first part to read: whether the file is a baseline, and its format version."""

    kind: Any = None
    format: Any = None


def baseline_text(run: RunSummary) -> str:
    """Return a summary as JSON of less than 1 MB; if unusual names take too much room, fewer entries are kept."""
    while True:
        document = {"kind": _KIND, "format": _FORMAT, **structs.asdict(run)}
        data = msgspec.json.format(msgspec.json.encode(document), indent=1)
        rankings = {name: run.ranking(name) for name in RANKING_NAMES}
        longest = max(len(ranking.rows) for ranking in rankings.values())
        if len(data) < _LARGEST_BYTES or not longest:
            return data.decode() + "\n"
        shorter = {
            name: Ranking(ranking.rows[: longest // 2], ranking.total_rows) for name, ranking in rankings.items()
        }
        run = structs.replace(run, rankings=Rankings(**shorter))


def read_baseline(path: Location) -> RunSummary:
    """Read a baseline; raise TraceNotFoundError if it cannot be opened, TraceFormatError if it is invalid."""
    try:
        with open_anywhere(path) as file:
            data = file.read(_READ_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceNotFoundError(elsewhere(path) or f"cannot read the baseline {path}: {reason}; {_HINT}") from error
    try:
        data = data.removeprefix(_BYTE_ORDER_MARK)
        if len(data) > _READ_BYTES:
            raise msgspec.DecodeError(f"larger than {_READ_BYTES // 1_000_000} MB")
        header = msgspec.json.decode(data, type=_Header)
        if header.kind != _KIND:
            raise msgspec.DecodeError(f"its kind is not {_KIND!r}")
        if header.format != _FORMAT:
            raise msgspec.DecodeError(f"its format is not {_FORMAT}, which this version of tfperf reads")
        return msgspec.json.decode(data, type=RunSummary)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else "the JSON is malformed"
        raise TraceFormatError(f"{path} is not a valid baseline: {reason}; {_HINT}") from error


Per = Literal["step", "example"]
EXAMPLES = 1000
OF_TABLES: dict[Per, str] = {"step": "step", "example": f"{EXAMPLES:,} examples"}
"""Unit of a table's times."""


def choose_per(runs: Sequence[RunSummary]) -> Per:
    """Return "example" if all runs have known, different numbers of examples per step, else "step"."""
    examples = {run.examples_per_step for run in runs}
    return "example" if len(examples) > 1 and None not in examples else "step"


def as_compared(run: RunSummary, per: Per) -> RunSummary:
    """Return a run with its times per step, or per 1,000 examples."""
    if per == "step" or not run.examples_per_step:
        return run
    factor = EXAMPLES / run.examples_per_step

    def scaled(value: float | None) -> float | None:
        return None if value is None else factor * value

    hosts = [
        replace(
            host,
            step_ms=tuple(factor * ms for ms in host.step_ms),
            category_ms={name: scaled(ms) for name, ms in host.category_ms.items()},
            causes=tuple(
                replace(cause, category_ms={name: factor * ms for name, ms in cause.category_ms.items()})
                for cause in host.causes
            ),
        )
        for host in run.hosts
    ]
    rankings = {}
    for name in RANKING_NAMES:
        # Tracings of functions are for the whole capture.
        rows = [
            replace(entry, ms=scaled(entry.ms), count=entry.count if name == "functions" else scaled(entry.count))
            for entry in run.ranking(name).rows
        ]
        rankings[name] = replace(run.ranking(name), rows=tuple(rows))
    return replace(run, hosts=tuple(hosts), rankings=Rankings(**rankings))
