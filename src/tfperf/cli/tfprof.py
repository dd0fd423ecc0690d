"""`tfperf tfprof`: what a model costs, by name scope, graph, op type and line of code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from tfperf.cli import options, with_manners
from tfperf.cli.tfprof_options import asked_options, model_options, read_asked, reading, view_options

if TYPE_CHECKING:
    from tfperf.models.tfprof.views import View

_EXAMPLES = {
    "scope": "--graph graph.pb --run-meta 'run_metadata_*.pb' --op-log tfprof_log",
    "graph": "--profile profile.pb --step 70",
    "op": "--profile profile.pb --order-by micros --select micros,occurrence",
    "code": "--profile profile.pb --preset time-and-memory",
}
_DOCS = {
    "scope": "Show what each name scope costs: layers and what is in them.",
    "graph": "Show what each node costs with all that feeds it.",
    "op": "Show what each op type costs.",
    "code": "Show what each line of Python costs that built a part of the graph.",
}
_MODULES = {"advise": "tfperf.cli.tfprof_advise", "params": "tfperf.cli.tfprof_params"}
_MORE = """
    SOURCE is a folder that tfperf.tfprof.Collector wrote, or a profile of TensorFlow 2: a logdir, a run folder or one
    *.xplane.pb file. Without it, options name the files: a graph, what its runs recorded, and a log of who built it, or
    a ProfileProto, which holds all three.

    \b
    Example:
      tfperf tfprof {view} collected/
      tfperf tfprof {view} {example}
"""


class _Views(click.Group):
    """The commands of tfprof; modules of others are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_DOCS, *_MODULES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from importlib import import_module

        if cmd_name in _MODULES:
            return with_manners(import_module(_MODULES[cmd_name]).command)
        return with_manners(_view_command(cmd_name)) if cmd_name in _DOCS else None


@click.group("tfprof", cls=_Views, short_help="Say what a model costs, by scope, graph, op type and line of code.")
def command() -> None:
    """Say what a model costs: parameters, float operations, memory and time, by name scope, graph, op or line of code.

    \b
    Example:
      tfperf tfprof scope --profile profile.pb
      tfperf tfprof op --graph graph.pb --run-meta 'run_metadata_*.pb'
      tfperf tfprof params model.keras
    """


def _view_command(view: str) -> click.Command:
    """Return the command of a view: all have the same options."""

    def run(**values: Any) -> None:
        _show_view(cast("View", view), values)

    made = model_options(view_options(run))
    help = f"{_DOCS[view]}\n{_MORE.format(view=view, example=_EXAMPLES[view])}".replace("\n    ", "\n")
    return click.command(view, short_help=_DOCS[view].rstrip("."), help=help)(made)


def _show_view(view: View, values: dict[str, Any]) -> None:
    """Read the model, and show a view of it as it is asked for."""
    from tfperf.models.tfprof.outputs import parse_output, write_output

    format_name, force = values["format_name"], values["force"]
    with reading():
        asked, chosen, ordered = asked_options(values)
        target = parse_output(values["output"] or asked.output, view)
    as_report = target.kind in ("stdout", "file") and format_name != "tfprof"
    if as_report:
        options.check_output(target.path, format_name, force=force)
    else:
        options.refuse_existing(target.path, force=force)
    with reading():
        model, asked, notes, checkpoint = read_asked(values, view, asked, chosen=chosen)
        if not as_report:
            quirks, every_frame = values["reference_quirks"], values["all_frames"]
            for note in write_output(model, view, asked, target, quirks=quirks, every_frame=every_frame):
                options.say(note)
            return
        from tfperf.models.tfprof.report import ReportDetail, view_report

        shown = ReportDetail(
            chosen=chosen,
            ordered=ordered,
            top=values["top"],
            every_frame=values["all_frames"],
            notes=notes,
            checkpoint=checkpoint,
        )
        report = view_report(model, view, asked, shown)
    options.show(report, format_name, target.path, force=force, view="whole")
