"""What a machine offers for profiling: GPUs, rules of their driver, libcupti, listeners. Read from files."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath

from msgspec import Struct, field

_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
_RESTRICTED = re.compile(r"^(?:RmProfilingAdminOnly|NVreg_RestrictProfilingToAdminUsers):\s*(\d+)", re.MULTILINE)
"""Older drivers publish the option by one of these names, newer ones by the other."""
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-fA-F]+)", re.MULTILINE)
_PROFILING_CAPABILITIES = (1 << 21) | (1 << 38)
"""CAP_SYS_ADMIN and CAP_PERFMON."""
_CACHED_CUPTI = re.compile(rb"/[^\0]*/libcupti\.so[^\0/]*")
_WHEEL_FOLDERS = ("nvidia/cuda_cupti/lib", "nvidia/cu*/lib")
_TOOLKIT_FOLDERS = (
    "usr/local/cuda*/extras/CUPTI/lib64",
    "usr/local/cuda*/lib64",
    "usr/local/cuda*/targets/*/lib",
    "opt/cuda/extras/CUPTI/lib64",
    "usr/lib/*",
    "usr/lib64",
)
_SOCKET_TABLES = ("proc/net/tcp", "proc/net/tcp6")
_LISTENING = "0A"
_PROFILER_LIBRARY = re.compile(r"/(?:_pywrap_tensorflow\w*|libtensorflow\w*|xla_extension|libjax\w*)[\w.-]*\.so\b")


USUAL_PORT = 6009
"""Where profiler servers listen in the examples of TensorFlow."""
UNKNOWN = "unknown"  # Instead of the id of a process that cannot be seen: /proc has no folder of this name.


class Listener(Struct, frozen=True):
    """A process that listens on a port; `process` is its id, or UNKNOWN."""

    process: int | str
    command: str

    def __str__(self) -> str:
        """Return the process as messages name it."""
        return self.command if self.process == UNKNOWN else f"{self.command} (pid {self.process})"


class Machine(Struct, frozen=True):
    """A machine as its files and the environment of a program show it."""

    root: Path = Path("/")
    """Where /proc, /dev, /etc and /usr are."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    system: str = sys.platform
    python_path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))

    @property
    def is_linux(self) -> bool:
        """Whether there is a /proc to read."""
        return self.system == "linux"

    def text(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""
        return self.data(path).decode(errors="replace")

    def data(self, path: str) -> bytes:
        """Return the bytes of a file; empty if it cannot be read."""
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return b""

    def matching(self, pattern: str) -> list[Path]:
        """Return the files and folders that match a pattern, sorted; none if they cannot be listed."""
        try:
            return sorted(self.root.glob(pattern))
        except OSError:
            return []

    def nvidia_devices(self) -> list[str]:
        """Return the names of the NVIDIA GPUs that programs can open here: `nvidia0`, ..."""
        return [path.name for path in self.matching("dev/nvidia*") if path.name.removeprefix("nvidia").isdigit()]

    def nvidia_models(self) -> list[str]:
        """Return the models of the GPUs that the driver runs, even of those that a container does not see."""
        files = self.matching("proc/driver/nvidia/gpus/*/information")
        texts = [self.text(f"{path.relative_to(self.root)}") for path in files]
        return [model[1] if (model := _MODEL.search(text)) else "NVIDIA GPU" for text in texts]

    def has_rocm(self) -> bool:
        """Whether programs can open an AMD GPU for computing."""
        return (self.root / "dev/kfd").exists()

    def profiling_is_restricted(self) -> bool | None:
        """Return whether the NVIDIA driver allows profiling only for administrators; None if it does not say."""
        option = _RESTRICTED.search(self.text("proc/driver/nvidia/params"))
        return option[1] != "0" if option else None

    def may_profile(self, process: int | str = "self") -> bool:
        """Return whether a process counts as an administrator for the driver."""
        effective = _CAPABILITIES.search(self.text(f"proc/{process}/status"))
        return bool(effective and int(effective[1], 16) & _PROFILING_CAPABILITIES)

    def uses_gpu(self, process: int | str = "self") -> bool:
        """Return whether a process has a GPU open; False if that cannot be seen."""
        return any(re.search(r"/dev/(?:nvidia\d+|kfd)$", target) for target in self.open_files(process))

    def open_files(self, process: int | str) -> Iterator[str]:
        """Iterate over what a process has open: paths, and names such as `socket:[123]`."""
        with contextlib.suppress(OSError):
            for path in (self.root / f"proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    yield str(path.readlink())

    def shows_listeners(self) -> bool:
        """Return whether this system shows which processes listen on a port."""
        return any((self.root / table).exists() for table in _SOCKET_TABLES)

    def find_listener(self, port: int) -> Listener | None:
        """Return the process that listens on a TCP port, None if there is none."""
        sockets = {socket for socket, place in self._listening().items() if place == port}
        if not sockets:
            return None
        for folder in self.matching("proc/[0-9]*"):
            if any(file in sockets for file in self.open_files(folder.name)):
                return Listener(int(folder.name), self._command(folder.name))
        return Listener(UNKNOWN, "a process of another user or container")

    def listeners(self) -> Iterator[tuple[int, Listener]]:
        """Iterate over the TCP ports on which processes listen that this user may look into."""
        sockets = self._listening()
        for folder in self.matching("proc/[0-9]*") if sockets else ():
            for port in sorted({sockets[file] for file in self.open_files(folder.name) if file in sockets}):
                yield port, Listener(int(folder.name), self._command(folder.name))

    def has_profiler(self, process: int | str) -> bool:
        """Return whether a process has loaded a library with the profiler of TensorFlow or JAX; False if unknown."""
        return _PROFILER_LIBRARY.search(self.text(f"proc/{process}/maps")) is not None

    def _listening(self) -> dict[str, int]:
        """Return the port of each socket that listens, by the name that it has among the files of a process."""
        rows = [line.split() for table in _SOCKET_TABLES for line in self.text(table).splitlines()[1:]]
        listening = [row for row in rows if len(row) > 9 and row[3] == _LISTENING]
        return {f"socket:[{row[9]}]": int(row[1].rpartition(":")[2], 16) for row in listening}

    def _command(self, process: str) -> str:
        """Return the program, with its script or module: `python train.py`. Other arguments may be secret."""
        words = [word for word in self.text(f"proc/{process}/cmdline").split("\0") if word]
        if not words:
            return self.text(f"proc/{process}/comm").strip() or "a process"
        shown = words[:1] + (words[1:3] if words[1:2] == ["-m"] else [word for word in words[1:2] if word[0] != "-"])
        return " ".join(PurePath(word).name for word in shown)

    def loaded_cupti(self) -> str:
        """Return the path of the libcupti that programs in this environment load; empty if there is none."""
        folders = [Path(folder) for folder in self.environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
        if prefix := self.environment.get("CONDA_PREFIX"):
            folders.append(Path(prefix) / "lib")
        wheels = [Path(folder) for folder in self.python_path if folder]
        patterns = [*((folder, "") for folder in folders), *itertools.product(wheels, _WHEEL_FOLDERS)]
        cached = _CACHED_CUPTI.search(self.data("etc/ld.so.cache"))
        return _first_cupti(patterns) or (cached[0].decode(errors="replace") if cached else "")

    def unused_cupti(self) -> str:
        """Return the path of a libcupti in a folder that programs do not search; empty if there is none."""
        return _first_cupti([(self.root, folder) for folder in _TOOLKIT_FOLDERS])


def _first_cupti(patterns: list[tuple[Path, str]]) -> str:
    for folder, pattern in patterns:
        with contextlib.suppress(OSError, IndexError):
            return str(sorted(folder.glob(f"{pattern}/libcupti.so*".lstrip("/")))[0])
    return ""
