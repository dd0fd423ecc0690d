"""SQL for Python programs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfperf.query.sources import Source
from tfperf.session import Trace, load
from tfperf.trace.activities import Attribution
from tfperf.trace.logdir import choose_hosts, choose_run, find_runs

if TYPE_CHECKING:
    import pandas as pd


def source_of(
    path: str | Path | Trace,
    *,
    run: str | None = None,
    hosts: Sequence[str] = (),
    attribution: Attribution = "corrected",
    step_marker: str | None = None,
) -> Source:
    """Return what can be queried of a profile; nothing is read yet. Raises TraceNotFoundError.

    `path` and the options are those of `tfperf.load`; of a loaded trace, its analysis is used.
    """
    if isinstance(path, Trace):
        return Source(path.run, lambda: path)
    chosen = choose_hosts(choose_run(find_runs(Path(path)), run), tuple(hosts))
    # The folder: by now, there may be a newer run.
    options: dict[str, Any] = {"hosts": hosts, "attribution": attribution, "step_marker": step_marker}
    return Source(chosen, partial(load, path, run=str(chosen.folder), **options))


def sql(path: str | Path | Trace, query: str, **options: Any) -> pd.DataFrame:
    """Return what one SELECT says about a profile: `tfperf.sql("logs", "select name from events limit 3")`.

    `path` is a logdir, a run folder, a `*.xplane.pb` file or what `tfperf.load` returned; `options` are those of
    `tfperf.load` (`run`, `hosts`, `attribution`, `step_marker`). docs/sql.md has the tables. Whole numbers stay exact:
    a column with gaps has the dtype Int64, one with numbers beyond 64 bits holds Python ints. Raises TfperfError.
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
