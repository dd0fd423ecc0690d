"""`tfperf check`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfperf.cli.options import (
    chosen_format,
    decorated,
    load_trace,
    refuse_existing,
    report_options,
    show,
    trace_options,
)
from tfperf.cli.telling import done, tell, tell_failure
from tfperf.errors import TfperfError
from tfperf.gate.errors import LimitError
from tfperf.gate.named import NAMED

if TYPE_CHECKING:
    from tfperf.gate.config import CheckConfig
    from tfperf.gate.model import Outcome
    from tfperf.session import Trace

Command = TypeVar("Command", bound=Callable[..., Any])

_NO_LIMITS = "there is no limit to check: pass one, as --max-input-bound 10%, or write some into tfperf.toml"


def _limit_options(command: Command) -> Command:
    """Add an option for each named limit."""
    options = (click.option(f"--{name}", metavar="LIMIT", help=known.help) for name, known in NAMED.items())
    return decorated(command, tuple(options))


@click.command("check", short_help="Gate a CI job: exit 3 if a limit is breached.")
@trace_options
@_limit_options
@click.option("--limit", "limits", metavar="EXPR", multiple=True, help="A limit on any figure or column (repeatable).")
@click.option(
    "--stat", type=click.Choice(("mean", "median", "p95")), help="What stands for the step times.  [default: mean]"
)
@click.option("--skip-first", type=click.IntRange(min=0), metavar="N", help="Leave out the first N steps of each host.")
@click.option("--min-steps", type=click.IntRange(min=1), metavar="N", help="Whole steps needed.  [default: 3]")
@click.option(
    "--baseline", type=click.Path(path_type=Path), metavar="FILE", multiple=True,
    help="Compare with this earlier run (repeatable: what they differ by is noise).",
)  # fmt: skip
@click.option("--max-regression", metavar="LIMIT", help="How much slower than the baseline.  [default: 5%]")
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), metavar="FILE",
    help="Read limits from here.  [default: tfperf.toml or pyproject.toml, of this folder or the next above]",
)  # fmt: skip
@click.option("--no-config", is_flag=True, help="Read no file of limits.")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write the results as JUnit XML too.")
@click.option("--github", is_flag=True, help="Tell GitHub Actions: annotations, and the summary of the job.")
@report_options
@click.pass_context
def command(
    context: click.Context, /, path: Path, format_name: str | None, output: Path | None, force: bool,
    junit: Path | None, github: bool, run: str | None, hosts: tuple[str, ...], attribution: str,
    step_marker: str | None, **options: Any,
) -> None:  # fmt: skip
    """Check that a profile holds limits; the exit code says it to a CI job.

    PATH is a logdir, a run folder or one *.xplane.pb file. Of several hosts, the worst decides. Exit codes: 0 all
    limits hold, 3 a limit is breached, 1 it could not be judged (no steps, too few, nothing to measure), 2 wrong
    usage. No data is never a pass.

    \b
    Example:
      tfperf check logs/ --max-input-bound 10%
      tfperf check logs/ --max-step-time 50ms --stat p95 --skip-first 2
      tfperf check logs/ --limit "kernels.total_us[name~nccl] < 500us"
      tfperf check logs/ --baseline baseline.json --max-regression 5%
      tfperf check logs/ --max-input-bound 10% --junit tfperf.xml --github
    """
    wanted = _wanted(**options)
    format_name = chosen_format(format_name, output)
    _refuse_the_same(output, junit)
    try:
        for file in (output, junit):
            refuse_existing(file, force=force)
        trace = load_trace(path, run=run, hosts=hosts, attribution=attribution, step_marker=step_marker)
        outcome = _judged(trace, wanted)
    except TfperfError as error:
        tell_failure(wanted.limits, error, junit, github=github, force=force)
        raise
    told = tell(outcome, junit, github=github, force=force)
    told &= done(lambda: show(outcome.report(), format_name, output, force=force))
    context.exit(outcome.exit_code or int(not told))


# --- what is wanted ---


def _wanted(
    limits: tuple[str, ...], config_file: Path | None, no_config: bool, max_regression: str | None, **options: Any
) -> CheckConfig:
    """Return the limits and settings of the file, and of the command line, which go first."""
    from tfperf.gate.limits import merged, named_limit, parse_limit, regression_tolerance
    from tfperf.render.safe_text import safe

    try:
        found = _config(config_file, no_config=no_config)
        named = {name: options.pop(name.replace("-", "_")) for name in NAMED}
        own = [named_limit(name, value) for name, value in named.items() if value is not None]
        own += [parse_limit(text) for text in limits]
        options["max_regression"] = None if max_regression is None else regression_tolerance(max_regression)
    except LimitError as error:
        raise click.UsageError(safe(str(error))) from error
    given = {key: value for key, value in options.items() if value not in (None, ())}
    found = replace(found, limits=merged(found.limits, own), **given)
    if found.max_regression is not None and not found.baseline:
        raise click.UsageError("max-regression needs a baseline to compare with: pass --baseline FILE")
    if not found.limits and not found.baseline:
        raise click.UsageError(_NO_LIMITS)
    return found


def _config(file: Path | None, *, no_config: bool) -> CheckConfig:
    from tfperf.gate.config import CheckConfig, find_config, read_config

    if file is not None and no_config:
        raise click.UsageError("--config and --no-config exclude each other")
    found = None if no_config else file or find_config(Path.cwd())
    return read_config(found) if found else CheckConfig(Path())


def _refuse_the_same(output: Path | None, junit: Path | None) -> None:
    from tfperf.render.output import STDOUT

    if junit == STDOUT:
        raise click.UsageError("--junit - would mix with the report: name a file")
    if junit is not None and output is not None and junit.absolute() == output.absolute():
        raise click.UsageError("-o and --junit name the same file")


def _judged(trace: Trace, wanted: CheckConfig) -> Outcome:
    from tfperf.gate.ask import check_configured
    from tfperf.render.safe_text import safe

    try:
        return check_configured(trace, wanted)
    except LimitError as error:
        raise click.UsageError(safe(str(error))) from error
