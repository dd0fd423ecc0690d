"""All screens of some traces as pictures, to be looked at: pages, terminals, comparisons, checks and live views.

    python benchmarks/gallery.py PICTURES [TRACE...] [--sections] [--top]

Writes PICTURES/index.html with a picture of each screen. Without TRACE, it draws ten: samples, and real profiles of
`../shared/traces` if they exist. The page is drawn at three widths in two themes, on paper, and as seen with color
deficiencies; terminals of 60, 80 and 120 columns as text, SVG and PNG, with and without color. The first two traces are
compared. `--sections` adds a picture of each unfolded section; `--top` adds `tfperf top` on a real job.

Requires Chromium and playwright (extra `dev`); `--top` requires TensorFlow and pyte (`pip install pyte`).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
from rich.text import Text

from page_pictures import browser
from top import running_job

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

_ROOT = Path(__file__).parent.parent
TRACES = (
    "sample_traces/input_bound",
    "sample_traces/input_fixed",
    "sample_traces/retracing",
    "../shared/traces/cpu_keras3/slow_map",
    "../shared/traces/keras_rtx5000/gpu_bs512-20210202-131913",
    "../shared/traces/keras_t4/2022_10_31_19_09_08",
    "../shared/traces/jax_mi300x/jax_conv_minimal_08",
    "../shared/traces/tpu_v6e/offload",
    "../shared/traces/multi_host/keras_slow_input/inside",
    "../shared/traces/reported/periodic_eval",
)
SIZES = ((1400, 900), (900, 900), (420, 800))
PAPER_WIDTH = 794  # A4 in CSS pixels.
DEFICIENCIES = ("deuteranopia", "protanopia", "tritanopia", "achromatopsia")
COLUMNS = (60, 80, 120)
LIMITS = ("--max-input-bound", "20%", "--max-step-time", "15ms")
_TFPERF = (sys.executable, "-m", "tfperf")
_FONTS = re.compile(r"@font-face \{\{.*?\}\}", re.DOTALL)
_TOP_SECONDS = 20.0
_TOP_SIZES = ((80, 24), (120, 40))

Theme = Literal["light", "dark"]


class Picture(NamedTuple):
    """A picture of a screen, with its path in the gallery, and its text if it is of a terminal."""

    title: str
    path: str
    text_path: str = ""


class Gallery:
    """Writes pictures into a folder, one group per trace."""

    def __init__(self, folder: Path, chromium: Browser) -> None:
        self.folder = folder
        self.groups: dict[str, list[Picture]] = {}
        self._chromium = chromium

    def page(self, group: str, name: str, html: Path, *, every: bool, sections: bool = False) -> None:
        """Draw an HTML page; `every`: at all sizes, on paper and with color deficiencies, else at the outer sizes."""
        for width, height in SIZES if every else (SIZES[0], SIZES[-1]):
            for theme in ("light", "dark"):
                with self._opened(html, width, height, theme) as page:
                    self._shot(page, group, f"{name}-{width}-{theme}-first", full_page=False)
                    self._shot(page, group, f"{name}-{width}-{theme}-whole")
        if every:
            with self._opened(html, PAPER_WIDTH, 1123, "light") as page:
                page.emulate_media(media="print")
                page.evaluate("dispatchEvent(new Event('beforeprint'))")
                self._shot(page, group, f"{name}-paper")
            with self._opened(html, *SIZES[0], "light") as page:
                session = page.context.new_cdp_session(page)
                for kind in DEFICIENCIES:
                    session.send("Emulation.setEmulatedVisionDeficiency", {"type": kind})
                    self._shot(page, group, f"{name}-{kind}", full_page=False)
        if sections:
            with self._opened(html, *SIZES[0], "light") as page:
                page.evaluate("document.querySelectorAll('details').forEach(each => (each.open = true))")
                page.wait_for_timeout(500)
                for section in page.locator("[id^=section-]:not([id$=-title])").all():
                    key = section.get_attribute("id")
                    if section.is_visible():
                        path = f"{group}/{name}-{key}.png"
                        section.locator("xpath=ancestor-or-self::details[1]").screenshot(path=self.folder / path)
                        self._add(group, Picture(f"{name}-{key}", path))

    def terminal(self, group: str, name: str, command: Sequence[str], columns: Sequence[int] = COLUMNS) -> None:
        """Draw the output of a command on terminals of several widths, dark and light, and without color."""
        screens: list[tuple[str, int, bool, Theme]] = [(f"{each}", each, True, "dark") for each in columns]
        screens += [("80-light", 80, True, "light"), ("80-plain", 80, False, "light")]
        for key, width, has_colour, theme in screens:
            text, code = on_terminal(command, width, has_colour=has_colour)
            self.screen(group, f"{name}-{key}", Text.from_ansi(text), width, f"exit code {code}", theme)

    def screen(self, group: str, name: str, text: Text, columns: int, title: str, theme: Theme = "dark") -> None:
        """Draw a text as a terminal of some columns, as text, SVG and PNG."""
        console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
        console.print(text, no_wrap=True, overflow="ignore", crop=False)
        colours = SVG_EXPORT_THEME if theme == "dark" else DEFAULT_TERMINAL_THEME
        # Without the font's address: pictures load nothing.
        svg = console.export_svg(title=title, theme=colours, code_format=_FONTS.sub("", CONSOLE_SVG_FORMAT))
        place = self.folder / group / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_name(f"{name}.svg").write_text(svg, encoding="utf-8")
        place.with_name(f"{name}.txt").write_text(f"{text.plain}\n", encoding="utf-8")
        page = self._chromium.new_page(viewport={"width": round(12.2 * columns) + 20, "height": 400})
        page.set_content(f"<body style='margin: 0'>{svg}")
        page.locator("svg").screenshot(path=place.with_name(f"{name}.png"))
        page.close()
        self._add(group, Picture(name, f"{group}/{name}.png", f"{group}/{name}.txt"))

    def write_index(self) -> Path:
        """Write the page of all pictures; return its path."""
        parts = [
            "<!doctype html><meta charset='utf-8'><title>Screens of tfperf</title><style>",
            "body { font: 14px sans-serif; margin: 1rem } div { display: flex; flex-wrap: wrap; gap: 1rem }",
            "figure { margin: 0; width: 300px } img { width: 100%; height: 220px; object-fit: cover;",
            "object-position: top; border: 1px solid #999 }</style><h1>Screens of tfperf</h1>",
        ]
        for group, pictures in self.groups.items():
            parts.append(f"<h2 id='{escape(group)}'>{escape(group)}</h2><div>")
            for each in pictures:
                text = f" (<a href='{escape(each.text_path)}'>text</a>)" if each.text_path else ""
                parts.append(
                    f"<figure><a href='{escape(each.path)}'><img loading='lazy' src='{escape(each.path)}' "
                    f"alt='{escape(each.title)}'></a><figcaption>{escape(each.title)}{text}</figcaption></figure>"
                )
            parts.append("</div>")
        index = self.folder / "index.html"
        index.write_text("\n".join(parts), encoding="utf-8")
        return index

    @contextlib.contextmanager
    def _opened(self, html: Path, width: int, height: int, theme: Theme) -> Iterator[Page]:
        context = self._chromium.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        page = context.new_page()
        page.goto(html.absolute().as_uri())
        page.wait_for_selector("html[data-state=ready]", state="attached")
        yield page
        context.close()

    def _shot(self, page: Page, group: str, name: str, *, full_page: bool = True) -> None:
        path = f"{group}/{name}.png"
        page.screenshot(path=self.folder / path, full_page=full_page)
        self._add(group, Picture(name, path))

    def _add(self, group: str, picture: Picture) -> None:
        self.groups.setdefault(group, []).append(picture)


def on_terminal(command: Sequence[str], columns: int, *, has_colour: bool) -> tuple[str, int]:
    """Return what a command of tfperf prints on a terminal, and its exit code."""
    ours, process = _started((*_TFPERF, "--no-pager", *command), columns, 24, has_colour=has_colour)
    text = _read(ours)
    os.close(ours)
    return text.decode().replace("\r\n", "\n"), process.wait()


def _started(
    command: Sequence[str], columns: int, lines: int, *, has_colour: bool = True, **options: Any
) -> tuple[int, subprocess.Popen[bytes]]:
    """Start a command on a pseudo-terminal; return the terminal and the process."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    left_out = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CI"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"} | ({} if has_colour else {"NO_COLOR": "1"})
    options = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    options |= {name: theirs for name, value in options.items() if value == "terminal"}
    process = subprocess.Popen(command, stdout=theirs, env=environment, **options)
    os.close(theirs)
    return ours, process


def _read(terminal: int, seconds: float | None = None) -> bytes:
    """Return what a terminal shows until its program ends, or for some seconds."""
    text, until_s = b"", None if seconds is None else time.monotonic() + seconds
    with contextlib.suppress(OSError):  # Linux reports the end as an error.
        while until_s is None or time.monotonic() < until_s:
            if select.select([terminal], [], [], 0.2)[0]:
                if not (data := os.read(terminal, 65536)):
                    break
                text += data
    return text


def pictures_of_trace(gallery: Gallery, trace: Path, *, sections: bool) -> None:
    """Draw the report and the check of a trace."""
    group = trace.name
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        if subprocess.run([*_TFPERF, "analyze", trace, "-o", html], check=False).returncode == 0:
            gallery.page(group, "page", html, every=True, sections=sections)
    gallery.terminal(group, "analyze", ["analyze", str(trace)])
    gallery.terminal(group, "full", ["analyze", str(trace), "--full"], columns=(80,))
    gallery.terminal(group, "check", ["check", str(trace), *LIMITS], columns=(80,))


def pictures_of_pair(gallery: Gallery, before: Path, after: Path) -> None:
    """Draw the comparison of two traces."""
    group = f"{before.name}-{after.name}"
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "page.html"
        if subprocess.run([*_TFPERF, "diff", before, after, "-o", html], check=False).returncode == 0:
            gallery.page(group, "diff", html, every=False)
    gallery.terminal(group, "diff", ["diff", str(before), str(after)])


def pictures_of_top(gallery: Gallery) -> None:
    """Draw `tfperf top` on a real job after some samples, on terminals of two sizes."""
    with tempfile.TemporaryDirectory() as name, running_job(Path(name)) as job:
        for columns, lines in _TOP_SIZES:
            command = (*_TFPERF, "top", "--port", str(job.port), "--interval", "3s")
            terminal: dict[str, Any] = {"stdin": "terminal", "cwd": name, "start_new_session": True}
            ours, process = _started(command, columns, lines, **terminal)
            data = _read(ours, _TOP_SECONDS)
            text = shown_text(data, columns, lines)
            os.write(ours, b"q")
            _read(ours, 5.0)
            process.kill()
            process.wait()
            os.close(ours)
            gallery.screen("top", f"top-{columns}x{lines}", text, columns, "tfperf top")
        gallery.terminal("top", "once", ["top", "--once", "--port", str(job.port)])


def shown_text(data: bytes, columns: int, lines: int) -> Text:
    """Return what a terminal shows after a program wrote `data` to it."""
    import pyte

    screen = pyte.Screen(columns, lines)
    pyte.ByteStream(screen).feed(data)
    text = Text()
    for line in range(lines):
        for column in range(columns):
            cell = screen.buffer[line][column]
            style = Style(color=_colour(cell.fg), bgcolor=_colour(cell.bg), bold=cell.bold, reverse=cell.reverse)
            text.append(cell.data, style)
        text.append("\n")
    return text


def _colour(name: str) -> str:
    if re.fullmatch("[0-9a-f]{6}", name):
        return f"#{name}"
    name = re.sub("^bright", "bright_", name).replace("brown", "yellow")
    return name.replace("bfightmagenta", "bright_magenta")  # As pyte spells it.


def main() -> None:
    """Write the gallery."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="PICTURES")
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--sections", action="store_true", help="add a picture of each unfolded section")
    parser.add_argument("--top", action="store_true", help="add tfperf top on a real job")
    arguments = parser.parse_args()
    traces = arguments.traces or [path for name in TRACES if (path := _ROOT / name).exists()]
    with browser() as chromium:
        gallery = Gallery(arguments.folder, chromium)
        for trace in traces:
            pictures_of_trace(gallery, trace, sections=arguments.sections)
            print(f"{trace.name}: {len(gallery.groups.get(trace.name, ()))} pictures", flush=True)
        if len(traces) > 1:
            pictures_of_pair(gallery, *traces[:2])
        if arguments.top:
            pictures_of_top(gallery)
        print(gallery.write_index())


if __name__ == "__main__":
    main()
