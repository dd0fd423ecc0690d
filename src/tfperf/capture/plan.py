"""What `tfperf run` shall do, handed from the command to the process of the script."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tfperf.capture.options import TracerOptions
from tfperf.capture.step_range import LIMIT_SECONDS
from tfperf.outcomes import Captured

AFTER_SECONDS = 10.0
DURATION_SECONDS = 2.0
BATCHES = (10, 20)


@dataclass(frozen=True)
class Plan:
    """When to profile a script: at `batches` of its training, `after_s` seconds after its begin, or what comes first.

    With both, time counts only if no step of a training was seen by then.
    """

    logdir: str
    batches: tuple[int, int] | None = BATCHES
    after_s: float | None = AFTER_SECONDS
    duration_s: float = DURATION_SECONDS
    options: TracerOptions = field(default_factory=TracerOptions)
    limit_s: float = LIMIT_SECONDS


@dataclass(frozen=True)
class Orders:
    """All that the process of the script is told: the plan, where to put the result, and how it is asked to stop.

    `stop_fd` is the end of a pipe: a byte that arrives there means that a signal is about to come.
    """

    plan: Plan
    is_module: bool
    result_file: str
    stop_fd: int | None

    def to_json(self) -> str:
        """Return the orders as one argument for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Orders:
        """Return what `to_json` was called on."""
        fields: dict[str, Any] = json.loads(text)
        plan: dict[str, Any] = fields.pop("plan")
        plan["options"] = TracerOptions(**plan["options"])
        plan["batches"] = plan["batches"] and tuple(plan["batches"])
        return cls(Plan(**plan), **fields)


def write_result(file: Path, captured: Captured) -> None:
    """Write a result for the other process, whole or not at all."""
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps({**asdict(captured), "path": captured.path and str(captured.path)}))
    temporary.replace(file)


def read_result(file: Path) -> Captured | None:
    """Read what `write_result` wrote; None if it never did."""
    try:
        fields = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return Captured(**{**fields, "path": Path(fields["path"]) if fields["path"] else None})
