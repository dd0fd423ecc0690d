"""Where a view goes: to stdout, to a file, or into the files of other tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tfperf.base.files import new_file
from tfperf.base.units import Unit, counted
from tfperf.formats.models.input_file import TfprofInputError
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import Model
from tfperf.models.tfprof.options import ATTRIBUTES, PLACE, Options
from tfperf.models.tfprof.report import of_users, with_parameters
from tfperf.models.tfprof.views import Shown, View, show_tree
from tfperf.report.flame_tree import FlameScale, FlameTree, flame_chart
from tfperf.report.render import write

Kind = Literal["stdout", "none", "file", "timeline", "pprof", "flame"]
_VIEWS: dict[str, tuple[str, ...]] = {
    "timeline": ("scope", "graph", "code"),
    "pprof": ("code",),
    "flame": ("scope", "code"),
}
_KINDS = ("file", "timeline", "pprof", "flame")
_KIND = "|".join(_KINDS)
_OUTPUT = re.compile(rf"({_KIND})(?::outfile)?=(.+)", re.DOTALL)


class Target(Struct, frozen=True):
    """What is written, and the file that it is written to; None for stdout."""

    kind: Kind
    path: Path | None = None


def parse_output(text: str, view: View) -> Target:
    """Return where a view is to go: `stdout`, `none`, `timeline=FILE`, ..., as tfprof writes it too, or a path.

    Raises ValueError for an output that the view does not have.
    """
    if text in ("stdout", "stdout:", "-", ""):
        return Target("stdout")
    if text in ("none", "none:"):
        return Target("none")
    named = _OUTPUT.fullmatch(text)
    if named is None:
        kind = re.fullmatch(rf"({_KIND}):?", text)
        if kind:
            raise OptionError(f"output {text!r} names no file: write {kind[1]}=FILE")
        if re.match(r"\w+(:outfile)?=", text):
            raise OptionError(f"output {text!r} is unknown: write stdout, none, or {', '.join(_KINDS)} with =FILE")
        return Target("file", Path(text))
    kind_name = named[1]
    if view not in _VIEWS.get(kind_name, (view,)):
        has = " and ".join(_VIEWS[kind_name])
        raise OptionError(f"the {view} view has no {kind_name}: use {has}")
    return Target(kind_name, Path(named[2]))  # type: ignore[arg-type]


def write_output(
    model: Model, view: View, options: Options, target: Target, *, quirks: bool, every_frame: bool = False
) -> list[str]:
    """Write a view as another tool reads it, or as tfprof's own text; return what to tell about it.

    Raises ValueError for a step that was not recorded, TfprofInputError where there is nothing to write, and
    OutputError.
    """
    model.recorded(options.step)
    if target.kind == "none":
        return []
    if target.path is None or target.kind == "file":
        from tfperf.models.tfprof.reference import reference_report
        from tfperf.report.render.values import safe, without_commands

        text = reference_report(model, view, options, quirks=quirks, to_file=str(target.path or ""))
        shown = "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))
        write(without_commands(shown), target.path, force=True)
        told = []
    elif target.kind == "timeline":
        from tfperf.models.tfprof.timeline import write_timeline

        told = write_timeline(model, view, options, target.path)
    else:
        told = []
        if target.kind == "pprof":
            from tfperf.models.tfprof.pprof import pprof_bytes

            data = pprof_bytes(model, options)
        else:
            data = _flame(of_users(model, every_frame), view, options)
        with new_file(target.path) as file:
            file.write(data)
    return [*([f"wrote {target.path}: {target.kind}"] if target.path else []), *told]


def _flame(model: Model, view: View, options: Options) -> bytes:
    """Return the page of what rows are sorted by, or else of the first selected value that there is."""
    shown = show_tree(model, view, options, with_parameters(model, model.values(options.step)))
    named = [name for name in (options.order_by, *options.select) if name in ATTRIBUTES]
    attribute = next((name for name in named if shown.root_total[PLACE[name]]), (*named, "micros")[0])
    return view_page(shown, attribute, f"tfprof {view}").encode()


MOST_BOXES = 5_000
"""More are too narrow to be seen, and make browsers slow."""

_SHOWN_AS: Mapping[str, tuple[str, Unit, int]] = {
    "micros": ("time of accelerator and CPU", "ms", 1000),
    "accelerator_micros": ("time of accelerators", "ms", 1000),
    "cpu_micros": ("time of the CPU", "ms", 1000),
    "bytes": ("requested memory", "bytes", 1),
    "peak_bytes": ("peak memory", "bytes", 1),
    "residual_bytes": ("residual memory", "bytes", 1),
    "output_bytes": ("size of outputs", "bytes", 1),
    "params": ("parameters", "count", 1),
    "float_ops": ("float operations", "count", 1),
}
"""What a box is as wide as: in words, the unit that is shown, and how much of what a view counts in it is."""


def view_page(shown: Shown, attribute: str, title: str) -> str:
    """Return what the scope or the code view shows as a page with a flame graph, by the totals of an attribute.

    Boxes have their total, their own value and their shares as text; a click makes one as wide as the page. Of more
    than `MOST_BOXES`, the widest are drawn. Raises ValueError if the attribute has no sum, TfprofInputError if nothing
    has any of it.
    """
    from tfperf.report.render.flame.drawing import FlameDocument, flame_page

    if attribute not in _SHOWN_AS:
        raise OptionError(f"a flame graph of {attribute!r} is not possible: use one of {', '.join(_SHOWN_AS)}")
    what, unit, divisor = _SHOWN_AS[attribute]
    tree, place = shown.tree, PLACE[attribute]
    flame = FlameTree(
        stacks=((), *(tuple(name.split("/")) for name in tree.names[1:])),
        depth=tree.depth - tree.depth[0],
        total=shown.total[place],
        own=tree.own[place],
    )
    chart = flame_chart(flame, title, FlameScale(unit=unit, divisor=divisor, separator="/"), most=MOST_BOXES)
    if not chart.widths:
        raise TfprofInputError(f"nothing that is shown has any {attribute}, so there is nothing to draw")
    sentences = [f"A box is as wide as its {what}."]
    if empty := len(tree) - len(chart.widths) - chart.omitted:
        sentences.append(f"Not drawn: {counted(empty, 'row')} without {what}.")
    return flame_page(FlameDocument(title=title, sentences=tuple(sentences), charts=(chart,)))
