"""Machines made of files, for what the one that runs the tests does not have."""

from __future__ import annotations

from pathlib import Path

from tfperf.capture.doctor import gpu_checks, software_checks
from tfperf.capture.machine import Machine
from tfperf.capture.outcomes import Check


class Made:
    """A machine made of files; by default Linux without a GPU and without packages."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "machine"
        self.packages = folder / "site-packages"
        self.environment: dict[str, str] = {}
        self.system = "linux"
        self.root.mkdir()
        self.packages.mkdir()

    def file(self, path: str, text: str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def install(self, name: str, version: str, *requires: str) -> None:
        folder = self.packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {line}" for line in requires)]
        (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, ""]))

    def gpu(self, number: int = 0, *, model: str = "NVIDIA H200", visible: bool = True) -> None:
        self.file(f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information", f"Model: \t\t {model}\nIRQ: 3\n")
        if visible:
            self.file(f"dev/nvidia{number}")
            self.file("dev/nvidiactl")

    def restrict(self, *, restricted: bool, capabilities: int = 0) -> None:
        self.file("proc/driver/nvidia/params", f"EnableMSI: 1\nRmProfilingAdminOnly: {int(restricted)}\n")
        self.file("proc/self/status", f"Name:\ttfperf\nCapEff:\t{capabilities:016x}\n")

    def listen(self, port: int, inode: int, process: int | None, *command: str) -> None:
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        row = f"   0: 00000000:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0\n"
        self.file("proc/net/tcp", head + row)
        if process is not None:
            self.file(f"proc/{process}/cmdline", "\0".join([*command, ""]))
            (self.root / f"proc/{process}/fd").mkdir()
            (self.root / f"proc/{process}/fd/5").symlink_to(f"socket:[{inode}]")

    @property
    def machine(self) -> Machine:
        return Machine(self.root, self.environment, self.system, (str(self.packages),))

    def gpu_check(self, name: str) -> Check:
        return by_name(gpu_checks(self.machine))[name]

    def software_check(self, name: str) -> Check:
        return by_name(software_checks(self.machine))[name]


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}
