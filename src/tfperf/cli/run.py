"""`tfperf run`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from tfperf.cli.options import chosen_format, default_top, refuse_existing, report_options, say, show, tracer_options
from tfperf.cli.parameters import DURATION


class _StepRange(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """`10..20`: steps 10 to 19, as in Python's range."""

    name = "range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        found = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", str(value).strip())
        if not found or int(found[1]) >= int(found[2]):
            self.fail(f"{value!r} is no range of steps; write 10..20 for steps 10 to 19", param, ctx)
        return int(found[1]), int(found[2])


@click.command(
    "run",
    short_help="Profile a script that knows nothing of it, and print the report.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--steps", type=_StepRange(), metavar="A..B", help="Profile steps A to B-1 of the training (10..20).")
@click.option("--after", type=DURATION, help="Profile by time instead, this long after the script began.")
@click.option("--duration", type=DURATION, help="How long to profile, by time (2s).")
@click.option(
    "--logdir", type=click.Path(path_type=Path), default="logs", show_default=True, help="Where the trace goes."
)
@tracer_options
@report_options
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.argument("command", metavar="SCRIPT [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def command(
    context: click.Context,
    /,
    command: tuple[str, ...],
    format_name: str | None,
    output: Path | None,
    force: bool,
    **options: Any,
) -> None:
    """Run a Python script, profile some steps of it, and print the report when it is done.

    Steps are counted by themselves with Keras, and where the script calls `tfperf.step`. A script without either is
    profiled for 2 s, 10 s after its begin, or as --after and --duration say. Put options before SCRIPT; what follows
    belongs to it. The exit code is the script's.

    \b
    Example:
      tfperf run train.py --epochs 3
      tfperf run --steps 50..60 train.py
      tfperf run --after 30s --duration 2s -m project.train
    """
    from tfperf import sampling
    from tfperf.errors import TfperfError

    if options["steps"] and options["after"]:
        raise click.UsageError("--steps and --after exclude each other: steps are counted, or time is measured")
    if options["steps"] and options["duration"]:
        raise click.UsageError("--duration belongs to --after; --steps A..B says how many steps are profiled")
    if not options["is_module"] and not Path(command[0]).exists():
        raise click.UsageError(f"{command[0]} does not exist; name a script, or a module after -m")
    refuse_existing(output, force=force)
    exit_code, sampled = sampling.run(command, **options)
    format_name = chosen_format(format_name, output)
    for line in sampled.lines:
        say(line)
    if sampled.kept or format_name != "table":
        try:
            report = sampled.report(analyze=True, top=default_top(format_name), page=format_name == "html")
            show(report, format_name, output, force=force)
        except TfperfError as error:  # The exit code stays the script's.
            say(str(error))
    context.exit(exit_code)
