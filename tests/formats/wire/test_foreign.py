"""What parses as an XSpace and is none; and every XSpace that a profiler writes stays one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders import event, host, line, plane, space
from places import SHARED
from protobytes import field, message

from tfperf.base.errors import TraceFormatError
from tfperf.formats.wire.contents import look_into
from tfperf.trace.read import read_host

"""Files of other people's jobs, which are no part of the project."""

Reader = Callable[[Path], object]
READERS: tuple[Reader, ...] = (read_host, look_into)


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(data)
    return path


def named(name: bytes, *others: bytes) -> bytes:
    return field(1, message(field(1, 7), field(2, name), *others))


WITH_EVENT = field(3, field(4, field(1, 1)))
XSPACES = {
    "a host": space(host(event("a", 0, 1))),
    "only programs": space(plane("/host:metadata")),
    "only programs, and an error": space(plane("/host:metadata"), errors=("lost events",)),
    "only an idle device": space(plane("/device:GPU:0")),
    "a device of somebody else": space(plane("/device:CUSTOM:Megascale Trace")),
    "only the environment": space(plane("Task Environment")),
    "a chip": space(plane("#Chip TPU 0 HBM")),
    "an error and nothing else": field(2, b"CUPTI: permission denied\n\tsee the log") + field(4, b"vm"),
    "a warning and nothing else": field(3, "zu groß".encode()),
    "texts of a host that does not write UTF-8": space(host())
    + field(3, b"Zugriff verweigert: \xfc")
    + field(4, b"\xff"),
    "fields of a later version": space(host()) + field(5, 1) + field(6, b"more") + field(1, message(field(9, 1))),
    "a plane of a profiler that nobody knows": space(plane("Some accelerator", line("core", event("a", 0, 1)))),
    "such a plane without events, and an error": space(plane("Some accelerator"), errors=("no permission",)),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("case", XSPACES)
def test_an_xspace(case: str, read: Reader, tmp_path: Path) -> None:
    read(written(tmp_path, XSPACES[case]))


FOREIGN = {
    "a profile of tfprof": (
        field(1, field(1, 0) + field(2, field(1, b"x") + field(9, b"Const"))) + field(2, 1) + field(3, b"\x46"),
        "is a profile of tfprof (ProfileProto), not an XSpace; give a *.xplane.pb file",
    ),
    "a graph": (
        field(1, field(1, b"x") + field(2, b"Const")) * 2,
        "is a graph of TensorFlow (GraphDef), not an XSpace; give a *.xplane.pb file",
    ),
    "a table of numbers and texts": (
        field(1, field(1, 1) + field(2, b"cat")) + field(1, field(1, 2) + field(2, b"dog")),
        "is not an XSpace: none of its planes has a name that profilers write, such as /host:CPU",
    ),
    "names that are no text": (named(b"\x08\x01\x10", WITH_EVENT), "the names of its planes are not text"),
    "names that are no UTF-8": (named(b"\xff", WITH_EVENT), "the names of its planes are not text"),
    "warnings that are no text": (named(b"x", WITH_EVENT) + field(3, b"\x01"), "its errors, warnings or host names"),
    "nothing but host names": (field(4, b"a"), "contains no planes"),
    "an error that is no text": (field(2, b"\x08\x96\x01"), "its errors, warnings or host names are not text"),
    "a field of another type": (
        named(b"x", WITH_EVENT) + field(2, 1),
        "the field at byte 13 of 15 is none of an XSpace",
    ),
    "a field of another number": (named(b"x", WITH_EVENT) + field(7, b"y"), "the field at byte 13 of 16 is none"),
    "a plane's field of another type": (
        field(1, field(1, b"7") + field(2, b"x") + WITH_EVENT),
        "at byte 2 of 14 is none",
    ),
    "a plane's field of another number": (named(b"x", WITH_EVENT, field(12, b"y")), "at byte 13 of 16 is none"),
    "planes without a name": (field(1, WITH_EVENT) * 2, "none of its planes has a name"),
}


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_none(case: str, read: Reader, tmp_path: Path) -> None:
    data, words = FOREIGN[case]
    path = written(tmp_path, data)
    with pytest.raises(TraceFormatError) as error:
        read(path)
    assert str(error.value).startswith(f"{path} ")
    assert words in str(error.value)


def test_real_files_that_are_none_are_refused() -> None:
    files = [path for path in (SHARED / "tfprof").rglob("*") if path.is_file() and not path.match("*.xplane.pb")]
    if not files:
        pytest.skip(f"{SHARED / 'tfprof'} is not there: it is no part of the project")
    for path in files:
        for read in READERS:
            with pytest.raises(TraceFormatError):
                read(path)


def test_real_xspaces_are_read() -> None:
    for path in (SHARED / "tfprof").rglob("*.xplane.pb"):
        for read in READERS:
            read(path)
