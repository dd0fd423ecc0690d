"""Programs from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hlo_builders import F32, computation, instruction, program, shape

from tfperf.formats.hlo.hlo_text import read_program
from tfperf.formats.hlo.model import ProgramError

TEXT = "// by hand\nHloModule jit_step\nENTRY main { r = f32[8] iota(), iota_dimension=0 }\n"


def test_the_format_is_told_from_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(TEXT)
    (tmp_path / "proto").write_bytes(program(computation("main", instruction(1, "r", "iota", shape(F32, 8)))))
    text, proto = (read_program(tmp_path / name) for name in ("text", "proto"))
    assert (text.name, text.entry.root_instruction.shape) == (proto.name, proto.entry.root_instruction.shape)


@pytest.mark.parametrize("data", [b"", b"hello", b"HloModule m\n{", b"\x00" * 99])
def test_the_error_names_the_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "step.hlo").write_bytes(data)
    with pytest.raises(ProgramError, match=r"step\.hlo: ") as caught:
        read_program(tmp_path / "step.hlo")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "gone", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(ProgramError, match=f"cannot be read: {why}"):
            read_program(path)
