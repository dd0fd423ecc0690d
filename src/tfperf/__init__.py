"""tfperf: show where the step time of a TensorFlow or JAX job goes, from its profile, and record profiles.

import tfperf

with tfperf.profile("logs"):            # inside the job
    train()
tfperf.sample("localhost:6009")         # or profile a running job

analysis = tfperf.load("logs")
analysis["overview"].input_percent
analysis["steps"].table
analysis["ops"].host.table
tfperf.check(analysis, max_input_bound="10%").exit_code
tfperf.diff("logs_before", analysis).summary["ratio"]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfperf.base import __version__

if TYPE_CHECKING:
    from tfperf import keras, tfprof
    from tfperf.analysis.load import Analysis, load
    from tfperf.analysis.registry import HostResults, SectionSpec, TableSpec
    from tfperf.base.errors import (
        CaptureError,
        OutputError,
        TfperfError,
        TfperfWarning,
        TraceFormatError,
        TraceNotFoundError,
    )
    from tfperf.base.storage.remote_path import RemotePath
    from tfperf.capture.local import profile, start, step, stop
    from tfperf.capture.outcomes import Captured
    from tfperf.capture.server import serve
    from tfperf.export.parquet import write_parquet
    from tfperf.export.query.apart import sql
    from tfperf.export.timeline.export import write_timeline
    from tfperf.judge.check import check_profile as check
    from tfperf.judge.diff_report import diff
    from tfperf.judge.lint_output import lint
    from tfperf.live.sampling import Sampled, sample
    from tfperf.report.model import Column, Fact, Finding, Ranked, Section

__all__ = [
    "Analysis",
    "CaptureError",
    "Captured",
    "Column",
    "Fact",
    "Finding",
    "HostResults",
    "OutputError",
    "Ranked",
    "RemotePath",
    "Sampled",
    "Section",
    "SectionSpec",
    "TableSpec",
    "TfperfError",
    "TfperfWarning",
    "TraceFormatError",
    "TraceNotFoundError",
    "__version__",
    "check",
    "diff",
    "keras",
    "lint",
    "load",
    "profile",
    "sample",
    "serve",
    "sql",
    "start",
    "step",
    "stop",
    "tfprof",
    "write_parquet",
    "write_timeline",
]

_PUBLIC = {
    "load": ("analysis.load:load", "read and analyze a profile; returns an Analysis"),
    "check": ("judge.check:check_profile", "check a profile against limits, like tfperf check"),
    "lint": ("judge.lint_output:lint", "check shapes and ops of a model, like tfperf lint; raises in tests"),
    "diff": ("judge.diff_report:diff", "compare two or more runs"),
    "sql": ("export.query.apart:sql", "query a profile with SQL; returns a DataFrame"),
    "write_parquet": ("export.parquet:write_parquet", "write a profile to a Parquet dataset"),
    "write_timeline": ("export.timeline.export:write_timeline", "write a profile to a file for Perfetto or Chrome"),
    "profile": ("capture.local:profile", "profile the block of a with statement"),
    "start": ("capture.local:start", "start profiling this process"),
    "stop": ("capture.local:stop", "stop profiling and write the profile"),
    "step": ("capture.local:step", "mark a step of a custom training loop"),
    "serve": ("capture.server:serve", "let tfperf capture profile this process from outside"),
    "sample": ("live.sampling:sample", "profile running jobs from outside; returns a Sampled"),
    "keras": ("keras", "the module with ProfileCallback"),
    "tfprof": ("tfprof", "the module with Collector and Profiler: the cost of a model"),
    "Analysis": ("analysis.load:Analysis", 'an analyzed profile: analysis["kernels"] is the result of a section'),
    "RemotePath": ("base.storage.remote_path:RemotePath", "the address of a profile, and how to access it"),
    "Captured": ("capture.outcomes:Captured", "the result of profiling one worker"),
    "Sampled": ("live.sampling:Sampled", "the result of profiling jobs"),
    "CaptureError": ("base.errors:CaptureError", "a job could not be profiled"),
    "OutputError": ("base.errors:OutputError", "a file could not be written"),
    "TfperfError": ("base.errors:TfperfError", "the base class of all tfperf errors"),
    "TfperfWarning": ("base.errors:TfperfWarning", "the category of tfperf warnings"),
    "TraceFormatError": ("base.errors:TraceFormatError", "a file is not a profile, or is damaged"),
    "TraceNotFoundError": ("base.errors:TraceNotFoundError", "no profile was found"),
    "Column": ("report.model:Column", "for custom sections: a column of a table"),
    "Fact": ("report.model:Fact", "... a named value"),
    "Finding": ("report.model:Finding", "... a conclusion in words"),
    "HostResults": ("analysis.registry:HostResults", "... the results of one host"),
    "Ranked": ("report.model:Ranked", "... the column that ranks a table"),
    "Section": ("report.model:Section", "... the content of a section"),
    "SectionSpec": ("analysis.registry:SectionSpec", "... the declaration of a section"),
    "TableSpec": ("analysis.registry:TableSpec", "... the declaration of a table"),
}
"""Module and attribute of each public name, and its line in help(tfperf). Names are imported at first use."""

__doc__ += "\nPublic names:\n\n" + "".join(f"{name:19} {line}\n" for name, (_, line) in _PUBLIC.items())


if not TYPE_CHECKING:  # otherwise a type checker accepts any name

    def __getattr__(name: str) -> Any:
        """Import a public name at first use, so that the command line starts without numpy and Arrow."""
        if name not in _PUBLIC:
            raise AttributeError(f"module 'tfperf' has no attribute {name!r}")
        from pkgutil import resolve_name

        return resolve_name(f"tfperf.{_PUBLIC[name][0]}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


def load_ipython_extension(shell: Any) -> None:
    """Register the magic `%%tfperf`; `%load_ext tfperf` calls this."""
    from pkgutil import resolve_name

    # By name, as all public names: this avoids circular imports.
    resolve_name("tfperf.notebook.magic:register")(shell)
