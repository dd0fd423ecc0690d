"""The magic `%%tfperf` profiles a notebook cell. It needs IPython, so only `%load_ext tfperf` imports this module."""

from __future__ import annotations

import ast
import atexit
import inspect
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser
from IPython.display import display

from tfperf.analysis.load import load
from tfperf.analysis.registry import section_names
from tfperf.base.errors import CaptureError, TfperfError
from tfperf.capture.local import start, stop
from tfperf.capture.outcomes import Captured
from tfperf.notebook.values import html_of
from tfperf.report.render import RenderOptions, render

if TYPE_CHECKING:
    from types import CodeType

    from IPython.core.interactiveshell import InteractiveShell

_AWAITS = (
    "%%tfperf cannot profile a cell with await outside of a function, because the notebook's event loop cannot run "
    'inside itself; use: with tfperf.profile("logs"): ...'
)


class TfperfMagic:
    """The magic `%%tfperf` of one shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def run(self, line: str, cell: str) -> None:
        """Profile a cell with TensorFlow's profiler and show where its time goes.

        %%tfperf [LOGDIR] [-s SECTION ...] [--as NAME]

        The profile is stored in LOGDIR; without it, the profile is deleted when the kernel ends. -s shows a section in
        full, and --as assigns the analysis to a variable. The profile includes all TensorFlow activity in the cell,
        including the tracing of functions, so run a few steps in another cell first.

        Example:
            %%tfperf -s tfdata --as analysis
            model.fit(dataset, steps_per_epoch=20)
        """
        try:
            options = _parser().parse_args(shlex.split(line))
        except ValueError as error:
            raise UsageError(f"%%tfperf: {error}") from error
        captured = self._profile(self._compiled(cell), Path(options.logdir or _folder()))
        if captured.path is None:
            raise UsageError(f"%%tfperf: {captured.message}")
        with _in_one_line():
            analysis = load(captured.path)
        if options.name:
            self._shell.user_ns[options.name] = analysis
        if captured.message:
            print(f"tfperf: {captured.message}", file=sys.stderr)
        if options.logdir:
            print(f"profile: {captured.path}")
        # As HTML, or as text in a terminal.
        report = analysis.report(options.section)
        view = RenderOptions(view="sections" if options.section else "answer")
        html = html_of(report if options.section else analysis)
        display({"text/plain": render(report, "table", view), "text/html": html}, raw=True)

    def _compiled(self, cell: str) -> list[CodeType]:
        """Return the code of a cell as IPython would run it, which displays the last expression."""
        source = self._shell.transform_cell(cell)
        name = self._shell.compile.cache(source, self._shell.execution_count, raw_code=cell)
        tree = self._shell.transform_ast(ast.parse(source, name))
        if compile(tree, name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT).co_flags & inspect.CO_COROUTINE:
            raise UsageError(_AWAITS)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
        shown = [compile(ast.Interactive(last), name, "single")] if last else []
        return [compile(tree, name, "exec"), *shown]

    def _profile(self, codes: list[CodeType], logdir: Path) -> Captured:
        """Run code in the user's variables while it is profiled; its exceptions propagate."""
        with _in_one_line():
            start(logdir)
        try:
            for code in codes:
                exec(code, self._shell.user_ns)
        except BaseException:
            # The exception of the cell matters more than its trace.
            with suppress(CaptureError):
                stop()
            raise
        with _in_one_line():
            return stop()


@contextmanager
def _in_one_line() -> Iterator[None]:
    try:
        yield
    except TfperfError as error:
        raise UsageError(f"%%tfperf: {error}") from error


@lru_cache(maxsize=1)
def _parser() -> MagicArgumentParser:
    def variable(name: str) -> str:
        if not name.isidentifier():
            raise ValueError(name)
        return name

    parser = MagicArgumentParser("%%tfperf", add_help=False)
    parser.add_argument("logdir", nargs="?", metavar="LOGDIR")
    parser.add_argument("-s", "--section", action="append", default=[], choices=section_names(), metavar="SECTION")
    parser.add_argument("--as", dest="name", type=variable, metavar="NAME")
    return parser


@lru_cache(maxsize=1)
def _folder() -> str:
    """Return the folder of temporary profiles, which is deleted when the kernel ends."""
    folder = TemporaryDirectory(prefix="tfperf-")
    atexit.register(folder.cleanup)
    return folder.name


def register(shell: InteractiveShell) -> None:
    """Register `%%tfperf` in a shell."""
    shell.register_magic_function(TfperfMagic(shell).run, magic_kind="cell", magic_name="tfperf")
