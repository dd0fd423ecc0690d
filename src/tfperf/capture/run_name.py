"""What a profile of a job goes by: a run name that is given, one that its processes agree on, or one of its own."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Mapping

from msgspec import Struct

from tfperf.capture.cluster_task import ClusterTask, this_task
from tfperf.capture.run_agreement import check_run_name

RUN_VARIABLE = "TFPERF_RUN"


class RunName(Struct, frozen=True):
    """How the folder of a run is named: `given`, or agreed on by the processes with this `key`; else by the time."""

    given: str = ""
    key: str = ""


class ProfileCount:
    """Counts the profiles of a process: by the same count, its fellows know which of them belong together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_moment: Counter[str] = Counter()
        self._by_name: Counter[str] = Counter()

    def next_name(
        self,
        run: str | None,
        moment: str = "",
        environment: Mapping[str, str] = os.environ,
        task: ClusterTask | None = None,
    ) -> RunName:
        """Return the name of one more profile.

        `run` is what the caller names it, else TFPERF_RUN does, with _2, _3, ... for later profiles of the process.
        `moment` is what all processes of the job call it (`step 10`). Raises TfperfError where a name cannot be one.
        """
        if run is not None:
            return RunName(given=check_run_name(run))
        named = environment.get(RUN_VARIABLE)
        with self._lock:
            counter, what = (self._by_name, named) if named else (self._by_moment, moment)
            counter[what] += 1
            number = counter[what]
        if named:
            return RunName(given=check_run_name(named, RUN_VARIABLE) + (f"_{number}" if number > 1 else ""))
        task = task or this_task(environment)
        if task is None or not task.cluster_id or task.cluster_size == 1:
            return RunName()
        text = f"{task.cluster_id} {moment} {number}"
        return RunName(key=hashlib.sha256(text.encode()).hexdigest()[:16])


profile_count = ProfileCount()
