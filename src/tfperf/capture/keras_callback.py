"""A callback that profiles some batches of a Keras training. Works with Keras 3 and tf.keras; imports neither."""

from __future__ import annotations

import atexit
import contextlib
import sys
from collections.abc import Callable, Iterator
from functools import partialmethod, wraps
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar

from tfperf.capture import local
from tfperf.capture.keras_facts import facts_of_call, keras_facts
from tfperf.capture.outcomes import Captured
from tfperf.capture.run_agreement import check_run_name
from tfperf.capture.step_profile import LIMIT_SECONDS, Extent, StepProfile
from tfperf.capture.tracer_options import TracerOptions

Hook = TypeVar("Hook", bound=Callable[..., None])

ON_BATCH = {"train": "train_on_batch", "test": "test_on_batch", "predict": "predict_on_batch"}
"""The methods of a model for which Keras calls no callbacks."""
_WATCHED = "watched"
_NO_ARGUMENTS: tuple[tuple[Any, ...], dict[str, Any]] = (), {}
_MARKING_MODULES = ("tf_keras.", "keras.src.engine.")
"""The modules of models whose `fit` marks steps itself, by the number within the epoch: Keras 2, alias tf.keras."""


class BatchCount:
    """Counts the batches of one call of `fit`, `evaluate` or `predict` from 0, over all its epochs."""

    def __init__(self, mode: str) -> None:
        self.mode, self.thread = mode, get_ident()
        self.size = 1
        """How many batches run at once."""
        self._base: int | None = None
        self._latest_start = self._latest_end = -1

    def start(self, batch: int) -> int:
        """Return the number of the batch that starts, which is the `batch`th of its epoch."""
        if self._base is None:
            self._base = -batch
        elif batch <= self._latest_start:
            self._base = self.next - batch
            self._latest_end = -1
        else:
            self.size = batch - self._latest_start
        self._latest_start = batch
        return self._base + batch

    def end(self, batch: int) -> None:
        """Note the last batch that has ended. Keras 3 may call from another thread, and not in order."""
        self._latest_end = max(self._latest_end, batch)
        if batch >= self._latest_start and get_ident() == self.thread:
            self.size = batch - self._latest_start + 1

    @property
    def next(self) -> int:
        """Return the number of the batch after those that have ended."""
        return (self._base or 0) + self._latest_end + 1


def _harmless(hook: Hook) -> Hook:
    """Make a hook that, if it fails, ends profiling but never the training."""

    @wraps(hook)
    def call(self: ProfileCallback, *arguments: Any, **options: Any) -> None:
        try:
            hook(self, *arguments, **options)
        except Exception as error:
            self._profile.fail(error)

    return call  # type: ignore[return-value]


class ProfileCallback:
    """Profile some batches: `model.fit(data, callbacks=[ProfileCallback("logs", batches=(10, 19))])`.

    `batches` are the first and the last batch, both included, counted from 0 over all epochs of a call of `fit`; for
    `evaluate` and `predict` called alone likewise. Validation within `fit` is not counted. With `steps_per_execution`,
    the profile takes whole executions. Each batch is marked as a step, for tfperf and any other profiler. One object
    takes one profile: in the first call that reaches `batches`. `levels` are those of `TracerOptions`, by keyword.
    `run` is that of `tfperf.start`; without it, workers of a cluster that profile the same batches agree on a run.

    Keras calls no callbacks in `train_on_batch` and its like: for these, call `watch(model)` first, and use the
    callback as a context manager (or call `close`) around the loop. The hooks may also be called by hand.

    `result` is a `Captured` once the profile was taken; `result.overhead_percent` compares with the batches before. If
    profiling fails, `result` and a line on stderr say so; training goes on. If a step fails, Keras calls no hook:
    profiling ends with the next `fit`, `close`, the interpreter, or `limit_s` seconds after its start. Without
    `verbose`, only problems are printed. Raises TfperfError for invalid batches, levels or run names.
    """

    # Keras reads these.
    async_safe = True  # Keras 3 goes on before the hooks at the end of a batch have run, as it does without them.
    _supports_tf_logs = True  # Keras 2 need not fetch losses for this callback: nothing waits for a GPU.
    _chief_worker_only: bool | None = None
    validation_data: Any = None
    _enough_s: float | None = None
    """For subclasses: a duration after which not all batches need be profiled."""
    _hint = "pass earlier batches, for example ({}, {})"

    def __init__(
        self,
        logdir: str | Path = "logs",
        batches: tuple[int, int] = (10, 19),
        *,
        limit_s: float = LIMIT_SECONDS,
        verbose: bool = True,
        run: str | None = None,
        **levels: int,
    ) -> None:
        self.model: Any = None
        self.params: dict[str, Any] = {}
        self._logdir, self._verbose = logdir, verbose
        extent = Extent(*batches, enough_s=self._enough_s, limit_s=limit_s)
        if run is not None:
            check_run_name(run)
        self._profile = StepProfile(logdir, extent, TracerOptions(**levels), self._tell, run)
        self._count: BatchCount | None = None
        self._marker: Any = None
        self._is_inside_watched = False
        self._arguments = _NO_ARGUMENTS
        """Of a method for which Keras calls no callbacks, while its step starts."""
        self._model_marks = False
        self._watched: list[Any] = []

    @property
    def result(self) -> Captured | None:
        """The result of the profile; None until there is one."""
        return self._profile.result

    def __deepcopy__(self, memo: dict[int, Any]) -> ProfileCallback:
        """Return the object itself: tuners copy callbacks for each trial, and there is one profile to take."""
        return self

    def __enter__(self) -> ProfileCallback:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End profiling if it runs, keep what was recorded, and stop watching models."""
        self.unwatch()
        self._end_count()

    # Models without hooks

    def watch(self, model: Any) -> None:
        """Make each call of `train_on_batch`, `test_on_batch` and `predict_on_batch` a counted and marked step."""
        for mode, name in ON_BATCH.items():
            # Not by setattr: Keras would take the method for a part of the model.
            vars(model)[name] = self.as_step(mode, getattr(model, name))
        self._watched.append(model)
        atexit.register(self.close)

    def unwatch(self) -> None:
        """Undo `watch`, as the end of the profile does too."""
        atexit.unregister(self.close)
        while self._watched:
            model = self._watched.pop()
            for name in ON_BATCH.values():
                vars(model).pop(name, None)

    def as_step(self, mode: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of which each call is a counted and marked step."""

        @wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            self._arguments = arguments, options
            with self.watched_step(mode):
                self._arguments = _NO_ARGUMENTS  # Else a batch would stay in memory for longer.
                return method(*arguments, **options)

        return call

    @contextlib.contextmanager
    def watched_step(self, mode: str, number: int | None = None) -> Iterator[bool]:
        """Count and mark one step, unless it is part of another or of a call of `fit`; yield whether it counts.

        The mark shows `number`, by default the count.
        """
        count = self._count
        if self._is_inside_watched or (count is not None and (count.mode != _WATCHED or count.thread != get_ident())):
            yield False
            return
        self._is_inside_watched = True
        try:
            batch = count.next if count else 0
            self._start_step(_WATCHED, batch, name=mode, number=number)
            try:
                yield True
            finally:
                self._end_step(_WATCHED, batch)
        finally:
            self._is_inside_watched = False
            if self._profile.is_done:
                self.unwatch()

    # What the hooks do

    @_harmless
    def _open(self, mode: str, logs: Any = None) -> None:
        """Start to count the batches of a call of `fit`, `evaluate` or `predict`."""
        count = self._count
        if count is None or (count.thread != get_ident() and not self._profile.is_running):
            self._count = BatchCount(mode)
        elif count.thread == get_ident():
            self._stop_marker()
            if not (count.mode == "train" and mode != "train"):  # Validation is part of the call of `fit`.
                self._end_count()
                self._count = BatchCount(mode)

    @_harmless
    def _start_step(
        self, mode: str, batch: int, logs: Any = None, *, name: str = "", number: int | None = None
    ) -> None:
        self._step_starts()
        if self._count is None:
            self._count = BatchCount(mode)
        count = self._count
        if count.thread != get_ident():
            return
        self._stop_marker()
        shown = batch
        if mode == count.mode:
            position = count.start(batch)
            self._profile.step_starts(position, count.size, self._facts)
            shown = batch if self._model_marks else position
        if "tensorflow" in sys.modules:
            self._marker = local.step_marker(name or mode, shown if number is None else number)

    def _facts(self) -> dict[str, int]:
        """Return what Keras knows about the step that starts."""
        with contextlib.suppress(Exception):
            return {**keras_facts(self.model), **facts_of_call(*self._arguments)}
        return {}

    @_harmless
    def _end_step(self, mode: str, batch: int, logs: Any = None) -> None:
        """End a step; with several steps per execution, `batch` is the last of them."""
        count = self._count
        if count is not None and mode == count.mode:
            count.end(batch)
        self._pause()

    @_harmless
    def _pause(self) -> None:
        """End the step, and the profile if that was the last one. A marker ends in the thread that it started in."""
        count = self._count
        if count is not None and count.thread == get_ident():
            self._stop_marker()
            self._profile.steps_ended(count.next)

    @_harmless
    def _close(self, mode: str, logs: Any = None) -> None:
        self._pause()
        if self._count is not None and self._count.mode == mode and self._count.thread == get_ident():
            self._end_count()

    @_harmless
    def _end_count(self) -> None:
        """End the call whose batches are counted, and the profile with it."""
        count, self._count = self._count, None
        if count is not None:
            if count.thread == get_ident():
                self._stop_marker()
            self._profile.close()
            if count.next:
                last = count.next - 1
                self._profile.too_few_steps(count.next, self._hint.format(min(2, last), last))

    def _step_starts(self) -> None:
        """For subclasses: each step calls this first."""

    def _stop_marker(self) -> None:
        marker, self._marker = self._marker, None
        if marker is not None:
            marker.Stop()

    def _tell(self, captured: Captured) -> None:
        lines = [captured.describe()] if self._verbose or captured.reason else []
        if self._verbose and captured.path:
            lines.append(f"next: tfperf analyze {self._logdir}")
        with contextlib.suppress(Exception):  # A program without stderr goes on without these lines.
            for line in lines:
                # The current line may hold a progress bar.
                print(f"{chr(10) if sys.stderr.isatty() else ''}tfperf: {line}", file=sys.stderr, flush=True)

    # The hooks of Keras

    def set_params(self, params: dict[str, Any]) -> None:
        """Take what Keras says about the call."""
        self.params = params

    @_harmless
    def set_model(self, model: Any) -> None:
        """Take the model that is trained."""
        self.model = model
        self._model_marks = any(base.__module__.startswith(_MARKING_MODULES) for base in type(model).__mro__)

    def _implements_train_batch_hooks(self) -> bool:
        return True

    _implements_test_batch_hooks = _implements_predict_batch_hooks = _implements_train_batch_hooks

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Do nothing: batches are counted over epochs."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """End the last step of the epoch."""
        self._pause()

    on_train_begin = partialmethod(_open, "train")
    on_train_end = partialmethod(_close, "train")
    on_train_batch_begin = partialmethod(_start_step, "train")
    on_train_batch_end = partialmethod(_end_step, "train")
    on_test_begin = partialmethod(_open, "test")
    on_test_end = partialmethod(_close, "test")
    on_test_batch_begin = partialmethod(_start_step, "test")
    on_test_batch_end = partialmethod(_end_step, "test")
    on_predict_begin = partialmethod(_open, "predict")
    on_predict_end = partialmethod(_close, "predict")
    on_predict_batch_begin = partialmethod(_start_step, "predict")
    on_predict_batch_end = partialmethod(_end_step, "predict")
    on_batch_begin, on_batch_end = on_train_batch_begin, on_train_batch_end
