"""The process of a script: runs it as without tfperf, profiles it at the planned time, and reports the result."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import os
import runpy
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache, partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

from msgspec import DecodeError, json
from msgspec.structs import asdict

from tfperf.capture import local
from tfperf.capture.framework import FRAMEWORKS, Framework, compiling, computing, imported, ready
from tfperf.capture.keras_callback import ON_BATCH, ProfileCallback
from tfperf.capture.local import SafeProfile, no_trace
from tfperf.capture.outcomes import Captured
from tfperf.capture.run_folder import profile_count
from tfperf.capture.script_run import BEAT, Orders, Plan, write_result

_IMPORT_POLL_SECONDS = 0.2
_BEAT_SECONDS = 0.5
_CALM_SECONDS, _MOST_COMPILATIONS = 1.0, 20
"""A profile by time starts this long after JAX compiles; this many compilations are waited for."""
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 5.0, 60.0
_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120 - compared with code names
_HIDDEN = (_FOLDER, runpy.__file__, "<string>", "<frozen runpy>")
_READY: dict[Framework, str] = {"TensorFlow": "importing TensorFlow", "JAX": "JAX started its devices"}
_NEVER = (sys.maxsize - 1, sys.maxsize - 1)
_LIBRARIES = {"keras": "Keras"} | {module: name for name, module in FRAMEWORKS.items()}
"""Names of the modules; every job needs at least one."""


def main() -> None:
    """Profile the script in the other arguments, configured by the first argument."""
    orders = json.decode(sys.argv[1], type=Orders)
    job = _ScriptJob(orders)
    job.start()
    atexit.register(job.end_by_interrupt)  # Registered first, called last.
    try:
        _run_as_main(sys.argv[2:], is_module=orders.is_module)
    except KeyboardInterrupt:
        if Path(orders.result_file).with_suffix(".stop").exists():
            job.is_stopped = True
            sys.exit(0)  # As requested: the profile is complete.
        job.is_interrupted = True
        raise
    except SystemExit as left:
        job.has_failed = left.code not in (None, 0)
        raise
    except BaseException as error:
        job.has_failed = True
        if isinstance(error, ModuleNotFoundError) and error.name in _LIBRARIES and not imported():
            job.missing = _LIBRARIES[error.name]
            sys.excepthook = lambda *_: None  # The result contains the reason and the fix in one line.
        raise
    finally:
        # At exit, because only then the script's threads have ended.
        atexit.register(job.conclude)


class _ScriptJob:
    def __init__(self, orders: Orders) -> None:
        self._orders, self._plan = orders, orders.plan
        self._process = os.getpid()
        self.is_interrupted = self.is_stopped = self.has_failed = False
        self.missing = ""
        """The library whose failed import ended the script, because this Python does not have it."""
        self._started_s = time.monotonic()
        self._lock = threading.RLock()
        self._callback = _ScriptCallback(self, self._plan)
        self._timed: _TimedProfile | None = None
        if self._plan.after_s is not None:
            self._timed = _TimedProfile(self._plan, self._plan.after_s, self.write)

    def start(self) -> None:
        hook_libraries(self._callback)
        _count_steps(self._callback)
        leave = os._exit

        def _exit(status: int) -> Any:
            """Conclude first, because `os._exit` runs no exit functions."""
            self.conclude()
            leave(status)

        os._exit = _exit
        if self._orders.stop_fd is not None:
            threading.Thread(target=self._listen, args=(self._orders.stop_fd,), name="tfperf-stop", daemon=True).start()
        if self._timed:
            threading.Thread(target=self._timed.run, name="tfperf-run", daemon=True).start()

    def step_starts(self) -> None:
        """Record that a training step starts: with steps to profile, this disables the timed profile."""
        if self._timed and self._plan.steps:
            self._timed.finish()

    def conclude(self) -> None:
        if os.getpid() != self._process:
            return  # A forked child.
        with contextlib.suppress(Exception):
            if self._timed:
                self._timed.finish("the script ended during profiling")
            self._callback.close()
            self.write(is_over=True)

    def write(self, *, is_over: bool = False) -> None:
        """Write the current result, if any; once the script is over, there always is one."""
        with self._lock:
            # Prefer a trace of steps, and any trace to a reason. Without planned steps, the callback only marks steps.
            results = [self._plan.steps and self._callback.result, self._timed and self._timed.result]
            taken = [result for result in results if result]
            captured = next((result for result in taken if result.path), taken[0] if taken else None)
            if is_over and (captured is None or computing() is None):  # Steps that compute nothing are not too few.
                captured = self._why_no_trace()
            if captured is not None:
                with contextlib.suppress(OSError):
                    write_result(Path(self._orders.result_file), captured)

    def end_by_interrupt(self) -> None:
        """End by the signal after Ctrl-C, as Python does unless other code is compiled at exit.

        A stopped script exits here, because destructors of its objects may wait for threads forever.
        """
        if self.is_stopped or (self.is_interrupted and os.name == "posix"):
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            if self.is_stopped:
                os._exit(0)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)

    def _why_no_trace(self) -> Captured:
        ended_s, after_s = time.monotonic(), self._plan.after_s
        framework = computing()
        if framework is None:
            message = "the script imported neither TensorFlow nor JAX, so it was not profiled"
            if self.missing or not any(map(find_spec, FRAMEWORKS.values())):
                fix = f"install tfperf in the environment of your job: pip install {_source_of_tfperf()}"
                missing = self.missing or "neither TensorFlow nor JAX"
                message = f"{missing} is {'not ' * bool(self.missing)}installed in this Python; {fix}"
            return no_trace("no_framework", message)
        if self.has_failed and not (self._timed and self._timed.has_profiled):
            return no_trace("no_steps", "the script failed before profiling started")
        if after_s is None:
            markers = "tfperf.step or jax.profiler.StepTraceAnnotation"
            hint = "profile by time with --after 10s"
            return no_trace("no_steps", f"the script does not train with Keras or use {markers}; {hint}")
        if self._timed and not self._timed.has_profiled:
            waited_from_s = self._timed.waited_from_s or (ended_s if self._plan.steps else self._started_s)
            seconds, hint_s = ended_s - waited_from_s, (waited_from_s + ended_s) / 2.0 - self._started_s
            since = _READY[framework] if self._plan.steps else "its start"
            ended = f"the script ended {seconds:.1f} s after {since}, but profiling starts after {after_s:g} s"
            if framework == "JAX" and seconds > after_s:
                fix = "run more steps, or mark them with tfperf.step and pass --steps"
                return no_trace("no_steps", f"the script ended while JAX started or compiled its functions; {fix}")
            return no_trace("no_steps", f"{ended}; pass --after {max(round(hint_s, 1), 0.1):g}s")
        return no_trace("idle", f"no {framework} activity was recorded")

    def _listen(self, stop_fd: int) -> None:
        """Wait for the stop request that the parent sends before it passes on a fatal signal."""
        with contextlib.suppress(OSError):
            os.set_inheritable(stop_fd, False)
            while asked := os.read(stop_fd, 1):
                if asked == BEAT:
                    threading.Thread(target=self._beat, name="tfperf-beat", daemon=True).start()
                    continue
                self.conclude()
                Path(self._orders.result_file).with_suffix(".stopped").touch()

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # The other process has ended.
            while True:
                Path(self._orders.result_file).with_suffix(".alive").touch()
                time.sleep(_BEAT_SECONDS)


class _TimedProfile:
    """Takes a timed profile once TensorFlow or JAX is ready; with steps planned, it retries while that is idle."""

    def __init__(self, plan: Plan, after_s: float, tell: Callable[[], object]) -> None:
        self._plan, self._after_s, self._tell = plan, after_s, tell
        self._name = cache(partial(profile_count.next_name, plan.run, "by time"))
        """Cached, so that all tries use the same name."""
        self._is_over = threading.Event()
        self._lock = threading.RLock()
        self._session: SafeProfile | None = None
        self.has_profiled = False
        """Whether the start time was reached."""
        self.waited_from_s: float | None = None
        """Start of the waiting time, if it counts from when TensorFlow or JAX is ready."""
        self._compilations: list[FrameType] = []
        """The frames of those seen last."""
        self._compilation_count, self._calm_from_s = 0, 0.0
        self.result: Captured | None = None

    def finish(self, note: str = "") -> None:
        """End a running profile, keep its data, and never start again."""
        self._is_over.set()
        self._stop(note)

    def run(self) -> None:
        pause_s = self._after_s
        # Importing takes long, and training comes after it.
        while self._plan.steps and ready() is None:
            if self._is_over.wait(_IMPORT_POLL_SECONDS):
                return
        self.waited_from_s = time.monotonic() if self._plan.steps else None
        while not self._is_over.wait(pause_s) and self.result is None:
            if self._is_early():
                pause_s = _IMPORT_POLL_SECONDS
                continue
            with self._lock:
                if self._is_over.is_set():
                    return
                self.has_profiled = True
                self._session = SafeProfile(self._plan.logdir, self._plan.options, self._name, self.finish)
                is_running = self._session.start()
            if is_running:
                self._is_over.wait(self._plan.duration_s)
            self._stop()
            pause_s = _FIRST_PAUSE_SECONDS if pause_s < _FIRST_PAUSE_SECONDS else min(2 * pause_s, _MAX_PAUSE_SECONDS)

    def _is_early(self) -> bool:
        """Return whether nothing computes yet, or JAX has only just started or compiled.

        A program that compiles again and again is profiled all the same.
        """
        compilations, now_s = compiling(), time.monotonic()
        if compilations and compilations != self._compilations:
            self._compilation_count += 1
        self._compilations = compilations
        if ready() is None or (compilations and self._compilation_count <= _MOST_COMPILATIONS):
            self._calm_from_s = now_s + (_CALM_SECONDS if computing() == "JAX" else 0.0)
            return True
        return now_s < self._calm_from_s

    def _stop(self, note: str = "") -> None:
        with self._lock:
            session, self._session = self._session, None
            result = session.stop(note) if session else None
            if result is None or (self._plan.steps and result.reason == "idle" and not self._is_over.is_set()):
                return
            self.result = result
            self._tell()


def _source_of_tfperf() -> str:
    """Return the `pip install` argument for this tfperf: its folder, file or address as recorded by pip."""
    from importlib import metadata
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    with contextlib.suppress(metadata.PackageNotFoundError, KeyError, DecodeError):
        recorded = json.decode(metadata.distribution("tfperf").read_text("direct_url.json") or "{}")
        url = recorded["url"]
        if "vcs_info" in recorded:
            return shlex.quote(f"{recorded['vcs_info']['vcs']}+{url}")
        if not url.startswith("file:"):
            return shlex.quote(url)
        path = url2pathname(urlsplit(url).path)
        if os.path.exists(path):  # noqa: PTH110
            return shlex.quote(path)
    return "tfperf"


class _ScriptCallback(ProfileCallback):
    """The callback that every Keras call in the script gets."""

    _hint = "pass --steps {}..{}"

    def __init__(self, job: _ScriptJob, plan: Plan) -> None:
        steps = plan.steps or _NEVER
        self._enough_s = plan.enough_s
        super().__init__(plan.logdir, steps, verbose=False, run=plan.run, **asdict(plan.options))
        self._job = job

    def _step_starts(self) -> None:
        self._job.step_starts()

    def _tell(self, captured: Captured) -> None:
        self._job.write()


def _count_steps(callback: ProfileCallback) -> None:
    class CountedStep(local.step):
        __slots__ = ("_counting",)

        def __enter__(self) -> CountedStep:
            self._counting = callback.watched_step(self._name, self._number)
            if not self._counting.__enter__():
                super().__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            super().__exit__(*error)
            self._counting.__exit__(None, None, None)

    CountedStep.__name__ = CountedStep.__qualname__ = "step"
    vars(local)["step"] = CountedStep


def _run_as_main(command: Sequence[str], *, is_module: bool) -> None:
    """Run like `python [-m] COMMAND...` without interpreter flags; exceptions propagate without tfperf's frames."""
    sys.argv[:] = command
    try:
        if is_module:
            _put_first(os.getcwd())  # noqa: PTH109
            if find_spec(command[0]) is None:
                sys.exit(f"{sys.executable}: No module named {command[0]}")
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
            return
        is_source = os.path.isfile(command[0]) and not command[0].endswith(".pyc")  # noqa: PTH113
        if is_source:
            with io.open_code(os.path.abspath(command[0])) as file:  # noqa: PTH100 - strings, as Python does it
                is_source = file.read(2) != b"PK"  # a zip file
        if is_source:
            _run_script(command[0])
        else:
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit:
        raise
    except BaseException:
        # Only now, because the program may have set its own hook.
        sys.excepthook = _without_frames_of_tfperf(sys.excepthook)
        raise


def _run_script(path: str) -> None:
    """Execute a file as the module `__main__`, which stays afterwards; runpy would remove it."""
    _put_first(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
    file = os.path.abspath(path)  # noqa: PTH100
    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", file)
    vars(main).update(__file__=file, __cached__=None, __builtins__=builtins, __loader__=loader)
    sys.modules["__main__"] = main
    with io.open_code(file) as opened:
        code = compile(opened.read(), file, "exec", dont_inherit=True)
    exec(code, vars(main))


def _put_first(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def _without_frames_of_tfperf(show: Any) -> Any:
    """Return a hook for uncaught exceptions whose traceback starts at the program's own code."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace and trace.tb_frame.f_code.co_filename.startswith(_HIDDEN):
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)

    return hook


Patch = Callable[[ModuleType], None]
_WITH_CALLBACK_LISTS = ("keras.src.callbacks", "tf_keras.src.callbacks")
_WITH_MARKERS = "jax._src.profiler"
_WITH_MODELS = ("keras.src.models.model", "keras.src.engine.training", "tf_keras.src.engine.training")


def hook_libraries(callback: ProfileCallback) -> None:
    """Make Keras 2 and 3 and the step markers of JAX call `callback`; call this before they are imported."""
    lists = dict.fromkeys(_WITH_CALLBACK_LISTS, partial(_patch_lists, callback))
    models = dict.fromkeys(_WITH_MODELS, partial(_patch_models, callback))
    sys.meta_path.insert(0, _PatchingFinder({**lists, **models, _WITH_MARKERS: partial(_patch_markers, callback)}))


class _PatchingFinder(MetaPathFinder):
    """A finder that finds no modules, but patches some right after their execution."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patch = self._patches.get(fullname)
        if patch is None:
            return None
        others = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            _patch_after(spec.loader, patch)
        return spec


def _patch_after(loader: Any, patch: Patch) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        with contextlib.suppress(Exception):  # A Keras with another structure is not profiled, but must not break.
            patch(module)

    with contextlib.suppress(AttributeError):
        loader.exec_module = exec_module


def _patch_lists(callback: ProfileCallback, module: ModuleType) -> None:
    """Add the callback to each list of callbacks that Keras creates: one per call, shared with its validation."""
    kind: Any = module.CallbackList
    original = kind.__init__

    @wraps(original)
    def __init__(self: Any, callbacks: Any = None, *arguments: Any, **options: Any) -> None:  # noqa: N807
        if not callbacks:
            callbacks = [callback]
        elif isinstance(callbacks, (list, tuple)):
            callbacks = callbacks if callback in callbacks else [*callbacks, callback]
        elif hasattr(callbacks, "on_train_batch_end"):  # A single callback is allowed, too; Keras refuses other values.
            callbacks = [callbacks, callback]
        original(self, callbacks, *arguments, **options)

    kind.__init__ = __init__


def _patch_models(callback: ProfileCallback, module: ModuleType) -> None:
    for mode, name in ON_BATCH.items():
        setattr(module.Model, name, callback.as_step(mode, getattr(module.Model, name)))


def _patch_markers(callback: ProfileCallback, module: ModuleType) -> None:
    original: Any = module.StepTraceAnnotation

    class StepTraceAnnotation:
        """Counts a step, and marks it with JAX's own class, whose event starts when its object is made."""

        def __init__(self, name: str, **options: Any) -> None:
            self._name, self._options = name, options

        def __enter__(self) -> Any:
            self._counting = callback.watched_step(None)
            self._counting.__enter__()
            self._marker = original(self._name, **self._options)
            return self._marker.__enter__()

        def __exit__(self, *error: Any) -> None:
            self._marker.__exit__(*error)
            self._counting.__exit__(None, None, None)

    StepTraceAnnotation.__module__, StepTraceAnnotation.__qualname__ = original.__module__, original.__qualname__
    vars(module)["StepTraceAnnotation"] = StepTraceAnnotation
