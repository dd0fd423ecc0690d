"""`tfperf tfprof`: the cost of a model by name scope, graph, op type and line of code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
from msgspec.structs import replace

from tfperf.base.process import lacks_memory
from tfperf.cli import options, with_manners
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof import OptionError
from tfperf.report.render import FORMATS

if TYPE_CHECKING:
    from tfperf.models.tfprof.model import Model
    from tfperf.models.tfprof.options import Options
    from tfperf.models.tfprof.sources import Sources
    from tfperf.models.tfprof.views import View

_EXAMPLES = {
    "scope": "--graph graph.pb --run-meta 'run_metadata_*.pb' --op-log tfprof_log",
    "graph": "--profile profile.pb --step 70",
    "op": "--profile profile.pb --order-by micros --select micros,occurrence",
    "code": "--profile profile.pb --preset time-and-memory",
}

_DOCS = {
    "scope": "Show the cost of each name scope: layers and their contents.",
    "graph": "Show the cost of each node, including its inputs.",
    "op": "Show the cost of each op type.",
    "code": "Show the cost of each Python line that built a part of the graph.",
}


_MORE = """
    SOURCE is a folder that tfperf.tfprof.Collector wrote, or a TensorFlow 2 profile: a logdir, a run folder or one
    *.xplane.pb file. Without SOURCE, pass the files as options: a graph, the records of its runs and a log of the code
    that built it, or a ProfileProto, which contains all three.

    \b
    Example:
      tfperf tfprof {view} collected/
      tfperf tfprof {view} {example}
"""


class _Views(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_DOCS, "advise", "params"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        made = _view_command(cmd_name) if cmd_name in _DOCS else {"advise": advise, "params": params}.get(cmd_name)
        return with_manners(made) if made else None


@click.group("tfprof", cls=_Views, short_help="Show the cost of a model by scope, graph, op type and line of code.")
def command() -> None:
    """Show parameters, float operations, memory and time of a model by name scope, graph, op or line of code.

    \b
    Example:
      tfperf tfprof scope --profile profile.pb
      tfperf tfprof op --graph graph.pb --run-meta 'run_metadata_*.pb'
      tfperf tfprof params model.keras
    """


def _view_command(view: str) -> click.Command:
    def run(**values: Any) -> None:
        _show_view(cast("View", view), values)

    made = model_options(view_options(run))
    help = f"{_DOCS[view]}\n{_MORE.format(view=view, example=_EXAMPLES[view])}".replace("\n    ", "\n")
    return click.command(view, short_help=_DOCS[view], help=help)(made)


def _show_view(view: View, values: dict[str, Any]) -> None:
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
        # tfprof's own text and the timeline of runs keep all steps.
        keeps_first = format_name == "tfprof" or (view, target.kind) == ("graph", "timeline")
        model, asked, notes, checkpoint = read_asked(values, view, asked, chosen=chosen, keeps_first=keeps_first)
        if not as_report:
            if model.skipped and values["skip_first"] is None:
                options.say("the mean excludes the first recorded step; --skip-first 0 includes it")
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


_LEAST = {
    "bytes": "requested memory, in bytes,",
    "peak_bytes": "peak memory, in bytes,",
    "residual_bytes": "residual memory, in bytes,",
    "output_bytes": "output size, in bytes,",
    "micros": "time, in microseconds,",
    "accelerator_micros": "time on the accelerator, in microseconds,",
    "cpu_micros": "time on the CPU, in microseconds,",
    "params": "number of parameters",
    "float_ops": "number of float operations",
    "occurrence": "number of runs (op view: nodes)",
}

_PATTERNS = {
    "account_type": "Count only nodes with a matching type: an op, a device, or a type from the log.",
    "start_name": "Start at the topmost rows that match.",
    "trim_name": "Hide all rows below rows that match (code: and the rows themselves).",
    "show_name": "Show only rows that match.",
    "hide_name": "Hide rows that match; their children move up.",
}

_OPTION_OF = {"op_log": "op-log", "run_metadata": "run-meta"}


class Asked(NamedTuple):
    """The requested model, its adjusted options, and notes on its numbers."""

    model: Model
    options: Options
    notes: tuple[str, ...]
    checkpoint: Path | None = None


class Unusable(click.ClickException):
    """An option has an unusable value: one line, exit code 2."""

    exit_code = 2


@contextmanager
def reading() -> Iterator[None]:
    """Convert errors of inputs and options to one line and exit code 2."""
    from tfperf.report.render.values import for_people, without_commands

    try:
        yield
    except (TfprofInputError, OptionError) as error:
        if lacks_memory(error):
            raise
        raise Unusable(without_commands(for_people(str(error)))) from error


model_options = options.together(
    click.argument("trace", type=options.PATH, required=False, metavar="[SOURCE]"),
    click.option("--graph", type=options.PATH, help="A GraphDef (binary or text), MetaGraphDef or SavedModel."),
    click.option(
        "--run-meta",
        "run_metadata",
        multiple=True,
        metavar="[STEP=]FILE",
        help="RunMetadata of a step (repeatable; 'run_metadata_*.pb' reads steps from the names).",
    ),
    click.option(
        "--op-log", type=options.PATH, help="The log of the code that built the graph: float operations, lines of code."
    ),
    click.option("--checkpoint", type=options.PATH, help="A checkpoint with the values of variables."),
    click.option("--profile", type=options.PATH, help="A ProfileProto with graph, runs and log."),
    click.option("--run", metavar="NAME", help="For a logdir: use this run instead of the newest."),
    click.option("--host", metavar="NAME", help="For a profile: use this host instead of the first."),
    click.option(
        "--skip-first",
        type=options.COUNT,
        metavar="N",
        help="Omit the first N steps.  [default: 1 for a mean of recorded steps, else 0]",
    ),
)


def comma_separated(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts of comma-separated lists."""
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


view_options = options.together(
    click.option(
        "--preset", metavar="NAME", help="parameters, float-operations or time-and-memory; other options override it."
    ),
    click.option("-c", "--config", type=options.PATH, help="A JSON file with options, named as in tfprof."),
    click.option("--step", type=int, help="A recorded step; -1: their mean.  [default: -1]"),
    click.option("--max-depth", type=options.COUNT, help="Levels to show, including the root.  [default: 100]"),
    *(
        click.option(
            f"--min-{name.replace('_', '-')}", type=options.COUNT, metavar="N", help=f"Minimum {text} to show."
        )
        for name, text in _LEAST.items()
    ),
    click.option("--order-by", metavar="KEY", help="name, or a value such as micros (largest first)."),
    *(
        click.option(f"--{name.replace('_', '-')}-regexes", multiple=True, metavar="REGEX", help=text)
        for name, text in _PATTERNS.items()
    ),
    click.option(
        "--account-displayed-op-only/--account-all", default=None, help="Totals include only shown rows, or all rows."
    ),
    click.option(
        "--select",
        multiple=True,
        callback=comma_separated,
        metavar="KEYS",
        help="Values to show: micros,bytes,params,...",
    ),
    click.option("--all-frames", is_flag=True, help="Code view: include frames of installed packages."),
    click.option("--reference-quirks", is_flag=True, help="With --format tfprof: reproduce its known defects."),
    click.option(
        "--format", "format_name", type=click.Choice([*FORMATS, "tfprof"]), help="tfprof: exactly its own text."
    ),
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        help="File for the report (the suffix selects the format); or timeline=FILE, pprof=FILE, flame=FILE, "
        "file=FILE, none, stdout.",
    ),
    options.FORCE,
    options.TOP,
)


def asked_options(values: Mapping[str, Any]) -> tuple[Options, bool, bool]:
    """Return the options, and whether the user chose the selection and the order; raises OptionError.

    The command line has precedence over the file, and the file over a preset.
    """
    from tfperf.models.tfprof.options import PRESETS, Options, options_from

    given: dict[str, Any] = {"max_depth": 100}
    if values["preset"] is not None:
        if values["preset"] not in PRESETS:
            raise OptionError(f"--preset {values['preset']!r} is unknown: use one of {', '.join(PRESETS)}")
        given |= PRESETS[values["preset"]]
    if values["config"] is not None:
        given |= _config(values["config"])
    given |= {
        name: value
        for name in Options.__struct_fields__
        if (value := values.get(name)) is not None and value != () and name != "output"
    }
    chosen = "select" in given
    if not chosen:
        given["select"] = (
            ("micros",) if values["format_name"] == "tfprof" else ("micros", "bytes", "params", "float_ops")
        )
    return options_from(given), chosen, "order_by" in given


def _config(path: Path) -> dict[str, Any]:
    """Return the options of a file: OptionsProto in protobuf's JSON form, which allows camel case."""
    import json

    from tfperf.models.tfprof.options import Options

    try:
        content = json.loads(InputFile(path, "JSON file of options").data)
    except ValueError as error:
        raise OptionError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise OptionError(f'{path} is not a JSON object with options, for example {{"max_depth": 4}}')
    given = {re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", key): content[key] for key in content}
    numbers = {name for name, kind in Options.__annotations__.items() if kind == "int"}
    return {
        key: int(value) if key in numbers and isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else value
        for key, value in given.items()
        if key != "dump_to_file"
    }


def read_asked(
    values: Mapping[str, Any], view: View, asked: Options, *, chosen: bool, keeps_first: bool = False
) -> Asked:
    """Read the model of a profile, a collected folder, or the files in options; raises OptionError and read errors.

    `keeps_first`: a mean of recorded steps includes the first one, unless options omit it.
    """
    trace: Path | None = values["trace"]
    if trace is not None and not (trace / "graph.pb").is_file():
        from tfperf.models.tfprof.from_trace import trace_model

        _refuse(values, ("run_metadata", "profile", "checkpoint"), str(trace))
        named = {name: values[name] for name in ("graph", "op_log", "run", "host")}
        traced = trace_model(trace, view, **named, skip_first=values["skip_first"] or 0)
        if not chosen:
            asked = replace(asked, select=tuple(name for name in asked.select if name not in traced.unknown))
        traced.check(asked)
        return Asked(traced.model, asked, traced.notes)
    from tfperf.models.tfprof.model import AVERAGE

    model, checkpoint = read_files(values, keeps_first=keeps_first or asked.step != AVERAGE)
    return Asked(model, asked, (), checkpoint)


def read_files(values: Mapping[str, Any], *, keeps_first: bool = False) -> tuple[Model, Path | None]:
    """Read the model from the files in options; return it with the path of its checkpoint. Raises as `read_asked`.

    The first traced step includes one-time work, so a mean omits it by default, if it has other steps.
    """
    from tfperf.models.tfprof.sources import read_model
    from tfperf.models.tfprof.step_times import skip_first

    sources = _sources(values)
    model, count = read_model(sources), values["skip_first"]
    if count is None:
        count = int(len(model.steps) > 1 and not keeps_first)
    return skip_first(model, count), sources.checkpoint


def _refuse(values: Mapping[str, Any], names: Sequence[str], whole: str) -> None:
    given = next((name for name in names if values[name]), None)
    if given:
        raise OptionError(f"{whole} includes everything: omit --{_OPTION_OF.get(given, given)}")


def _sources(values: Mapping[str, Any]) -> Sources:
    from tfperf.models.tfprof.sources import Sources, folder_sources, steps_of

    parts = ("graph", "op_log", "run_metadata")
    if values["trace"] is not None:
        _refuse(values, (*parts, "profile"), str(values["trace"]))
        sources = folder_sources(values["trace"])
        return replace(sources, checkpoint=values["checkpoint"]) if values["checkpoint"] else sources
    if values["profile"] is not None:
        _refuse(values, parts, "--profile")
    return Sources(
        graph=values["graph"],
        run_metadata=steps_of(values["run_metadata"]),
        op_log=values["op_log"],
        profile=values["profile"],
        checkpoint=values["checkpoint"],
    )


@click.command("advise", short_help="Show what to look at first.")
@model_options
@click.option(
    "--checkers",
    multiple=True,
    callback=comma_separated,
    metavar="NAMES",
    help="Run only these checkers: AcceleratorUtilization, Operation, ExpensiveOperation, Job.",
)
@click.option("--all-frames", is_flag=True, help="Include frames of installed packages in lines of code.")
@options.report_options
def advise(format_name: str | None, output: Path | None, force: bool, **values: Any) -> None:
    """Check a model and its runs: accelerator utilization, the most expensive ops and lines, and hosts that wait for
    each other.

    \b
    Example:
      tfperf tfprof advise --profile profile.pb
      tfperf tfprof advise collected/ --checkers ExpensiveOperation
    """
    from tfperf.models.tfprof.advise import CHECKERS, advise_report

    options.check_output(output, format_name, force=force)
    with reading():
        model, _ = read_files(values)
        checkers = values["checkers"] or CHECKERS
        report = advise_report(model, checkers=checkers, every_frame=values["all_frames"])
    options.show(report, format_name, output, force=force, view="whole")


@click.command("params", short_help="Show the parameters of a model by layer, from any of its files.")
@click.argument("source", type=options.PATH)
@click.option("--op-log", type=options.PATH, help="The tfprof log, which lists the trained variables of a graph.")
@options.report_options
@options.TOP
def params(
    source: Path, op_log: Path | None, format_name: str | None, output: Path | None, force: bool, top: int | None
) -> None:
    """Show the parameters of a model by layer: number, shape, type, and whether they are trained.

    SOURCE is a SavedModel folder, a .keras, .weights.h5 or .h5 file, a checkpoint (its prefix, one of its files, or a
    folder with the file `checkpoint`), or a graph (GraphDef or MetaGraphDef). HDF5 files require h5py: pip install
    'tfperf[h5]'. Optimizer variables and step counters are listed separately.

    \b
    Example:
      tfperf tfprof params model.keras
      tfperf tfprof params saved_model/ --top 30
      tfperf tfprof params model.ckpt -o params.json
      tfperf tfprof params graph.pb --op-log tfprof_log
    """
    options.check_output(output, format_name, force=force)
    with reading():
        from tfperf.models.tfprof.params import params_report

        report = params_report(source, op_log)
    options.show(report, format_name, output, force=force, top=top)
