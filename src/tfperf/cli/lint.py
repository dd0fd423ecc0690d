"""`tfperf lint`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.exceptions import Exit

from tfperf.cli import options
from tfperf.report.render import write

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from tfperf.models.linter.rules import RULES

    return options.completions(RULES, incomplete.upper())


@click.command("lint", short_help="Check a model's shapes and ops against TPU or GPU rules before it runs.")
@click.argument("source", type=options.PATH)
@click.option(
    "--device",
    type=click.Choice(("tpu", "gpu", "auto")),
    default="auto",
    show_default=True,
    help="Device to check for; auto: the device in the graph or profile, otherwise TPU.",
)
@options.run_option("Check")
@click.option("--batch", type=options.AT_LEAST_ONE, metavar="N", help="Batch size, if shapes do not define it.")
@click.option(
    "--rule", "rules", metavar="ID", multiple=True, shell_complete=_complete, help="Check only this rule (repeatable)."
)
@click.option("--ignore", metavar="ID", multiple=True, shell_complete=_complete, help="Skip this rule (repeatable).")
@click.option(
    "--supported-ops",
    type=options.PATH,
    metavar="FILE",
    help="File with the ops that the device supports, one per line (TPU-OP-1).",
)
@click.option(
    "--fail-on",
    type=click.Choice(("high", "medium", "low", "info")),
    help="Exit with 3 if a finding has this level or higher.",
)
@options.gate_report_options
@options.TOP
def command(
    source: Path, format_name: str | None, output: Path | None, force: bool, top: int | None, **values: Any
) -> None:
    """Check the shapes and ops of a model before it runs: padding, transposes, slices, reductions, batch norms, ...

    SOURCE is a SavedModel folder; a graph (GraphDef or MetaGraphDef, binary or text, written with
    as_graph_def(add_shapes=True)); an XLA program (HloProto or text); or a profile, whose XLA programs are checked, the
    ones that take and waste most first. Ops with unknown dimensions are counted and listed, but are never findings.
    `tfperf explain TPU-CV-1` explains a rule. Exit codes: 0 no finding reaches the level of --fail-on, 3 a finding
    does, 1 no op could be checked, 2 wrong usage.

    \b
    Example:
      tfperf lint saved_model/ --batch 128
      tfperf lint graph.pb --device gpu --fail-on medium
      tfperf lint logs/
      tfperf lint module.hlo_proto.pb --device gpu
      tfperf lint saved_model/ --batch 32 --ignore TPU-BN-1 --format github
    """
    from tfperf.judge.lint_output import exit_code, github_text, junit_text
    from tfperf.models.linter.engine import LintError, LintOptions, lint_path
    from tfperf.models.linter.report import lint_report

    fail_on = values.pop("fail_on")
    if format_name in options.CI_FORMATS:
        options.refuse_existing(output, force=force)
    else:
        options.check_output(output, format_name, force=force)
    try:
        result = lint_path(source, LintOptions(**values))
    except LintError as error:
        raise options.usage_error(error) from error
    if format_name == "github":
        write(github_text(result, fail_on), output, force=force)
    elif format_name == "junit":
        write(junit_text(result, fail_on), output, force=force)
    else:
        options.show(lint_report(result), format_name, output, force=force, top=top)
    raise Exit(exit_code(result, fail_on))
