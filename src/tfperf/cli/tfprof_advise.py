"""`tfperf tfprof advise`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tfperf.cli import options
from tfperf.cli.tfprof_options import comma_separated, model_options, read_files, reading


@click.command("advise", short_help="Say what to look at first.")
@model_options
@click.option(
    "--checkers",
    multiple=True,
    callback=comma_separated,
    metavar="NAMES",
    help="Only these: AcceleratorUtilization, Operation, ExpensiveOperation, Job.",
)
@click.option("--all-frames", is_flag=True, help="Count frames of installed packages among lines of code.")
@options.report_options
def command(format_name: str | None, output: Path | None, force: bool, **values: Any) -> None:
    """Check a model and its runs: is the accelerator used, which ops and lines are dear, do hosts wait for each other.

    \b
    Example:
      tfperf tfprof advise --profile profile.pb
      tfperf tfprof advise collected/ --checkers ExpensiveOperation
    """
    from tfperf.models.tfprof.advise import CHECKERS, advise_report

    options.check_output(output, format_name, force=force)
    with reading():
        model, _ = read_files(values)
        checkers = values["checkers"] or CHECKERS
        report = advise_report(model, checkers=checkers, every_frame=values["all_frames"])
    options.show(report, format_name, output, force=force, view="whole")
