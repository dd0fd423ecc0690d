"""Samples that somebody wants to keep: written where `tfperf capture` writes its traces."""

from __future__ import annotations

from pathlib import Path

from tfperf.base.errors import TfperfError
from tfperf.capture.address import Address
from tfperf.capture.run_folder import RunFolder


def record_trace(logdir: Path, address: Address, trace: bytes) -> str:
    """Write a trace into a run folder of its own; return a line that says where it is, or why it is nowhere."""
    try:
        folder = RunFolder(logdir)
        try:
            path, _ = folder.save(address.label, trace)
        finally:
            folder.drop_if_empty()
    except TfperfError as error:
        return f"not recorded: {error}"
    if path is None:
        return "not recorded: the sample has no events"
    return f"recorded: {path} (tfperf analyze {path.parent})"
