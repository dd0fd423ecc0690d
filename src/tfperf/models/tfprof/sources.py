"""The files of a model, and the steps that they hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tfperf.formats.models.checkpoint import Checkpoint
from tfperf.formats.models.graph_def import read_graph
from tfperf.formats.models.input_file import InputFile, TfprofInputError
from tfperf.models.tfprof import OptionError
from tfperf.models.tfprof.model import Model, build_model, with_checkpoint
from tfperf.models.tfprof.op_log import read_op_log
from tfperf.models.tfprof.profile_proto import read_profile
from tfperf.models.tfprof.run_metadata import read_run_metadata

_NUMBER = re.compile(r"\d+")
_STEP = re.compile(r"run_metadata_(\d{1,18})\.pb")
_LARGEST_STEP = (1 << 63) - 1


class Sources(Struct, frozen=True, kw_only=True):
    """The files of a model: a graph with step records and a log, or a profile, which contains all of them."""

    graph: Path | None = None
    run_metadata: Mapping[int, Sequence[Path]] = {}
    op_log: Path | None = None
    profile: Path | None = None
    checkpoint: Path | None = None
    """Adds a type to the nodes whose values it holds, and provides these values."""


def read_model(sources: Sources) -> Model:
    """Read a model; raises TfprofInputError."""
    model = _read_model(sources)
    return model if sources.checkpoint is None else with_checkpoint(model, Checkpoint(sources.checkpoint).tensors)


def _read_model(sources: Sources) -> Model:
    if sources.profile is not None:
        return read_profile(InputFile(sources.profile, "ProfileProto"))
    if sources.graph is None:
        raise TfprofInputError("no graph given: pass one with --graph, or a profile with --profile")
    saved_model = sources.graph / "saved_model.pb"
    graph = read_graph(InputFile(saved_model if saved_model.is_file() else sources.graph, "GraphDef"))
    # Lazy, because the records of all steps at once would take most of the memory.
    steps = {
        step: (read_run_metadata(InputFile(path, "RunMetadata")) for path in paths)
        for step, paths in sorted(sources.run_metadata.items())
    }
    log = read_op_log(InputFile(sources.op_log, "OpLogProto")) if sources.op_log is not None else None
    return build_model(graph, steps, log)


def read_folder(path: str | Path) -> Model:
    """Read a folder that `Collector` wrote; raises TfprofInputError."""
    return read_model(folder_sources(Path(path)))


def folder_sources(folder: Path) -> Sources:
    """Return the files of a collection: graph.pb, and run_metadata_STEP.pb, tfprof_log, model.ckpt if they exist.

    Raises TfprofInputError if the folder has no graph.pb.
    """
    graph, log = folder / "graph.pb", folder / "tfprof_log"
    if not graph.is_file():
        what = "has no graph.pb" if folder.is_dir() else "is not a folder"
        raise TfprofInputError(f"{folder} {what}: pass a folder that tfperf.tfprof.Collector wrote")
    records = {path: _STEP.fullmatch(path.name) for path in sorted(folder.iterdir())}
    steps = {int(step[1]): [path] for path, step in records.items() if step}
    checkpoint = folder / "model.ckpt" if (folder / "model.ckpt.index").is_file() else None
    return Sources(graph=graph, run_metadata=steps, op_log=log if log.is_file() else None, checkpoint=checkpoint)


def steps_of(texts: Sequence[str]) -> dict[int, list[Path]]:
    """Return the files of each step, from `STEP=FILE`, `FILE` or a pattern; raises ValueError.

    Without `STEP=`, the step is the last number in the file name, or 0 for a single file without a number. Several
    files of one step come from different hosts and are merged.
    """
    steps: dict[int, list[Path]] = {}
    for text in texts:
        named = re.fullmatch(r"(\d{1,19})=(.+)", text, re.DOTALL)
        paths = _files(named[2] if named else text)
        for path in paths:
            numbers = _NUMBER.findall(path.name)
            if not named and not numbers and len(texts) + len(paths) > 2:
                raise OptionError(f"{path} has no number in its name: specify the step, for example 10={path}")
            step = int(named[1] if named else numbers[-1] if numbers else 0)
            if step > _LARGEST_STEP:
                raise OptionError(f"{text!r}: no step has this number")
            steps.setdefault(step, []).append(path)
    return steps


def _files(text: str) -> list[Path]:
    import glob

    if Path(text).is_file() or not glob.has_magic(text):
        return [Path(text)]
    found = sorted(glob.glob(text))  # noqa: PTH207 (a pattern may be absolute)
    if not found:
        raise OptionError(f"no file matches {text!r}")
    return [Path(path) for path in found]
