"""`tfperf anonymize`: a run, host by host, as a new logdir of the same layout."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from tfperf.base.errors import OutputError
from tfperf.base.files import cannot_write, new_files
from tfperf.base.folders import locked_place, new_folder
from tfperf.base.storage.remote_path import Location
from tfperf.base.units import counted
from tfperf.export.anonymize.names import Names
from tfperf.formats.wire.rewrite import rewrite
from tfperf.formats.wire.trace_file import SUFFIX, TraceFile
from tfperf.trace.logdir import HostFile, Run, choose_run, find_runs

_NAMED_BY_TIME = re.compile(r"[\d_-]*")
_UNNAMED_RUN = "run"


class Copied(Struct, frozen=True):
    """What was written: the files, one for each host, and how many words of names were replaced."""

    files: tuple[Path, ...]
    replaced: int

    def sentences(self) -> list[str]:
        """Return what people must know about the copy."""
        folder = self.files[0].parent
        return [
            f"wrote {counted(len(self.files), 'host')} to {folder}, {counted(self.replaced, 'word')} of names replaced",
            "look at it before you send it: numbers, times and sizes are the original's",
        ]


def anonymize(path: Location, output: Path, *, run: str | Sequence[str] | None = None, force: bool = False) -> Copied:
    """Write a copy of a run into the logdir `output`, with the names of all hosts replaced alike.

    Everything is written, or nothing. Raises TraceNotFoundError, TraceFormatError, and OutputError where a file exists
    (but for `force`; a file that is read is never replaced).
    """
    chosen = choose_run(find_runs(path), run)
    name = chosen.name if _NAMED_BY_TIME.fullmatch(chosen.name) else _UNNAMED_RUN
    folder = output / "plugins" / "profile" / name
    targets = {folder / f"{host}{SUFFIX}": (host, file) for host, file in _hosts(chosen)}
    _refuse(list(targets), chosen, force=force)
    names = Names()
    with contextlib.ExitStack() as stack:
        outputs: Iterable[BinaryIO]
        if folder.is_dir():
            stack.enter_context(locked_place(folder, folder))
            outputs = stack.enter_context(new_files(list(targets)))
        else:
            made = stack.enter_context(new_folder(folder))
            outputs = (stack.enter_context((made / target.name).open("xb")) for target in targets)
        for (target, (host, source)), out in zip(targets.items(), outputs, strict=True):
            with TraceFile(source.path) as file:
                try:
                    rewrite(file, out, names.replace, names.number, host)
                    out.flush()
                except OSError as error:
                    raise cannot_write(target, error) from error
    return Copied(tuple(targets), names.count)


def _hosts(run: Run) -> Iterator[tuple[str, HostFile]]:
    """Iterate over the files with what their hosts are called now; they keep their order."""
    digits = len(str(len(run.files)))
    for number, file in enumerate(run.files, 1):
        yield f"host{number:0{digits}}", file


def _refuse(targets: list[Path], run: Run, *, force: bool) -> None:
    """Raise OutputError where a file would be replaced that must not be."""
    sources = {file.path.resolve() for file in run.files}
    if any(target.resolve() in sources for target in targets):
        raise OutputError(f"{targets[0].parent} holds the profile itself; name another folder")
    folder = targets[0].parent
    others = sorted(set(folder.glob(f"*{SUFFIX}")) - (set(targets) if force else set()))
    if others and force:
        raise OutputError(f"{others[0]} is a host of another profile; name another folder")
    if others:
        raise OutputError(f"{others[0]} exists; name another folder, or pass --force to replace it")
