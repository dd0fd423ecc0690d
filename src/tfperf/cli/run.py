"""`tfperf run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from tfperf.cli import options


@click.command(
    "run",
    short_help="Profile a script without changing it, and print the report.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--steps",
    type=options.step_range,
    metavar="A..B",
    help="Profile steps A to B of the training, both included (10..19).",
)
@click.option(
    "--after", "after_s", type=options.DURATION, help="Profile by time instead, this long after the script starts."
)
@click.option("--duration", "duration_s", type=options.DURATION, help="How long to profile by time (2s).")
@options.logdir_option("Where the trace goes.")
@options.tracer_options
@options.report_options
@options.TOP
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.argument("command", metavar="SCRIPT [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(command: tuple[str, ...], format_name: str | None, output: Path | None, force: bool, **values: Any) -> None:
    """Run a Python script, profile some steps of it, and print the report when it ends.

    Steps are those of Keras, and of `tfperf.step` in the script. A script without either is profiled by time: for 2 s,
    10 s after its start, unless --after and --duration say otherwise. Put options before SCRIPT; what follows goes to
    the script. The exit code is the script's.

    \b
    Example:
      tfperf run train.py --epochs 3
      tfperf run --steps 50..59 train.py
      tfperf run --after 30s --duration 2s -m project.train
    """
    from tfperf.capture.script_plan import choose_plan
    from tfperf.errors import TfperfError
    from tfperf.sampling.jobs import sample_script

    if values["steps"] and values["after_s"]:
        raise click.UsageError("--steps and --after exclude each other: profile by steps, or by time")
    if values["steps"] and values["duration_s"]:
        raise click.UsageError("--duration needs --after; --steps A..B says how many steps to profile")
    if not values["is_module"] and not Path(command[0]).exists():
        raise click.UsageError(f"{command[0]} does not exist; name a script, or a module after -m")
    options.check_output(output, format_name, force=force)
    is_module, top, levels = values.pop("is_module"), values.pop("top"), options.take_tracer_options(values)
    exit_code, sampled = sample_script(command, choose_plan(options=levels, **values), is_module=is_module)
    sampled = sampled.analyzed()
    format_name = options.chosen_format(format_name, output)
    for line in sampled.lines:
        options.say(line)
    if sampled.kept or format_name != "table":
        try:
            options.show(sampled.report(), format_name, output, force=force, top=top)
        except TfperfError as error:  # The exit code stays the script's.
            options.say(str(error))
    raise Exit(exit_code)
