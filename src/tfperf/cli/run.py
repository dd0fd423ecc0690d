"""`tfperf run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.exceptions import Exit

from tfperf.base.units import did_you_mean
from tfperf.cli import manners, options, own_variables
from tfperf.report.render import FORMATS


@click.command(
    "run",
    short_help="Profile a script without changing it, and print the report.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--steps",
    type=options.step_range,
    metavar="A..B",
    help="Profile steps A to B of the training, both included (50..59).",
)
@click.option(
    "--after", "after_s", type=options.DURATION, help="Profile by time instead, this long after the script starts."
)
@click.option("--duration", "duration_s", type=options.DURATION, help="How long to profile by time (4s).")
@click.option(
    "--stop-after-profile",
    is_flag=True,
    help="End the script when the profile is written: SIGINT; SIGTERM after 30 s, or if it hangs.",
)
@options.logdir_option("Where the trace goes.")
@options.run_name_option("TFPERF_RUN, what the workers of a cluster agree on, or the time")
@options.tracer_options
@options.report_options
@options.TOP
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as for python -m.")
@click.argument("command", metavar="SCRIPT [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(command: tuple[str, ...], format_name: str | None, output: Path | None, force: bool, **values: Any) -> None:
    """Run a Python script, profile some steps of it, and print the report when it ends.

    Steps are those of Keras, and of `tfperf.step` in the script: from step 10 on, as many as run in 4 s, but 10 to 200.
    A script without either is profiled by time: for 4 s, 10 s after it has imported TensorFlow, unless --after and
    --duration say otherwise. Put options before SCRIPT; what follows goes to the script. The exit code is that of the
    script, but 1 instead of 0 if nothing was captured, or if the report cannot be written.

    \b
    Example:
      tfperf run train.py --epochs 3
      tfperf run --steps 50..59 train.py
      tfperf run --stop-after-profile -o report.html train.py
      tfperf run --after 30s --duration 2s -m project.train
    """
    from tfperf.capture.script_run import choose_plan
    from tfperf.live.sampling import sample_script

    if values["steps"] and values["after_s"]:
        raise click.UsageError("--steps and --after exclude each other: profile by steps, or by time")
    if values["steps"] and values["duration_s"]:
        raise click.UsageError("--duration needs --after; --steps A..B says how many steps to profile")
    script = Path(command[0])
    is_script = (script / "__main__.py").exists() if script.is_dir() else script.exists()
    if not values["is_module"] and not is_script:
        raise click.UsageError(_no_script(command[0]))
    options.check_output(output, format_name, force=force, made=values["logdir"])
    is_module, top, levels = values.pop("is_module"), values.pop("top"), options.take_tracer_options(values)
    stop = values.pop("stop_after_profile")
    plan = choose_plan(options=levels, **values)
    tell = _tell_beside(click.get_current_context())
    for name in own_variables:
        os.environ.pop(name, None)
    exit_code, sampled = sample_script(command, plan, tell, is_module=is_module, stop_after_profile=stop)
    for line in filter(None, (sampled.error,) if sampled.kept else sampled.lines):
        options.say(f"tfperf: {line}", always=True)
    format_name = options.chosen_format(format_name, output)
    is_shown = True
    if sampled.kept or format_name != "table":
        if FORMATS[format_name].has_pictures:
            sampled = sampled.with_pictures()
        is_shown = options.show_surely(sampled.report(), format_name, output, force=force, top=top)
    raise Exit(exit_code or int(not (sampled.kept and is_shown)))


def _tell_beside(context: click.Context) -> Callable[[str], None]:
    """Return a function that prints a line to stderr, from any thread, without damaging a script's progress bar."""

    def tell(line: str) -> None:
        with context.scope(cleanup=False):
            if sys.stderr is not None and sys.stderr.isatty() and not manners().quiet:
                click.echo(err=True)
            options.say(f"tfperf: {line}")

    return tell


def _no_script(name: str) -> str:
    """Return the error for a missing script or option: click accepts unknown options as the script's."""
    if Path(name).is_dir():
        return f"{name} is a folder without __main__.py; name a script, or a module after -m"
    if not name.startswith("-"):
        return f"{name} does not exist; name a script, or a module after -m"
    options_of_run = [option for parameter in command.params for option in parameter.opts if option[:2] == "--"]
    return f"no such option {name}: {did_you_mean(name, options_of_run)} Options of the script stand behind its name"
