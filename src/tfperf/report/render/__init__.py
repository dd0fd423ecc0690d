"""Render reports: `render(report, "table", options)` returns text; `write` is the only writer of reports.

`FORMATS` declares all formats for the command line, `render` and the tests. A format is imported on use, so that
`tfperf --help` is fast. Files are written next to their destination and then moved, so that readers never get a partial
report.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from msgspec import Struct

from tfperf.base.errors import OutputError
from tfperf.base.files import new_file, refuse_existing, write_files
from tfperf.base.storage.remote_path import Location, RemotePath
from tfperf.report.palette import Colours
from tfperf.report.render.screen import PIPE_WIDTH, Screen, is_longer, show_in_pager

if TYPE_CHECKING:
    from tfperf.report.model import Level, Report

View = Literal["answer", "whole", "sections"]


class RenderOptions(Struct, frozen=True):
    """Width in cells, colors, and the reader."""

    width: int = PIPE_WIDTH
    colour: bool = False
    interactive: bool = False
    """For a terminal: long names are cut in the middle. Files and pipes get whole names."""
    colours: Colours = "16"
    links: bool = False
    """Whether the documentation of a cause is a link (OSC 8) instead of an address."""
    target: str = ""
    """The profile with its options, as typed in a shell, for `PATH` in commands; empty: the folder of the run."""
    view: View = "answer"
    """Extent of a report for people: the first screen, all sections in brief, or selected sections in full."""
    top: int | None = None
    """Rows of a ranked table for people; None: the table's own number."""
    sort: str = ""
    """Key of the column that sorts tables."""
    most_rows: int | None = None
    """Rows of each table, ranked or not; None: no such limit."""


class Format(Struct, frozen=True):
    """A format, its usual suffix first. `level`: "brief" for reading, "full" for browsing, "data" for programs."""

    name: str
    suffixes: tuple[str, ...]
    level: Level
    answers: bool
    """Whether it shows only the first screen by default."""
    renderer: str
    """`module:function`, imported on use; called with the report and RenderOptions."""
    has_pictures: bool = False
    """Whether it shows pictures, which are expensive to prepare."""


FORMATS: Mapping[str, Format] = {
    each.name: each
    for each in (
        Format("table", (".txt",), "brief", True, "tfperf.report.render.terminal:render_terminal"),
        Format("json", (".json",), "data", False, "tfperf.report.render.data_files:render_json"),
        Format("csv", (".csv",), "data", False, "tfperf.report.render.data_files:render_csv"),
        Format("markdown", (".md", ".markdown"), "brief", False, "tfperf.report.render.markdown:render_markdown"),
        Format("html", (".html", ".htm"), "full", False, "tfperf.report.render.page:render_page", has_pictures=True),
    )
}
"""Formats by name, in the order of the help."""


def format_of_file(path: Location) -> str | None:
    """Return the name of the format for a file's suffix, or None."""
    suffix = path.suffix.lower()
    return next((each.name for each in FORMATS.values() if suffix in each.suffixes), None)


def render(report: Report, format_name: str, options: RenderOptions | None = None) -> str:
    """Return the report as text in one of `FORMATS`, by default for a file or a pipe."""
    from pkgutil import resolve_name

    from tfperf.report.shown import Detail, shown

    if format_name not in FORMATS:
        raise OutputError(f"unknown format {format_name!r}; choose one of {', '.join(FORMATS)}")
    options = options or RenderOptions()
    chosen, is_whole = FORMATS[format_name], options.view != "sections"
    if chosen.level == "brief":
        people: Level = "brief" if is_whole else "full"
        only_leads = chosen.answers and options.view == "answer"
        detail = Detail(
            *(people, people, options.top), only_leads=only_leads, sort=options.sort, most_rows=options.most_rows
        )
    else:
        sections: Level = "brief" if is_whole and chosen.level == "full" else "data"
        is_page = chosen.level == "full"
        detail = Detail(
            *(sections, "data", options.top),
            for_people=False,
            apart=is_page,
            every_row=not is_page,
            leads_first=is_page,
            sort=options.sort,
            most_rows=options.most_rows,
        )
    renderer: Callable[[Report, RenderOptions], str] = resolve_name(FORMATS[format_name].renderer)
    return renderer(shown(report, detail), options)


def options_for(screen: Screen) -> RenderOptions:
    """Return the options for a report on this screen."""
    return RenderOptions(
        width=screen.width,
        colour=screen.colour,
        interactive=screen.interactive,
        colours=screen.colours,
        links=screen.links,
    )


STDOUT = Path("-")


def write(text: str, destination: Location | None, *, force: bool = False, screen: Screen | None = None) -> None:
    """Write a report to a file or stdout (None or `-`), through a pager if `screen` allows; replace with `force`."""
    if destination is None or destination == STDOUT:
        if destination is None and screen is not None and screen.pages:
            sys.stdout.flush()
            if is_longer(text, screen.width, screen.height) and show_in_pager(text, os.environ):
                return
        _write_stdout(text)
        return
    refuse_existing([destination], force=force)
    with new_file(destination) as file:
        file.write(_encoded(text))


def write_folder(files: Mapping[str, str], folder: Location, *, force: bool = False) -> None:
    """Write all files into a folder, or none; create a missing folder together with its files.

    Raise OutputError for too little space, existing files without `force`, or another process writing into the folder.
    """
    from tfperf.base.files import locked_place, new_folder  # imported only for folders

    targets = {folder / name: _encoded(text) for name, text in files.items()}
    refuse_existing(list(targets), force=force)
    if isinstance(folder, RemotePath):
        write_files(targets)
    elif folder.is_dir():
        with locked_place(folder, folder):
            refuse_existing(list(targets), force=force)  # again, because another process may have written them
            write_files(targets)
    elif folder.exists():
        raise OutputError(f"{folder} is a file; pass a folder")
    else:
        with new_folder(folder) as made:
            for target, data in targets.items():
                (made / target.name).write_bytes(data)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="backslashreplace")


def _write_stdout(text: str) -> None:
    """Write to stdout, escaping unsupported characters; a reader that closes the pipe (`| head`) is not an error."""
    stream = sys.stdout
    if stream is None:
        raise OutputError("stdout is closed; pass an output file with -o")
    encoding = stream.encoding or "utf-8"
    data = text.encode(encoding, errors="backslashreplace")
    try:
        stream.flush()
        if isinstance(getattr(stream, "buffer", None), io.RawIOBase):
            WholeOutput(stream.fileno()).write(data)
        elif hasattr(stream, "buffer"):
            stream.buffer.write(data)
        else:
            stream.write(data.decode(encoding))
        stream.flush()
    except BrokenPipeError:
        discard(stream)
    except OSError as error:
        discard(stream)
        raise OutputError(f"cannot write to stdout: {error.strerror or error}") from error


_NO_FILE = -1


class WholeOutput(io.RawIOBase):
    """A file descriptor that writes everything, or raises OutputError once and then writes nothing more.

    With PYTHONUNBUFFERED, as in many containers, Python's stdout is an unbuffered file: if the system truncates a write
    (a full disk, `ulimit -f`, a non-blocking pipe), it silently loses the rest.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._is_lost = descriptor, False

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Write all bytes; raise OutputError, or BrokenPipeError if the reader has closed."""
        left = memoryview(data).cast("B")
        size = len(left)
        while left and not self._is_lost:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])
            except BrokenPipeError:
                raise
            except OSError as error:
                self._is_lost = True
                reason = "it is closed" if error.errno == errno.EBADF else error.strerror or error
                raise OutputError(f"cannot write to stdout: {reason}") from error
        return size


def whole_stdout() -> None:
    """Make stdout a stream that writes everything or fails; not for a terminal, which can disappear at any time.

    If it is closed (`>&-`), Python has no stdout, and output would be lost silently.
    """
    stdout = sys.stdout
    if stdout is None:
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(WholeOutput(_NO_FILE)), "utf-8", "backslashreplace")
        return
    if os.name != "posix" or not isinstance(stdout, io.TextIOWrapper) or stdout.isatty():
        return
    stdout.flush()
    is_unbuffered = isinstance(stdout.buffer, io.RawIOBase)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(WholeOutput(stdout.fileno())),
        encoding=stdout.encoding,
        errors=stdout.errors,
        newline="\n",
        line_buffering=stdout.line_buffering or is_unbuffered,
    )


def discard(stream: TextIO) -> None:
    """Discard buffered output, which the interpreter would otherwise write again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
