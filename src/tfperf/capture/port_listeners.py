"""Which process listens on a port of this machine, as far as Linux shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from msgspec import Struct

from tfperf.capture.machine import Machine

_TABLES = ("proc/net/tcp", "proc/net/tcp6")
_LISTENING = "0A"


class Listener(Struct, frozen=True):
    """A process that listens; `process` is its id, None where Linux does not show it."""

    process: int | None
    command: str

    def __str__(self) -> str:
        """Return the process as messages name it."""
        return self.command if self.process is None else f"{self.command} (pid {self.process})"


def find_listener(machine: Machine, port: int) -> Listener | None:
    """Return the process that listens on a TCP port, None if there is none."""
    sockets = {f"socket:[{inode}]" for table in _TABLES for inode in _inodes(machine.text(table), port)}
    if not sockets:
        return None
    for folder in machine.matching("proc/[0-9]*"):
        if any(file in sockets for file in machine.open_files(folder.name)):
            return Listener(int(folder.name), _command(machine, folder.name))
    return Listener(None, "a process of another user or container")


def can_find_listeners(machine: Machine) -> bool:
    """Return whether this system shows which processes listen."""
    return any((machine.root / table).exists() for table in _TABLES)


def _inodes(table: str, port: int) -> Iterator[str]:
    """Iterate over the sockets that listen on the port."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _LISTENING and fields[1].endswith(f":{port:04X}"):
            yield fields[9]


def _command(machine: Machine, process: str) -> str:
    """Return the program, with its script or module: `python train.py`. Other arguments may be secret."""
    words = [word for word in machine.text(f"proc/{process}/cmdline").split("\0") if word]
    if not words:
        return machine.text(f"proc/{process}/comm").strip() or "a process"
    shown = words[:1] + (words[1:3] if words[1:2] == ["-m"] else [word for word in words[1:2] if word[0] != "-"])
    return " ".join(PurePath(word).name for word in shown)
