"""A callback that profiles some batches of a Keras training. Works with Keras 3 and tf.keras; imports neither."""

from __future__ import annotations

import atexit
import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, partialmethod, wraps
from pathlib import Path
from threading import get_ident
from typing import Any, TypeVar

from msgspec import Struct

from tfperf.base.errors import TfperfError
from tfperf.base.units import counted
from tfperf.capture import local
from tfperf.capture.framework import start_marker
from tfperf.capture.local import SafeProfile, failed_profile, no_trace
from tfperf.capture.outcomes import Captured, TracerOptions
from tfperf.capture.run_folder import check_run_name, profile_count

LIMIT_SECONDS = 120.0
_CALLS = ("fit", "evaluate", "predict")
_MOST_FRAMES = 100
_WHOLE_ELEMENTS = ("Prefetch", "Cache", "Repeat", "Shuffle", "Take", "Skip", "Options", "Model", "AssertCardinality")
"""Prefixes of the class names of tf.data stages that pass whole elements on."""


def keras_facts(model: Any) -> dict[str, int]:
    """Return fields of `CaptureFacts` for the current call of `fit`, `evaluate` or `predict` of `model`."""
    facts: dict[str, int] = {}
    if model is None:
        return facts
    with suppress(Exception):
        facts["steps_per_execution"] = _plain_int(getattr(model, "steps_per_execution", None)) or _plain_int(
            getattr(model, "_steps_per_execution", None)
        )
    with suppress(Exception):
        strategy = model.distribute_strategy
        facts["replicas"] = facts["local_replicas"] = int(strategy.num_replicas_in_sync)
        if facts["replicas"] > 1:
            facts["local_replicas"] = len(strategy.extended.worker_devices)
    with suppress(Exception):  # Keras on JAX.
        distribution = sys.modules["keras"].distribution.distribution()
        mesh = distribution.device_mesh
        facts["replicas"] = int(mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)])
        processes = int(sys.modules["jax"].process_count())
        facts["local_replicas"] = facts["replicas"] // processes
    with suppress(Exception):
        adapter = next(_adapters(model))
        stated = adapter.batch_size
        stated = stated() if callable(stated) else stated
        facts["batch_size"] = int(stated) if stated else _dataset_batch_size(adapter._dataset)
    return {name: value for name, value in facts.items() if value and value > 0}


def facts_of_call(arguments: Sequence[Any], options: Mapping[str, Any]) -> dict[str, int]:
    """Return fields of `CaptureFacts` for a call of `train_on_batch` or similar; the first array is a batch."""
    given = [*arguments, *options.values()]
    while given:
        first = given.pop(0)
        if isinstance(first, Mapping):
            given = [*first.values(), *given]
        elif isinstance(first, (list, tuple)):
            given = [*first, *given]
        elif getattr(first, "shape", None) is not None:
            shape = tuple(first.shape)
            return {"batch_size": int(shape[0]), "steps_per_execution": 1} if shape and shape[0] else {}
    return {}


def _plain_int(value: Any) -> int:
    """Return an int from a number or a variable: Keras 2 keeps `steps_per_execution` in a variable."""
    return 0 if value is None else int(value.numpy() if hasattr(value, "numpy") else value)


def _adapters(model: Any) -> Iterator[Any]:
    """Yield the data adapters of the current call: those of Keras 3, then those of Keras 2."""
    frame = sys._getframe()
    for _ in range(_MOST_FRAMES):
        if frame.f_code.co_name in _CALLS and frame.f_locals.get("self") is model:
            for name, attribute in (("epoch_iterator", "data_adapter"), ("data_handler", "_adapter")):
                adapter = getattr(frame.f_locals.get(name), attribute, None)
                if adapter is not None:
                    yield adapter
        if frame.f_back is None:
            return
        frame = frame.f_back


def _dataset_batch_size(dataset: Any) -> int:
    """Return the batch size of the outermost batch stage, if all later stages pass whole elements on."""
    tensorflow = sys.modules["tensorflow"]
    while True:
        name = type(dataset).__name__.lstrip("_")
        if "Batch" in name:
            size = tensorflow.get_static_value(dataset._batch_size)
            return 0 if size is None else int(size)
        if not name.startswith(_WHOLE_ELEMENTS):
            return 0
        dataset = dataset._input_dataset


Hook = TypeVar("Hook", bound=Callable[..., None])
ON_BATCH = {"train": "train_on_batch", "test": "test_on_batch", "predict": "predict_on_batch"}
"""Methods of a model for which Keras calls no callbacks."""
_WATCHED = "watched"
_NO_ARGUMENTS: tuple[tuple[Any, ...], dict[str, Any]] = (), {}
_MARKING_MODULES = ("tf_keras.", "keras.src.engine.")
"""Modules of models whose `fit` marks steps itself, with the number in the epoch: Keras 2, alias tf.keras."""


class BatchCount:
    """Counts the batches of one call of `fit`, `evaluate` or `predict` from 0, over all its epochs."""

    def __init__(self, mode: str) -> None:
        self.mode, self.thread = mode, get_ident()
        self.size = 1
        """Batches per execution."""
        self._base: int | None = None
        self._latest_start = self._latest_end = -1

    def start(self, batch: int) -> int:
        """Return the number of the batch that starts; `batch` is its number in the epoch."""
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
        """Record the last batch that has ended. Keras 3 may call this from another thread, and out of order."""
        self._latest_end = max(self._latest_end, batch)
        if batch >= self._latest_start and get_ident() == self.thread:
            self.size = batch - self._latest_start + 1

    @property
    def next(self) -> int:
        """Number of the batch after those that have ended."""
        return (self._base or 0) + self._latest_end + 1


def _harmless(hook: Hook) -> Hook:
    """Return a hook whose failure ends profiling but never the training."""

    @wraps(hook)
    def call(self: ProfileCallback, *arguments: Any, **options: Any) -> None:
        try:
            hook(self, *arguments, **options)
        except Exception as error:
            self._profile.fail(error)

    return call  # type: ignore[return-value]


class ProfileCallback:
    """Profile some batches: `model.fit(data, callbacks=[ProfileCallback("logs", batches=(10, 19))])`.

    `batches` are the first and the last batch, inclusive, counted from 0 over all epochs of a call of `fit`, or of
    `evaluate` and `predict` outside `fit`. Validation within `fit` is not counted. With `steps_per_execution`, the
    profile contains whole executions. Each batch is marked as a step, for tfperf and other profilers. One object takes
    one profile, in the first call that reaches `batches`. `levels` are keywords of `TracerOptions`. `run` is that of
    `tfperf.start`; without it, workers of a cluster that profile the same batches agree on a run.

    Keras calls no callbacks in `train_on_batch` and similar methods: call `watch(model)` first, and use the callback as
    a context manager (or call `close`) around the loop. The hooks may also be called by hand.

    `result` is a `Captured` after the profile; `result.overhead_percent` compares it with the batches before. If
    profiling fails, `result` and a line on stderr report the error, and training continues. If a step fails, Keras
    calls no hook, so the next `fit`, `close`, interpreter exit, or `limit_s` seconds after the start end the profile.
    Without `verbose`, only problems are printed. Raises TfperfError for invalid batches, levels or run names.
    """

    async_safe = True  # Keras 3 need not wait for the hooks at the end of a batch.
    _supports_tf_logs = True  # Keras 2 need not fetch losses for this callback, so nothing waits for a GPU.
    _chief_worker_only: bool | None = None
    validation_data: Any = None
    _enough_s: float | None = None
    """For subclasses: a duration after which the profile may end before the last batch."""
    _hint = "pass earlier batches, for example ({}, {})"

    def __init__(
        self,
        logdir: str | Path = "logs",
        batches: tuple[int, int] = (10, 19),
        *,
        limit_s: float = LIMIT_SECONDS,
        verbose: bool = True,
        run: str | None = None,
        **levels: Any,
    ) -> None:
        self.model: Any = None
        self.params: dict[str, Any] = {}
        self._logdir, self._verbose = logdir, verbose
        extent = Extent(*batches, enough_s=self._enough_s, limit_s=limit_s)
        if run is not None:
            check_run_name(run)
        self._profile = StepProfile(logdir, extent, TracerOptions(**levels), self._tell, run)
        self._count: BatchCount | None = None
        self._marker: Callable[[], object] | None = None
        self._is_inside_watched = False
        self._arguments = _NO_ARGUMENTS
        """Arguments of a method for which Keras calls no callbacks, while its step starts."""
        self._model_marks = False
        self._watched: list[Any] = []

    @property
    def result(self) -> Captured | None:
        """The result of the profile; None before that."""
        return self._profile.result

    def __deepcopy__(self, memo: dict[int, Any]) -> ProfileCallback:
        """Return the object itself: tuners copy callbacks for each trial, but there is only one profile."""
        return self

    def __enter__(self) -> ProfileCallback:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End a running profile, keep its data, and stop watching models."""
        self.unwatch()
        self._end_count()

    def watch(self, model: Any) -> None:
        """Count and mark each call of `train_on_batch`, `test_on_batch` and `predict_on_batch` as a step."""
        for mode, name in ON_BATCH.items():
            # Not by setattr: Keras would track the method as a part of the model.
            vars(model)[name] = self.as_step(mode, getattr(model, name))
        self._watched.append(model)
        atexit.register(self.close)

    def unwatch(self) -> None:
        """Undo `watch`; the end of the profile does this, too."""
        atexit.unregister(self.close)
        while self._watched:
            model = self._watched.pop()
            for name in ON_BATCH.values():
                vars(model).pop(name, None)

    def as_step(self, mode: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that counts and marks each call as a step."""

        @wraps(method)
        def call(*arguments: Any, **options: Any) -> Any:
            self._arguments = arguments, options
            with self.watched_step(mode):
                self._arguments = _NO_ARGUMENTS  # Otherwise a batch would stay in memory for longer.
                return method(*arguments, **options)

        return call

    @contextlib.contextmanager
    def watched_step(self, name: str | None, number: int | None = None) -> Iterator[bool]:
        """Count a step, unless it is nested or in a call of `fit`; yield whether it counts.

        If it counts, it is marked as `number` with this name; None: the caller marks it.
        """
        count = self._count
        if self._is_inside_watched or (count is not None and (count.mode != _WATCHED or count.thread != get_ident())):
            yield False
            return
        self._is_inside_watched = True
        try:
            batch = count.next if count else 0
            self._start_step(_WATCHED, batch, name=name, number=number)
            try:
                yield True
            finally:
                self._end_step(_WATCHED, batch)
        finally:
            self._is_inside_watched = False
            if self._profile.is_done:
                self.unwatch()

    @_harmless
    def _open(self, mode: str, logs: Any = None) -> None:
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
        self, mode: str, batch: int, logs: Any = None, *, name: str | None = "", number: int | None = None
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
        if name is not None:
            self._marker = start_marker(name or mode, shown if number is None else number)

    def _facts(self) -> dict[str, int]:
        with contextlib.suppress(Exception):
            return {**keras_facts(self.model), **facts_of_call(*self._arguments)}
        return {}

    @_harmless
    def _end_step(self, mode: str, batch: int, logs: Any = None) -> None:
        count = self._count
        if count is not None and mode == count.mode:
            count.end(batch)
        self._pause()

    @_harmless
    def _pause(self) -> None:
        """End the step, and the profile after its last step. A marker ends in the thread that it started in."""
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
        count, self._count = self._count, None
        if count is not None:
            if count.thread == get_ident():
                self._stop_marker()
            self._profile.close()
            if count.next:
                last = count.next - 1
                self._profile.too_few_steps(count.next, self._hint.format(min(2, last), last))

    def _step_starts(self) -> None:
        """Hook for subclasses, called at the start of each step."""

    def _stop_marker(self) -> None:
        marker, self._marker = self._marker, None
        if marker is not None:
            marker()

    def _tell(self, captured: Captured) -> None:
        lines = [captured.describe()] if self._verbose or captured.reason else []
        if self._verbose and captured.path:
            lines.append(f"next: tfperf analyze {self._logdir}")
        with contextlib.suppress(Exception):  # Without stderr, the program continues without these lines.
            for line in lines:
                # The current line may contain a progress bar.
                print(f"{chr(10) if sys.stderr.isatty() else ''}tfperf: {line}", file=sys.stderr, flush=True)

    def set_params(self, params: dict[str, Any]) -> None:
        """Store the parameters of the call."""
        self.params = params

    @_harmless
    def set_model(self, model: Any) -> None:
        """Store the model of the call."""
        self.model = model
        self._model_marks = any(base.__module__.startswith(_MARKING_MODULES) for base in type(model).__mro__)
        self._profile.keras_backend = "tensorflow" if self._model_marks else ""
        if not self._model_marks:
            with suppress(Exception):
                self._profile.keras_backend = str(sys.modules["keras"].config.backend())

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


FEWEST_STEPS = 10


class Extent(Struct, frozen=True):
    """Steps to profile: `first` to `last`, inclusive.

    With `enough_s`, profiling may end earlier: after this duration, once it has `FEWEST_STEPS`. It always ends after
    `limit_s`. Raises TfperfError unless 0 <= first <= last.
    """

    first: int
    last: int
    enough_s: float | None = None
    limit_s: float = LIMIT_SECONDS

    def __post_init__(self) -> None:
        if not 0 <= self.first <= self.last:
            problem = f"{(self.first, self.last)} is not a range of steps"
            raise TfperfError(f"{problem}; use (FIRST, LAST) with 0 <= FIRST <= LAST")


class StepProfile:
    """Profiles the steps of an extent, as its methods report them; never raises once constructed.

    Several steps may run at once (`steps_per_execution` of Keras). Then the profile contains all executions with a step
    of the range, at least one, but never the very first, which builds the functions. `tell` is called with each result.
    """

    def __init__(
        self,
        logdir: str | Path,
        extent: Extent,
        options: TracerOptions,
        tell: Callable[[Captured], object],
        run: str | None = None,
    ) -> None:
        self._extent, self._first, self._stop = extent, extent.first, extent.last + 1
        self._tell = tell
        # Processes of a job take the same steps, so the steps identify the run.
        name = partial(profile_count.next_name, run, f"step {extent.first}")
        self._session = SafeProfile(logdir, options, name, self.close)
        self._reporting = threading.RLock()
        self._timer: threading.Timer | None = None
        self._started_at = self._next = self._first
        self._started_s = 0.0
        self.keras_backend = ""
        """As in `SafeProfile`."""
        self.result: Captured | None = None

    @property
    def is_done(self) -> bool:
        """Whether the profile was taken, or failed."""
        return self._session.result is not None

    @property
    def is_running(self) -> bool:
        """Whether the profile is being taken."""
        return self._session.is_running

    def step_starts(self, step: int, size: int = 1, facts: Callable[[], dict[str, int]] = dict) -> None:
        """Record that `size` steps start with `step`; `facts` is called when the profile starts."""
        if self.is_done:
            return
        local.step_times.mark()
        if self.is_running:
            self._advance(step)
        elif step >= self._first or (step and step + size > self._first):
            self._session.keras_facts = facts()
            self._start(step)

    def steps_ended(self, next_step: int) -> None:
        """Record that all steps before `next_step` have ended."""
        if self.is_running and self._is_complete(next_step):
            local.step_times.mark()  # The last step ends here.
        self._advance(next_step)

    def close(self) -> None:
        """End a running profile early, because no more steps come."""
        self._finish("training ended after")

    def fail(self, error: Exception) -> None:
        """End the profile with an error as the result."""
        if not self.is_done:
            self._session.stop()
            self._session.result = self._session.result or failed_profile(error)
            self._report()

    def too_few_steps(self, count: int, hint: str) -> None:
        """Record that training ended after `count` steps, with no step in the range."""
        if not self.is_done and self.result is None:
            message = f"training ended after {counted(count, 'batch', 'batches')}, before batch {self._first}; {hint}"
            self.result = no_trace("no_steps", message)
            self._tell(self.result)

    def _start(self, step: int) -> None:
        self._started_at = self._next = step
        self._session.keras_backend = self.keras_backend
        if not self._session.start():
            self._report()
            return
        limit_s = self._extent.limit_s
        early = f"profiling was stopped after {limit_s:g} s, after"
        self._timer = threading.Timer(limit_s, self._finish, (early,))
        self._timer.daemon = True
        self._timer.start()
        self._started_s = time.monotonic()
        local.step_times.mark()  # The time for starting the profile belongs to no step.

    def _advance(self, next_step: int) -> None:
        if self.is_running:
            self._next = next_step
            if self._is_complete(next_step) and next_step > self._started_at:
                self._finish()

    def _is_complete(self, next_step: int) -> bool:
        enough_s = self._extent.enough_s
        if enough_s is None or next_step - self._started_at < FEWEST_STEPS:
            return next_step >= self._stop
        return next_step >= self._stop or time.monotonic() - self._started_s >= enough_s

    def _finish(self, early: str = "") -> None:
        if self.is_running:
            count = self._next - self._started_at
            wanted = max(self._stop - self._started_at, 1)
            if self._extent.enough_s is not None:
                wanted = min(wanted, FEWEST_STEPS)
            batches = f"{count} of the {counted(wanted, 'batch', 'batches')} to profile"
            self._session.stop(f"{early} {batches}" if early and count < wanted else "")
            self._report()

    def _report(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._reporting:
            result = self._session.result
            if result is not None and result is not self.result:
                self.result = result
                self._tell(result)
