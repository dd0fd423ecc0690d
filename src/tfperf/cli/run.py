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
    short_help="Profile an unmodified script and print the report.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--steps", type=options.step_range, metavar="A..B", help="Profile training steps A to B, inclusive (50..59)."
)
@click.option(
    "--after",
    "after_s",
    type=options.DURATION,
    help="Profile by time instead, starting this long after the script starts.",
)
@click.option("--duration", "duration_s", type=options.DURATION, help="Duration of a profile by time (4s).")
@click.option(
    "--stop-after-profile",
    is_flag=True,
    help="Stop the script once the profile is written: SIGINT, then SIGTERM after 30 s or if it hangs.",
)
@options.logdir_option("Folder for the trace.")
@options.run_name_option("TFPERF_RUN, a name shared by the workers of a cluster, or the time")
@options.tracer_options
@options.report_options
@options.TOP
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module name, as in python -m.")
@click.argument("command", metavar="SCRIPT [ARGS]...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(command: tuple[str, ...], format_name: str | None, output: Path | None, force: bool, **values: Any) -> None:
    """Run a Python script, profile some of its steps, and print the report when the script ends.

    Steps are Keras batches or steps marked with `tfperf.step` or `jax.profiler.StepTraceAnnotation`. By default,
    profiling starts at step 10 and lasts 4 s, but at least 10 and at most 200 steps. A script without such steps is
    profiled for 4 s, starting 10 s after it imports TensorFlow or JAX starts its devices; --after and --duration change
    that. Put options before SCRIPT; arguments after it are passed to the script. The exit code is the exit code of the
    script, but 1 instead of 0 if no profile was captured or the report cannot be written.

    \b
    Example:
      tfperf run train.py --epochs 3
      tfperf run --steps 50..59 train.py
      tfperf run --stop-after-profile -o report.html train.py
      tfperf run --after 30s --duration 2s -m project.train
    """
    from tfperf.capture.script_run import choose_plan
    from tfperf.live.sampling import sample_script

    if values["steps"] and None in values["steps"]:
        raise click.UsageError("--steps requires both ends to profile: use A..B, for example 50..59")
    if values["steps"] and values["steps"][0] < 0:
        raise click.UsageError("--steps requires a first step of 0 or more")
    if values["steps"] and values["after_s"]:
        raise click.UsageError("--steps cannot be used with --after: profile by steps or by time")
    if values["steps"] and values["duration_s"]:
        raise click.UsageError("--duration requires --after; use --steps A..B to select steps")
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
        return f"{name} is a folder without __main__.py; pass a script, or -m and a module"
    if not name.startswith("-"):
        return f"{name} does not exist; pass a script, or -m and a module"
    options_of_run = [option for parameter in command.params for option in parameter.opts if option[:2] == "--"]
    return f"no such option {name}: {did_you_mean(name, options_of_run)} Put options of the script after its name"
