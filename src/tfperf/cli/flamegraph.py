"""`tfperf flamegraph`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tfperf.base.storage.remote_path import Location
from tfperf.cli import options
from tfperf.export.flamegraph import ON, PERS, STACKED_BY, VALUES
from tfperf.report.render import STDOUT, write

if TYPE_CHECKING:
    from tfperf.export.flamegraph.document import FlameFormat

_FORMATS = ("html", "svg", "folded", "speedscope")
_ASKED = ("on", "by", "value", "per", "merge_layers")
_READING = tuple(name for name in options.READING if name != "attribution")


@click.command("flamegraph", short_help="Draw op time or Python functions as a flame graph.")
@options.PROFILE_OR_LOGS
@options.run_option("Draw")
@options.HOST
@options.STEP_MARKER
@options.STEPS
@options.address_options
@options.host_options
@click.option("--on", type=click.Choice(ON), default="all", show_default=True, help="Where the ops run.")
@click.option(
    "--by",
    type=click.Choice(STACKED_BY),
    default="scope",
    show_default=True,
    help="Names of boxes; python: Python functions, if recorded; function: tf.functions.",
)
@click.option(
    "--value",
    type=click.Choice(VALUES),
    default="self-time",
    show_default=True,
    help="Width of boxes; bytes and flops if known.",
)
@click.option(
    "--per",
    type=click.Choice(PERS),
    help="Whole capture, or mean of averaged steps.  [default: capture; with --diff: step, if there are any]",
)
@click.option("--merge-layers", is_flag=True, help="Merge replicas and repeated layers.")
@click.option(
    "--diff", type=options.TRACE_PATH, metavar="OTHER", help="Color boxes that are slower or faster than in OTHER."
)
@click.option("--format", "format_name", type=click.Choice(_FORMATS), help="Default: from the suffix of -o.")
@click.option(
    "-o", "--output", type=options.OUTPUT, help="A .html, .svg, .folded or .speedscope.json file; - is stdout."
)
@options.FORCE
def command(
    path: Location, output: Location | None, format_name: FlameFormat | None, force: bool, **values: Any
) -> None:
    """Draw a profile as a flame graph: op time on host threads and devices, by name scope, layer or function.

    The suffix of the file selects the format: .html (zoom and search), .svg (image), .folded (for flamegraph.pl) or
    .speedscope.json (for https://www.speedscope.app). The default of PATH is ./logs.

    \b
    Example:
      tfperf flamegraph logs/ -o flame.html
      tfperf flamegraph logs/ --on device --by layer --per step -o layers.svg
      tfperf flamegraph logs/ --merge-layers -o model.html
      tfperf flamegraph logs/ --by python -o python.speedscope.json
      tfperf flamegraph after/ --diff before/ -o changes.html
      tfperf flamegraph logs/ --format folded | head
    """
    form = _form(output, format_name)
    options.refuse_existing(output, force=force)
    from tfperf.export.flamegraph import Question, QuestionError
    from tfperf.export.flamegraph.document import flame_graphs, flame_text, told
    from tfperf.report.render.values import without_commands

    question = Question(**{name: values[name] for name in _ASKED})
    try:
        question.check()
    except QuestionError as error:
        raise options.usage_error(error) from error
    reading = {name: values[name] for name in _READING}
    analysis = options.load_analysis(path, sections=question.sections, **reading)
    other = values["diff"]
    if other is not None:
        other = options.load_analysis(other, sections=question.sections, **{**reading, "run": None})
    graphs = flame_graphs(analysis, question, other)
    text = flame_text(graphs, form)
    is_file = output not in (None, STDOUT)
    write(text if is_file else without_commands(text), output or STDOUT, force=force)
    first, *more = told(graphs)
    if is_file:
        options.say(f"wrote {output}: flame graph ({form}): {first}")
    for line in filter(None, (analysis.steps_text, *more)):
        options.say(line)


def _form(output: Location | None, format_name: FlameFormat | None) -> FlameFormat:
    from tfperf.export.flamegraph.document import SUFFIXES, format_of

    if format_name:
        return format_name
    if output is None:
        raise click.UsageError("no output given: pass a file with -o, for example -o flame.html, or --format folded")
    if output == STDOUT:
        raise click.UsageError(f"-o - has no suffix: pass --format {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}")
    form = format_of(output)
    if form is None:
        raise click.UsageError(f"{output.name}: end the file name in {', '.join(SUFFIXES)}, or pass --format")
    return form
