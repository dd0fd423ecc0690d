"""`tfperf check`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit
from msgspec.structs import replace

from tfperf.base.errors import OutputError, TfperfError
from tfperf.base.files import refuse_existing
from tfperf.base.storage.remote_path import Location
from tfperf.cli import options
from tfperf.judge.limits import NAMED, LimitError, merged, named_limits, regression_tolerance
from tfperf.report.render import STDOUT, write

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tfperf.judge.config import CheckConfig
    from tfperf.judge.outcome import Outcome

_NO_LIMITS = "no limits given: pass one (for example --max-input-bound 10%) or set them in tfperf.toml"


def _complete_cause(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tfperf.sections.diagnosis.catalogue import CAUSE_MEANINGS

    return options.completions(CAUSE_MEANINGS, incomplete)


@click.command("check", short_help="Gate a CI job: exit with 3 if a limit is breached.")
@options.PROFILE
@options.trace_options
@options.together(
    *(
        click.option(
            f"--{name}",
            metavar=limit.metavar,
            multiple=limit.of_cause,
            help=limit.help,
            shell_complete=_complete_cause if limit.of_cause else None,
        )
        for name, limit in NAMED.items()
    )
)
@click.option("--limit", "limits", metavar="EXPR", multiple=True, help="Limit any figure or column (repeatable).")
@click.option("--stat", type=options.STATISTIC, help="Statistic of the step times.  [default: mean]")
@click.option("--skip-first", type=options.COUNT, metavar="N", help="Skip the first N steps of each host.")
@click.option(
    "--min-steps", type=options.AT_LEAST_ONE, metavar="N", help="Minimum number of whole steps.  [default: 3]"
)
@click.option("--allow-doubt", is_flag=True, help="Check limits even if their figures may be wrong (doubtful profile).")
@click.option("--by-kind", metavar="KIND", help="Check steps of this kind: train, eval, ...  [default: the main kind]")
@click.option(
    "--baseline",
    type=options.SUMMARY,
    metavar="FILE",
    multiple=True,
    help="Compare with this earlier run (repeatable: differences between baselines count as noise).",
)
@click.option("--max-regression", metavar="LIMIT", help="Maximum slowdown relative to the baseline.  [default: 5%]")
@click.option(
    "--config",
    "config_file",
    type=options.PATH,
    metavar="FILE",
    help="Read limits from this file.  [default: the nearest tfperf.toml or pyproject.toml, from the current folder up "
    "to the root of the repository]",
)
@click.option("--no-config", is_flag=True, help="Do not read limits from a file.")
@click.option("--junit", type=options.PATH, metavar="FILE", help="Also write the results as JUnit XML.")
@click.option("--github", is_flag=True, help="Write annotations and a job summary for GitHub Actions.")
@options.gate_report_options
def command(path: Location, format_name: str | None, output: Location | None, force: bool, **values: Any) -> None:
    """Check a profile against limits. The exit code is the result for CI.

    PATH is a logdir, a run folder or one *.xplane.pb file. With several hosts, the worst one decides. Exit codes: 0 all
    limits passed, 3 a limit was breached, 1 a limit could not be checked (no steps, too few steps, no measured value,
    doubtful data), 2 wrong usage. Missing data never passes.

    \b
    Example:
      tfperf check logs/ --max-input-bound 10%
      tfperf check logs/ --max-step-time 50ms --stat p95 --skip-first 2
      tfperf check logs/ --fail-on compilation --max-cost eager_ops=5%
      tfperf check logs/ --max-p99 20ms
      tfperf check logs/ --limit "kernels.total_us[name~nccl] < 500us"
      tfperf check logs/ --baseline baseline.json --max-regression 5%
      tfperf check logs/ --max-input-bound 10% --junit tfperf.xml --github
      tfperf check logs/ --max-input-bound 10% --format junit -o tfperf.xml
    """
    from tfperf.judge.check import check, needed_sections
    from tfperf.judge.ci_output import is_own_junit
    from tfperf.judge.outcome import not_judged

    junit, github = values.pop("junit"), values.pop("github") or format_name == "github"
    if format_name == "junit":
        if junit is not None:
            raise click.UsageError("--junit cannot be used with --format junit")
        # JUnit XML is written instead of the report.
        junit, output = (output, None) if isinstance(output, Path) and output != STDOUT else (None, output)
    reading = {key: values.pop(key) for key in options.READING}
    config = _config(**values)
    if junit == STDOUT:
        raise click.UsageError("--junit - would mix with the report: pass a file")
    if junit is not None and output is not None and junit.resolve() == output.resolve():
        raise click.UsageError("-o and --junit must be different files")
    options.check_suffix(output, format_name)
    # A file from an earlier run of the job may be replaced.
    replaces = force or (junit is not None and is_own_junit(junit))
    try:
        # Files are only checked for conflicts here; a failed write later must not change the exit code.
        for file, may_replace in ((output, force), (junit, replaces)):
            if file is not None and file != STDOUT:
                refuse_existing([file], force=may_replace)
        outcome = check(options.load_analysis(path, sections=needed_sections(config), **reading), config)
    except LimitError as error:
        raise options.usage_error(error) from error
    except TfperfError as error:
        # Do not replace an existing file.
        write_to = None if isinstance(error, OutputError) else junit
        _notify(not_judged(config.limits, str(error)), write_to, github=github, force=replaces)
        raise
    notified = _notify(outcome, junit, github=github, force=replaces)
    notified &= _done(lambda: _show(outcome, format_name, output, force=force, is_written=junit is not None))
    raise Exit(outcome.exit_code or int(not notified))


def _show(outcome: Outcome, format_name: str | None, output: Location | None, *, force: bool, is_written: bool) -> None:
    """Write the report, or JUnit XML unless its file is written; annotations for GitHub are printed before."""
    from tfperf.judge.ci_output import junit_text
    from tfperf.judge.outcome import check_report

    if format_name not in options.CI_FORMATS:
        options.show(check_report(outcome), format_name, output, force=force)
    elif format_name == "junit" and not is_written:
        write(junit_text(outcome), output, force=force)


def _config(
    limits: tuple[str, ...], config_file: Path | None, no_config: bool, max_regression: str | None, **values: Any
) -> CheckConfig:
    """Return the limits and settings of the file and of the command line, which has precedence."""
    from tfperf.judge.config import CheckConfig, find_config, read_config
    from tfperf.judge.grammar import read_limit

    if config_file is not None and no_config:
        raise click.UsageError("--config cannot be used with --no-config")
    try:
        file = None if no_config else config_file or find_config(Path.cwd())
        config = read_config(file, is_named=config_file is not None) if file else CheckConfig()
        if file is not None and config_file is None:
            options.say(f"limits from {file}", always=True)
        named = {name: values.pop(name.replace("-", "_")) for name in NAMED}
        given = [limit for name, value in named.items() if value is not None for limit in named_limits(name, value)]
        given += [read_limit(text) for text in limits]
        values["allow_doubt"] = values["allow_doubt"] or None
        values["max_regression"] = None if max_regression is None else regression_tolerance(max_regression)
    except LimitError as error:
        raise options.usage_error(error) from error
    settings = {key: value for key, value in values.items() if value not in (None, ())}
    config = replace(config, limits=merged(config.limits, given), **settings)
    if not config.limits and not config.baseline and config.max_regression is None:
        raise click.UsageError(_NO_LIMITS)
    return config


def _notify(outcome: Outcome, junit: Path | None, *, github: bool, force: bool) -> bool:
    """Report the outcome of a gate to CI systems; return whether all reports succeeded."""
    from tfperf.judge.ci_output import annotation_text, junit_text, write_summary
    from tfperf.report.render.values import safe

    notified = True
    if junit is not None:
        is_written = _done(partial(write, junit_text(outcome), junit, force=force))
        if is_written:
            _say(f"wrote {safe(str(junit))}: results (JUnit XML)")
        notified &= is_written
    if github:
        # Print this before the report: names in the report could stop these commands.
        _say(annotation_text(outcome))
        notified &= _done(lambda: _say(write_summary(outcome, os.environ)))
    return notified


def _done(write: Callable[[], None]) -> bool:
    """Write a file or text; print a failure and continue, because the verdict determines the exit code."""
    from tfperf.report.render.values import for_people, without_commands

    try:
        write()
    except OutputError as error:
        _say(f"Error: {without_commands(for_people(str(error)))}")
        return False
    return True


def _say(text: str) -> None:
    """Write lines to stderr; if it is closed, discard them and keep the exit code."""
    if not text:
        return
    try:
        click.echo(text, err=True)
    except OSError:
        from tfperf.report.render import discard

        discard(sys.stderr)
