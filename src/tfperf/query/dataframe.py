"""SQL for Python programs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfperf.analysis import Analysis, load
from tfperf.query.sources import Source
from tfperf.trace.activities import Attribution
from tfperf.trace.logdir import choose_hosts, choose_run, find_runs

if TYPE_CHECKING:
    import pandas as pd


def source_of(
    path: str | Path | Analysis,
    *,
    run: str | None = None,
    hosts: Sequence[str] = (),
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
) -> Source:
    """Return what can be queried of a profile; nothing is read yet. Raises TraceNotFoundError.

    `path` and the options are those of `tfperf.load`; an analysis is used as it is, and completed where a query needs
    sections that it lacks.
    """
    if isinstance(path, Analysis):
        return Source(path.run, path.more)
    chosen = choose_hosts(choose_run(find_runs(Path(path)), run), tuple(hosts))

    def analyze(sections: Collection[str]) -> Analysis:
        # The folder of the run: by now, there may be a newer one.
        return load(
            path,
            sections=tuple(sections),
            run=str(chosen.folder),
            hosts=hosts,
            attribution=attribution,
            step_marker=step_marker,
        )

    return Source(chosen, analyze)


def sql(path: str | Path | Analysis, query: str, **options: Any) -> pd.DataFrame:
    """Return the answer to one SELECT about a profile: `tfperf.sql("logs", "select name from events limit 3")`.

    `path` is a logdir, a run folder, a `*.xplane.pb` file or what `tfperf.load` returned; `options` are those of
    `tfperf.load` (`run`, `hosts`, `attribution`, `step_marker`). docs/sql.md lists the tables. Integers stay exact: a
    column with missing values has the dtype Int64, one with numbers beyond 64 bits holds Python ints. Raises
    TfperfError.
    """
    import pandas as pd

    from tfperf.query.engine import ask

    answer = ask(source_of(path, **options), query)
    return pd.DataFrame(
        {name: _series(values) for name, values in zip(answer.names, answer.columns, strict=True)},
        index=range(len(answer)),
    )


def _series(values: Sequence[Any]) -> pd.Series[Any]:
    import pandas as pd

    kinds = set(map(type, values))
    if kinds == {int, type(None)}:
        try:
            return pd.Series(values, dtype="Int64")
        except OverflowError:
            return pd.Series(values, dtype=object)
    return pd.Series(values)
