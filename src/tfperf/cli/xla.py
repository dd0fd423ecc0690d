"""`tfperf xla`."""

from __future__ import annotations

from typing import Any

import click

from tfperf.base.storage.remote_path import Location
from tfperf.cli import options
from tfperf.report.render import STDOUT, write


@click.command("xla", short_help="Print the text of XLA programs, or of an HLO op and its neighbors.")
@options.PROFILE_OR_LOGS
@options.run_option("Read")
@options.HOST
@options.STEP_MARKER
@options.STEPS
@options.address_options
@options.host_options
@click.option("--op", metavar="NAME", help="HLO op to print, with the ops that make and use its arrays.")
@click.option("--depth", type=click.IntRange(0, 100), default=1, show_default=True, help="Steps away from the op.")
@click.option(
    "--text", "whole", is_flag=True, help="Print the computations that the op calls; without --op, the program."
)
@click.option("--program", metavar="NAME|ID", help="Program to print.  [default: the one with most time]")
@click.option("-o", "--output", type=options.OUTPUT, help="A file; - is stdout.  [default: stdout]")
@options.FORCE
def command(path: Location, output: Location | None, force: bool, **values: Any) -> None:
    """Print an HLO op of an XLA program with its neighbors, or the whole program, in XLA's text.

    Values of constants and shardings are omitted. Section xla of tfperf analyze lists the ops with most time. The
    default of PATH is ./logs.

    \b
    Example:
      tfperf xla logs/ --op fusion.3
      tfperf xla logs/ --op fusion.3 --depth 2 --text
      tfperf xla logs/ --text --program jit_step -o step.hlo
    """
    op, program, depth, whole = (values.pop(name) for name in ("op", "program", "depth", "whole"))
    if op is None and not whole:
        raise click.UsageError("pass --op NAME for an HLO op, or --text for the whole program")
    options.refuse_existing(output, force=force)
    from tfperf.export.program_text import op_text, program_text
    from tfperf.report.render.values import without_commands

    analysis = options.load_analysis(path, sections=("xla",), **values)
    if op is None:
        text = program_text(analysis, program)
    else:
        text = op_text(analysis, op, program=program, depth=depth, whole=whole)
    is_file = output not in (None, STDOUT)
    write(text if is_file else without_commands(text), output or STDOUT, force=force)
    if is_file:
        options.say(f"wrote {output}")
