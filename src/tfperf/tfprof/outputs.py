"""Where a view goes: to stdout, to a file, or into the files of other tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tfperf.files import new_file
from tfperf.render import write
from tfperf.tfprof.model import Model
from tfperf.tfprof.options import Options
from tfperf.tfprof.report import check_step
from tfperf.tfprof.views import View

Kind = Literal["stdout", "none", "file", "timeline", "pprof", "flame"]
_VIEWS: dict[str, tuple[str, ...]] = {
    "timeline": ("scope", "graph", "code"),
    "pprof": ("code",),
    "flame": ("scope", "code"),
}
_OUTPUT = re.compile(r"(file|timeline|pprof|flame)(?::outfile)?=(.+)", re.DOTALL)


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
        kind = re.fullmatch(r"(file|timeline|pprof|flame):?", text)
        if kind:
            raise ValueError(f"output {text!r} names no file: write {kind[1]}=FILE")
        return Target("file", Path(text))
    kind_name = named[1]
    if view not in _VIEWS.get(kind_name, (view,)):
        has = " and ".join(_VIEWS[kind_name])
        raise ValueError(f"the {view} view has no {kind_name}: use {has}")
    return Target(kind_name, Path(named[2]))  # type: ignore[arg-type]


def write_output(model: Model, view: View, options: Options, target: Target, *, quirks: bool) -> str:
    """Write a view as another tool reads it, or as tfprof's own text; return what to tell about it.

    Raises ValueError for a step that was not recorded, and OutputError.
    """
    check_step(model, options.step)
    if target.kind == "none":
        return ""
    if target.path is None or target.kind == "file":
        from tfperf.render.values import safe, without_commands
        from tfperf.tfprof.reference_report import reference_report

        text = reference_report(model, view, options, quirks=quirks, to_file=str(target.path or ""))
        shown = "\n".join("\t".join(map(safe, line.split("\t"))) for line in text.split("\n"))
        write(without_commands(shown), target.path, force=True)
    else:
        with new_file(target.path) as file:
            file.write(_bytes_of(model, view, options, target.kind))
    return f"wrote {target.path}: {target.kind}" if target.path else ""


def _bytes_of(model: Model, view: View, options: Options, kind: Kind) -> bytes:
    if kind == "pprof":
        from tfperf.tfprof.pprof import pprof_bytes

        return pprof_bytes(model, options)
    raise NotImplementedError(kind)
