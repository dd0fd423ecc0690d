"""`tfperf tfprof params`."""

from __future__ import annotations

from pathlib import Path

import click

from tfperf.cli import options, typed
from tfperf.cli.tfprof_options import reading


@click.command("params", short_help="Show which layers hold the parameters of a model, from any file of it.")
@click.argument("source", type=typed.PATH)
@click.option("--op-log", type=typed.PATH, help="The log of tfprof, which says which variables of a graph are trained.")
@options.report_options
@options.TOP
def command(
    source: Path, op_log: Path | None, format_name: str | None, output: Path | None, force: bool, top: int | None
) -> None:
    """Show which layers hold the parameters of a model: how many, of what shape and type, and whether they are trained.

    SOURCE is a SavedModel (its folder), a .keras, .weights.h5 or .h5 file, a checkpoint (its prefix, one of its files,
    or a folder with the file `checkpoint`), or a graph (GraphDef or MetaGraphDef). Files of HDF5 need h5py: pip install
    'tfperf[h5]'. What optimizers keep, and counters of steps, are listed apart.

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
