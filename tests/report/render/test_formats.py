"""Checks that every format must pass: choosing one, empty and hostile reports, widths."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from report_builders import HOSTILE, report_of

from tfperf.base.errors import OutputError
from tfperf.report.model import Report, Section
from tfperf.report.render import (
    FORMATS,
    RenderOptions,
    WholeOutput,
    format_of_file,
    options_for,
    render,
    write,
    write_folder,
)
from tfperf.report.render.screen import Screen
from tfperf.report.render.text_table import cells

PEOPLE = ["table", "markdown"]


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
@pytest.mark.parametrize("interactive", [False, True])
def test_hostile_names_reach_every_format(format_name: str, name: str, interactive: bool) -> None:
    text = render(report_of(name), format_name, RenderOptions(interactive=interactive))
    assert text.endswith("\n")
    if format_name == "table":
        assert max(map(cells, text.splitlines())) <= 80
        assert "\x1b" not in text


@pytest.mark.parametrize("format_name", FORMATS)
@pytest.mark.parametrize("value", [None, np.nan, np.float32(1.5), np.int64(2**62), np.bool_(True), -0.0, 1e300, 2**64])
def test_odd_values_reach_every_format(format_name: str, value: Any) -> None:
    text = render(report_of("name", value), format_name).partition("<script")[0]
    assert "nan" not in text
    assert "np." not in text


@pytest.mark.parametrize("format_name", FORMATS)
def test_an_empty_report_is_never_an_empty_text(format_name: str) -> None:
    assert render(Report({}, {}), format_name).strip()
    assert render(Report({}, {}, (Section("s", "S"),)), format_name).strip()


@given(st.text(st.characters()), st.booleans())
def test_no_control_character_reaches_a_person(name: str, interactive: bool) -> None:
    for format_name in PEOPLE:
        text = render(report_of(name), format_name, RenderOptions(interactive=interactive))
        assert text.replace("\n", "").replace("…", "").isprintable()


@example("\U0001f3fb", False, 60)  # A mark that takes no cell by itself.
@given(st.text(st.characters()), st.booleans(), st.integers(60, 130))
def test_no_line_is_wider_than_the_terminal(name: str, interactive: bool, width: int) -> None:
    text = render(report_of(name), "table", RenderOptions(width=width, interactive=interactive))
    assert max(map(cells, text.splitlines())) <= width


@pytest.mark.parametrize("width", [-1, 0, 1, 20, 40, 1000])
def test_any_width_is_accepted(width: int) -> None:
    for format_name in FORMATS:
        assert render(report_of("some/long/name" * 9), format_name, RenderOptions(width=width))


def test_files_and_pipes_get_ascii_around_the_names() -> None:
    assert render(report_of("name" * 50), "table").isascii()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.json", "json"),
        ("dir.csv/a.CSV", "csv"),
        ("a.md", "markdown"),
        ("a.markdown", "markdown"),
        ("a.txt", "table"),
        ("a", None),
        ("a.html", "html"),
        ("a.HTM", "html"),
        ("a.xml", None),
        ("-", None),
    ],
)
def test_a_suffix_names_the_format(path: str, expected: str | None) -> None:
    assert format_of_file(Path(path)) == expected


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OutputError, match="unknown format 'xml'; choose one of table, json, csv, markdown, html"):
        render(Report({}, {}), "xml")


CHOOSE = """
import sys
from tfperf.report.render import render
from tfperf.report.model import Column, Report, Section, Table
table = Table("ops", "Ops", (Column("name", "Name", str),), {"name": ["größe"]}, total_rows=1)
render(Report({}, {}, (Section("ops", "Ops", tables=(table,)),)), sys.argv[1])
print(*sys.modules)
"""
LIBRARIES = {"table": set(), "json": set(), "csv": set(), "markdown": {"tabulate"}, "html": {"jinja2"}}


@pytest.mark.parametrize("format_name", FORMATS)
def test_choosing_a_format_imports_no_other(format_name: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHOOSE, format_name], capture_output=True, check=True, text=True)
    modules = set(done.stdout.split())
    renderers = {each.name: each.renderer.partition(":")[0] for each in FORMATS.values()}
    assert modules & {*renderers.values()} == {renderers[format_name]}
    assert modules & {"click", "jinja2", "numpy", "pandas", "rich", "tabulate"} == LIBRARIES[format_name]


def test_the_list_of_formats_imports_no_renderer() -> None:
    code = "import sys; from tfperf.report.render import FORMATS; print(*FORMATS, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    listed = done.stdout.split()
    assert listed[:5] == ["table", "json", "csv", "markdown", "html"]
    assert {each.renderer.partition(":")[0] for each in FORMATS.values()} & set(listed) == set()
    assert "tfperf.report.model" not in listed


def test_no_suffix_asks_for_two_formats() -> None:
    suffixes = [suffix for each in FORMATS.values() for suffix in each.suffixes]
    assert len(suffixes) == len(set(suffixes))


def test_options_are_those_of_the_screen() -> None:
    screen = Screen(width=132, height=50, colour=True, interactive=True, pages=True)
    assert options_for(screen) == RenderOptions(width=132, colour=True, interactive=True)
    assert options_for(Screen()) == RenderOptions()


# --- the only writer ---


posix_only = pytest.mark.skipif(os.name != "posix", reason="devices, pipes and modes are POSIX things")


@pytest.mark.parametrize("destination", [None, Path("-")])
def test_stdout_gets_the_text(destination: Path | None, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    write("a,ü\r\n", destination)
    assert capsysbinary.readouterr().out == "a,ü\r\n".encode()


def test_stdout_gets_escapes_for_what_its_encoding_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    write("ü…\udc80\n", None)
    assert raw.getvalue() == rb"\xfc\u2026\udc80" + b"\n"


def test_stdout_may_be_a_plain_text_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    write("ü\udc80\n", None)
    assert stream.getvalue() == "ü\\udc80\n"


def test_output_that_failed_writes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "read-only"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    output = WholeOutput(descriptor)
    try:
        with pytest.raises(OutputError):
            output.write(b"lost")
        assert output.write(b"more") == 4
    finally:
        os.close(descriptor)


def test_a_closed_stdout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(OutputError, match="stdout is closed; pass an output file with -o"):
        write("x", None)


@posix_only
@pytest.mark.parametrize("size", [1, 10**6])
def test_a_reader_that_leaves_early_is_no_error(size: int) -> None:
    code = f"import sys; from tfperf.report.render import write; sys.stdin.read(); write('x' * {size}, None)"
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment()) as process:
        for stream in (process.stdout, process.stdin):
            assert stream is not None
            stream.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


@posix_only
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_an_error() -> None:
    code = "from tfperf.base.errors import OutputError\nfrom tfperf.report.render import write\n"
    code += "try: write('x', None)\nexcept OutputError as error: raise SystemExit(f'said: {error}')"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert done.stderr.decode() == "said: cannot write to stdout: No space left on device\n"


def environment() -> dict[str, str]:
    """Return the environment in which a child process finds the same tfperf, and buffers its stdout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, "PYTHONPATH": os.pathsep.join(sys.path)}


def names_in(folder: Path) -> list[str]:
    """Return the names of what lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_file_holds_the_bytes_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    write("a,ü\r\n\udc80", tmp_path / "report.csv")
    assert (tmp_path / "report.csv").read_bytes() == "a,ü\r\n\\udc80".encode()
    assert names_in(tmp_path) == ["report.csv"]


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    write("old", target)
    with pytest.raises(OutputError, match=r"report\.json exists; pass --force to replace it"):
        write("new", target)
    assert target.read_text() == "old"
    write("new", target, force=True)
    assert target.read_text() == "new"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder; pass a file"):
        write("x", tmp_path, force=True)


def test_missing_folders_are_not_made(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="missing does not exist; create it first"):
        write("x", tmp_path / "missing" / "report.json")
    assert names_in(tmp_path) == []


def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    write("x", tmp_path / "file")
    with pytest.raises(OutputError, match=r"cannot write .*report\.json: Not a directory"):
        write("x", tmp_path / "file" / "report.json")


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    write("old", tmp_path / "report.json")
    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OutputError, match="permission denied; choose a writable path"):
        write("new", tmp_path / "report.json", force=True)
    assert names_in(tmp_path) == ["report.json"]
    assert (tmp_path / "report.json").read_text() == "old"


@posix_only
def test_a_named_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    # Stands for devices too: a real one must not be at stake when the code under test is wrong.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write("x", pipe)
    assert os.read(reader, 10) == b"x"
    os.close(reader)
    assert pipe.is_fifo()


@posix_only
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write("x", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "x"


@posix_only
def test_the_mode_is_what_the_umask_leaves(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    write("x", tmp_path / "report")
    assert (tmp_path / "report").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_folder_is_made_and_filled(tmp_path: Path) -> None:
    write_folder({"a.csv": "1", "b.csv": "2"}, tmp_path / "new" / "out")
    assert {path.name: path.read_text() for path in (tmp_path / "new" / "out").iterdir()} == {
        "a.csv": "1",
        "b.csv": "2",
    }


def test_of_many_files_that_exist_some_are_named(tmp_path: Path) -> None:
    files = {f"{name}.csv": "old" for name in "abcdefg"}
    write_folder(files, tmp_path)
    with pytest.raises(OutputError, match=r"^a\.csv, b\.csv, c\.csv, d\.csv, e\.csv and 2 more exist in "):
        write_folder(files, tmp_path)


def test_no_file_is_written_where_one_exists(tmp_path: Path) -> None:
    write_folder({"a.csv": "old", "b.csv": "old"}, tmp_path)
    with pytest.raises(OutputError, match=r"a\.csv, b\.csv exist in .*; pass --force to replace them"):
        write_folder({"a.csv": "new", "b.csv": "new", "c.csv": "new"}, tmp_path)
    assert names_in(tmp_path) == ["a.csv", "b.csv"]
    write_folder({"a.csv": "new"}, tmp_path, force=True)
    assert (tmp_path / "a.csv").read_text() == "new"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    write("x", tmp_path / "file")
    with pytest.raises(OutputError, match="is a file; pass a folder"):
        write_folder({"a.csv": "1"}, tmp_path / "file")
