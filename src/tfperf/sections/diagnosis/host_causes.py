"""Causes on the host: tracing, eager execution, Python, and time without events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec.structs import replace

from tfperf.base.units import PS_PER_MS, counted, format_bytes, format_ms, format_number, without_middle
from tfperf.report.model import Quantity
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.catalogue import ADVICE
from tfperf.sections.diagnosis.cause import Action, Cause, Confidence, Evidence, Range
from tfperf.sections.diagnosis.step_ops import RECURRENT
from tfperf.sections.diagnosis.wall_causes import compiling_percent, compiling_text
from tfperf.trace.steps.steps import COLLECTION, INFERENCE, RETRACE, SLOW_FIRST

if TYPE_CHECKING:
    from tfperf.sections.functions.analysis import Functions, FunctionStats
    from tfperf.sections.functions.eager import FetchKind
    from tfperf.sections.python.analysis import BetweenCalls

_SMALL_DEVICE_SHARE = 0.25
_FIXED_PERCENT = 20.0
_FRAMEWORK_MS = 2.5
"""Python of Keras or of a plain loop takes less per step."""
_OF_LONG_STEPS = Range(0.0, 0.85)
"""Share of Python time that several steps per call save if ops take half of the step: measured, 0 to 10% of steps."""
_LONG_OPS_MS = 5.0
"""If ops take longer than this and half of the step, calls cost little: the rest is mostly waiting for a core."""
_LONG_MS = 50.0
"""A step that computes longer has little per-step overhead, so a larger batch gains little."""
_BY_LARGER_BATCH = Range(0.4, 0.7)
_LARGER_BATCH_IF = (
    "for the same number of examples, in batches twice as large, if memory and accuracy allow them; small ops then "
    "take about the same time (measured: 36 to 57% less per example)"
)
_OVERHEAD_PERCENT = 5.0
_HALF_PERCENT = 50.0
_HALF_OF_IT = 0.5
"""Compute share of a second Python thread while the first one runs, because they share the GIL."""
_BESIDE = 0.8
"""Minimum share of the shorter of two activities that overlapping them saves."""
_COPIES_BESIDE = 0.5
"""The same for copies of arrays in pageable memory (measured on an H200: 0.6)."""
_FEW_STEPS = 0.25
_NEARLY_ALL = 0.9


def compilation(case: Case) -> Cause | None:
    """Check for tracing and compilation: `warm_up` if only the first calls of the capture trace."""
    outside = compiling_percent(case)
    if not case.matters("compilation") and outside is None:
        return None
    functions = case.of_pace["functions"]
    detail, action_against, rests_on = _what_compiles(functions)
    steps = case.results["steps"].steps
    traced = [flag == RETRACE for flag, kind in zip(steps.flags, steps.kinds, strict=True) if kind == case.summary.kind]
    is_warm_up = any(traced) and not all(traced) and not any(traced[sum(traced) :])
    code, action = ("warm_up", "profile_later") if is_warm_up else ("compilation", action_against)
    verb = "Tracing" if functions.jitted.most_compiled is None else "Compiling"
    title = f"{verb} in the first calls of the program" if is_warm_up else "Compilation"
    cost = case.ledger.claim("compilation")
    rests_on = (in_categories("compilation"), *rests_on)
    wall = case.wall
    if wall is not None and outside is not None:
        detail = "; ".join(filter(None, (detail, compiling_text(wall))))
        return case.over_wall().cause(
            "compilation", "Compilation", outside, detail, actions=(action_against,), rests_on=rests_on
        )
    if code == "compilation" and _always_compiles(functions):
        # Each run is the first one after its compilation, and prepares it. How much shorter later runs are is unknown,
        # but preparation takes no longer than compilation.
        cost = Range(cost.low, cost.high + case.ledger.claim("host_compute", most=cost.high).high)
        detail += "; every run is a first run, and first runs take longer"
    return case.cause(code, title, cost, detail, actions=(action,), rests_on=rests_on)


def _always_compiles(functions: Functions) -> bool:
    jitted = functions.jitted.most_compiled
    if jitted is not None:
        return jitted.compiling_calls >= _NEARLY_ALL * jitted.calls
    most = max(functions.functions, key=lambda each: each.compiling_calls, default=None)
    return most is not None and most.compiling_calls >= _NEARLY_ALL * max(most.call_count, 1)


def _what_compiles(functions: Functions) -> tuple[str, str, tuple[Evidence, ...]]:
    """Return which function is traced or compiled, and how often, as a clause; the action; the evidence."""
    jitted = functions.jitted.most_compiled
    if jitted is not None:
        name = without_middle(jitted.name, LONGEST_NAME)
        detail = f"{name} was compiled in {jitted.compiling_calls} of {counted(jitted.calls, 'call')}"
        detail += f"; {jitted.changed}" if jitted.changed else ""
        return detail, "keep_signature", (Evidence("functions", "jitted_functions", jitted.name),)

    def changes(function: FunctionStats) -> tuple[int, int]:
        return max(function.calls.get("traced", 0), function.compiling_calls), function.compiling_calls

    function = max(functions.functions, key=changes, default=None)
    if function is None or not max(changes(function)):
        return "functions were traced or compiled", "keep_signature", ()
    traced, compiled = function.calls.get("traced", 0), function.compiling_calls
    name, calls = without_middle(function.name, LONGEST_NAME), counted(function.call_count, "call")
    detail, action = f"{name} was traced in {traced} of {calls}", "keep_signature"
    if compiled:
        detail = f"XLA compiled {name} in {compiled} of {calls}" + f", {traced} of them with tracing" * bool(traced)
        detail += f"; {function.changed}" if function.changed else ""
        action = "pad_shapes"
    elif function.is_made_anew:
        detail, action = f"{detail}, as a new tf.function each time", "create_function_once"
    return detail, action, (Evidence("functions", "tf_functions", function.name),)


def warm_up(case: Case) -> Cause | None:
    """Check for first steps of the capture that trace or take very long, so that averages exclude them."""
    steps = case.results["steps"].steps
    rows = np.flatnonzero(steps.are(case.summary.kind))
    first = 0
    while first < len(rows) and steps.flags[rows[first]] in (RETRACE, SLOW_FIRST):
        first += 1
    if not first or case.summary.averaged_count + first > len(rows):
        return None
    total_ms = float(steps.duration_ps[rows[:first]].sum()) / PS_PER_MS
    total = Quantity("warm_up", total_ms, "ms", case.summary.kind)
    named = f"step {steps.numbers[rows[0]]} takes" if first == 1 else f"the first {first} steps take"
    return case.cause(
        "warm_up",
        "The capture includes warm-up",
        None,
        f"{named} {total}, as much as {total_ms / case.step_ms:.0f} average steps (excluded from the averages)",
        actions=(case.action("profile_later", Range(0.0, 0.0), assumption=_LOADED * case.program.is_tpu),),
        rests_on=(Evidence("steps", "steps", steps.names[rows[0]]),),
        quantities=(total,),
    )


_LOADED = "later calls reuse the compiled and loaded program"


_OF_CAPTURE_PERCENT = 20.0
"""Without steps, threshold for eager execution as a cause, in percent of the capture."""
_PARTS_OF_STEP = ("compilation", "input_wait", "host_compute", "all_others")
_BATCHES_OF_CALL = 4
"""A pipeline that serves more calls of a function is not made for single batches."""


def iterator_per_step(case: Case) -> Cause | None:
    """Check for steps that each create a tf.data pipeline: `predict` of single examples, or an iterator in the loop."""
    program = case.program
    made = program.calls.iterators_per_step
    if made < _OFTEN or program.calls.functions_per_step > _BATCHES_OF_CALL * made:
        return None
    share = 100.0 - program.calls.function_percent
    if min(share, case.ledger.left(*_PARTS_OF_STEP)) < LEAST_PERCENT:
        return None
    cost = case.ledger.claim(*_PARTS_OF_STEP, most=share)
    function = case.quantity("function", program.calls.function_percent)
    return case.cause(
        "iterator_per_step",
        "Creating an input pipeline in each step",
        cost,
        f"a step creates {format_number(made)} tf.data iterators; the function that it calls runs for {function}",
        actions=("one_iterator",),
        rests_on=(Evidence("functions", "eager_ops", "MakeIterator"),),
        quantities=(function,),
    )


_OFTEN = 0.5
_OVERHEAD_OF_OP = Range(0.85, 0.98)
"""Share of eager op time, without kernels, that a function saves: measured with small jobs."""
_KERNELS_OF_OP = Range(0.0, 0.8)
"""Share of their kernel time that it saves by fusion."""
_LARGE_KERNEL_MS = 1.0
"""Kernels with at least this mean time take as long inside a function."""


def checkpointing(case: Case) -> Cause | None:
    """Check for checkpoints that steps save by TensorFlow ops."""
    return _fetching(case, "checkpointing", ("save",))


def fetch_results(case: Case) -> Cause | None:
    """Check for summaries, metric results and variable values that the program reads between its calls."""
    return _fetching(case, "fetch_results", ("summary", "metrics", "variables", "arrays"))


_FETCHED: dict[FetchKind, tuple[str, str, str]] = {
    "save": ("Saving checkpoints", "SaveV2", ""),
    "summary": ("Writing summaries", "WriteHistogramSummary", ""),
    "metrics": ("Reading metrics", "DivNoNan", ", op by op, as Metric.result() does"),
    "variables": (
        "Reading variables",
        "ReadVariableOp",
        ", one by one, as get_weights(), numpy() and checkpoints in .h5 or .keras files do",
    ),
    "arrays": ("Reading device arrays", "", ", as np.asarray, float() and jax.device_get do"),
}
"""By kind: title of the cause, an op that shows it, and the usual API."""


def _fetching(case: Case, code: str, kinds: tuple[FetchKind, ...]) -> Cause | None:
    """Return the cause of reads or saves between calls, named after the kind that takes most of the step."""
    eager, parts = case.of_pace["functions"].eager, ("all_others", "host_compute")
    found = {kind: eager.fetches(kind) for kind in kinds}
    share = sum(percent for percent, _, _ in found.values())
    if min(share, case.ledger.left(*parts)) < LEAST_PERCENT:
        return None
    kind = max(kinds, key=lambda each: found[each][0])
    _, steps, variables = found[kind]
    title, op, how = _FETCHED[kind]
    cost = case.ledger.claim(*parts, most=share)
    of_whole, wholes = case.of_whole(case.quantity("fetching", share), cost)
    what = "arrays" if kind == "arrays" else "variables"
    callback = ", including the rest of the callback" * (eager.percent_of("held_ps") >= LEAST_PERCENT)
    read = f", {format_number(variables)} {what} each time{how}" if variables else how
    return case.cause(
        code,
        title,
        cost,
        f"in {steps} of {counted(case.summary.averaged_count, 'step')}{read}{callback}{of_whole}",
        actions=("save_less_often" if kind == "save" else "fetch_less_often",),
        rests_on=(Evidence("functions", "eager_ops", op),) if op in eager.op_types else (),
        quantities=wholes,
    )


def eager_ops(case: Case) -> Cause | None:
    """Check for eager ops, including the Python between them: `run_eagerly` if Keras runs them."""
    eager, program = case.of_pace["functions"].eager, case.program
    whole = eager.stretch_percent or 0.0
    of_kernels = min(eager.percent_of("kernel_ps"), whole)
    if of_kernels * case.step_ms / 100.0 >= _LARGE_KERNEL_MS * eager.stretch_calls_per_step:
        case.ledger.of_kernels = of_kernels
    share = whole - case.ledger.of_kernels
    parts = ("host_compute", "kernel_launch", "all_others")
    if min(share, case.ledger.left(*parts)) < LEAST_PERCENT:
        return None
    kernels = case.quantity("eager_kernels", of_kernels)
    most = ", ".join(without_middle(name, LONGEST_NAME) for name in eager.own_types[:3])
    detail = (
        f"{format_number(eager.stretch_calls_per_step)} ops per step outside any function, including the Python "
        f"between them (top: {most})"
    )
    if of_kernels >= LEAST_PERCENT:
        detail += f"; kernels take {kernels}" + ", as they would inside a function" * bool(case.ledger.of_kernels)
    rests_on = [Evidence("functions", "eager_ops", eager.own_types[0])] if eager.own_types else []
    between = case.ledger.claim("all_others", most=max(whole - (eager.percent or 0.0), 0.0)).high
    claimed = between + case.ledger.claim(*parts, most=share - between).high
    # A small kernel takes as long inside a function, or less if it is fused.
    small = (of_kernels - case.ledger.of_kernels) / share
    cost = Range(claimed * (1.0 - (1.0 - _KERNELS_OF_OP.low) * small), claimed)
    of_whole, wholes = case.of_whole(case.quantity("eager_stretch", share), cost)
    code, title, action = "eager_ops", "Eager execution", "use_function"
    if program.calls.runs_keras_eagerly:
        code, title, action = "run_eagerly", "compile(run_eagerly=True)", "omit_run_eagerly"
    elif any(function.calls.get("eager") for function in case.of_pace["functions"].functions):
        title, action = "Eager execution of tf.functions", "omit_run_functions_eagerly"
    return case.cause(
        code,
        title,
        cost,
        detail + of_whole,
        actions=(_as_function(case, action, claimed, small),),
        rests_on=rests_on,
        quantities=(kernels, *wholes),
    )


def _as_function(case: Case, code: str, percent: float, kernels: float) -> Action | None:
    """Return the advice to use a function: ops take `percent` of the step, and kernels `kernels` of that."""
    saved = Range(
        _OVERHEAD_OF_OP.low * (1 - kernels) + _KERNELS_OF_OP.low * kernels,
        _OVERHEAD_OF_OP.high * (1 - kernels) + _KERNELS_OF_OP.high * kernels,
    )
    action = case.action(code, Range(percent, percent), saved)
    if action is None or code != "use_function" or case.program.api != "tensorflow":
        return action
    if case.program.calls.functions_per_step >= _OFTEN:
        return replace(action, text="move these ops into the tf.function that the step calls")
    with_gradients = case.of_pace["functions"].eager.computes_gradients
    return replace(action, text=action.text + ", with the gradients and the optimizer" * with_gradients)


_CONSTANT_OR_BESIDE = "at best, the arrays are constant; at least, half of the rest of the step overlaps the copies"


def numpy_conversion(case: Case) -> Cause | None:
    """Check for large NumPy arrays that each step converts to tensors."""
    calls, parts = case.program.calls, ("host_compute", "all_others", "host_to_device")
    percent = calls.conversion_percent
    if calls.conversions_per_step < _OFTEN or min(percent, case.ledger.left(*parts)) < LEAST_PERCENT:
        return None
    cost = case.ledger.claim(*parts, most=percent)
    of_whole, wholes = case.of_whole(case.quantity("conversion", percent), cost)
    count = format_number(calls.conversions_per_step)
    detail = f"{count} array{'s' * (count != '1')} of 1 MB or more per step"
    saves = None
    if case.program.api == "jax":
        detail = "host arrays are copied to the device"
        detail += ", first into pinned memory" * case.results.has_device
        # Copies of new batches can only overlap the rest of the step; a constant array needs none.
        saves = Range(_COPIES_BESIDE * min(max(100.0 - cost.high, 0.0) / cost.high, 1.0), 1.0)
    detail += f", up to {format_bytes(calls.conversion_bytes)}" if calls.conversion_bytes else ""
    if calls.conversion_function:
        detail += f", in calls of {without_middle(calls.conversion_function, LONGEST_NAME)}"
    return case.cause(
        "numpy_conversion",
        "Copying NumPy arrays" if case.program.api == "jax" else "Converting NumPy arrays",
        cost,
        detail + of_whole,
        actions=(case.action("convert_once", cost, saves, _CONSTANT_OR_BESIDE if saves else ""),),
        rests_on=(in_categories("host_compute"),),
        quantities=wholes,
    )


_MANY = 10.0
_OF_MANY = 0.5


def small_arrays(case: Case) -> Cause | None:
    """Check for many small host arrays that each step copies to the device one by one (JAX)."""
    calls, parts = case.program.calls, ("host_compute", "all_others", "host_to_device", "kernel_launch")
    share = min(calls.small_put_percent, case.ledger.left(*parts))
    if calls.small_puts_per_step < _MANY or calls.conversions_per_step >= _OFTEN or share < LEAST_PERCENT:
        return None
    cost, count = case.ledger.claim(*parts, most=share), calls.small_puts_per_step
    return case.cause(
        "numpy_conversion",
        "Copying NumPy arrays",
        cost,
        f"{format_number(count)} arrays per step are copied to the device one by one, with Python between them",
        actions=(case.action("stack_arrays", cost, Range(_OF_MANY, 1.0 - 1.0 / count)),),
        rests_on=(in_categories("host_compute"),),
    )


def compilation_of_capture(case: Case) -> Cause | None:
    """Check for compilation in most of a capture without steps."""
    taken = Quantity("compiling", case.program.calls.compiling_percent, "%", "the capture")
    if (taken.value or 0.0) < _OF_CAPTURE_PERCENT:
        return None
    text = f"XLA compiles during {taken} of the capture, so no step is complete"
    return _of_capture(case, "compilation", "Compilation", text, "profile_later", taken=taken, confidence="medium")


def eager_ops_of_capture(case: Case) -> Cause | None:
    """Check for eager ops in a capture without steps, as a share of the capture."""
    eager = case.of_pace["functions"].eager
    share = eager.percent_of_capture or 0.0
    if share < _OF_CAPTURE_PERCENT:
        return None
    most = ", ".join(without_middle(name, LONGEST_NAME) for name in eager.op_types[:3])
    taken = Quantity("eager_of_capture", share, "%", "the capture")
    text = f"{int(eager.calls.sum()):,} ops outside any function take {taken} of the capture (top: {most})"
    evidence = Evidence("functions", "eager_ops", eager.op_types[0])
    return _of_capture(
        case, "eager_ops", "Eager execution", text, "mark_steps", taken=taken, confidence="low", rests_on=(evidence,)
    )


def _of_capture(  # noqa: PLR0913  (the fields of a cause)
    case: Case,
    code: str,
    title: str,
    detail: str,
    advice: str,
    *,
    taken: Quantity,
    confidence: Confidence,
    rests_on: tuple[Evidence, ...] = (),
) -> Cause:
    """Return a cause without a cost, in a capture without steps."""
    action = case.without_estimate(advice)
    return Cause(
        code=code,
        title=title,
        kind=case.summary.kind,
        cost_ms=None,
        cost_percent=None,
        detail=detail,
        confidence=confidence,
        rests_on=rests_on,
        actions=() if action is None else (action,),
        gain_ms=0.0,
        step_ms=case.step_ms,
        quantities=(taken,),
        host=case.host,
    )


def small_work_per_step(case: Case) -> Cause | None:
    """Check for steps with a large share of per-step overhead: calls, launches, Python.

    On a GPU, the overhead is all but device work and waiting for results, if the device works for less than a quarter
    of the time. Else it is the host time without its ops. Python that takes longer than the calls of a framework
    usually cost is the program's own, and a separate cause.
    """
    shares, shown_by = _fixed_work(case)
    between, ready = _between(case), case.program.ready_outside
    is_own = (between is not None and bool(between.function)) or (ready is not None and ready.high < _HALF_PERCENT)
    if shares and (
        is_own or _depends_on_callers(case)
    ):  # a function of the program takes half of the time, or the program waits
        shares = {**shares, "all_others": 0.0}
    python = shares.get("all_others", 0.0)
    if sum(shares.values()) < _FIXED_PERCENT or python * case.step_ms / 100.0 > _FRAMEWORK_MS:
        return None
    claims = [case.ledger.claim(part, most=share).high for part, share in shares.items()]
    recurrent, taken = _recurrent(case)
    waiting = "; the rest includes waiting for other tasks, such as parameter servers" * _is_requested(case)
    computing_ms = (shown_by.value or 0.0) * case.step_ms / 100.0
    cost = Range(sum(claims), sum(claims))
    # If Python runs many ops, only the rest shows the part that depends on the batch.
    eager_percent = case.of_pace["functions"].eager.stretch_percent or 0.0
    # In a loop over examples, a larger batch has proportionally more iterations.
    in_loops = 0.0 if case.program.work is None else case.program.work.kinds.get("loop_in_graph", 0.0)
    is_small = computing_ms < _LONG_MS and eager_percent < _FIXED_PERCENT and in_loops < LEAST_PERCENT
    larger = case.action("larger_batch", cost, _BY_LARGER_BATCH, _LARGER_BATCH_IF) if is_small else None
    return case.cause(
        "small_work_per_step",
        "Per-step overhead",
        cost,
        f"{_WORKING[shown_by.key]} for only {shown_by} of it{waiting}{recurrent}",
        actions=(larger, None if waiting else several_steps(case, Range(python, cost.high))),
        rests_on=[in_categories(part) for part in shares],
        confidence="medium",
        quantities=(shown_by, *taken),
    )


def _recurrent(case: Case) -> tuple[str, tuple[Quantity, ...]]:
    """Return a clause about the loops of recurrent layers, if they take a large part of the step, and its number."""
    work = case.program.work
    share = work.kinds.get(RECURRENT, 0.0) if work is not None else 0.0
    if work is None or work.recurrent is None or share < _FIXED_PERCENT:
        return "", ()
    taken = case.quantity("recurrent_loops", share)
    layer = without_middle(work.recurrent.scope.rpartition("/")[2], LONGEST_NAME)
    return f"; the loop over the time steps of {layer} takes {taken}", (taken,)


def _is_requested(case: Case) -> bool:
    """Return whether another process sends the calls, as the coordinator of a parameter server job does."""
    return case.program.calls.requests_per_step >= _OFTEN


_WORKING = {"device_compute": "the device computes", "ops": "ops run"}


def _fixed_work(case: Case) -> tuple[dict[str, float], Quantity]:
    """Return the per-step overhead in percent by category (empty if unknown), and its evidence."""
    left = {part: case.ledger.left(part) for part in ("kernel_launch", "host_compute", "all_others")}
    on_device = case.ledger.left("device_compute")
    if on_device:
        if not (case.results.is_other_kind or case.results["idle"].without_steps):
            # Larger steps need not wait longer for results.
            waits = case.waiting(case.results["idle"].percents["synchronise"])
            left = {part: share - waits.get(part, 0.0) for part, share in left.items()}
        is_small = on_device < _SMALL_DEVICE_SHARE * (on_device + sum(left.values()))
        return left if is_small else {}, case.quantity("device_compute", on_device)
    ops = case.program.op_percent
    # The first run after tracing includes preparation, which later runs do not.
    if ops is None or case.summary.percent["compilation"] >= LEAST_PERCENT or compiling_percent(case) is not None:
        return {}, case.quantity("ops", 0.0)
    unclaimed = max(ops - case.ledger.of_ops, 0.0)
    in_ops = unclaimed + case.ledger.of_kernels
    without_ops = 0.0 if _waits_for_cores(case, ops) else max(left["host_compute"] - in_ops, 0.0)
    return {"host_compute": without_ops, "all_others": left["all_others"]}, case.quantity("ops", ops)


def _waits_for_cores(case: Case, ops: float) -> bool:
    """Return whether host compute without ops exceeds the cost of calls, because long ops wait for a core.

    Ops then take at least half of the step, and one of them takes most of that, or all of them many times the cost of a
    call. A recurrent layer runs that many small ops.
    """
    work = case.program.work
    if work is None or ops < _HALF_PERCENT or work.kinds.get(RECURRENT, 0.0) >= _FIXED_PERCENT:
        return False
    largest = max(work.ops.values(), default=0.0)
    ops_ms, largest_ms = ops * case.step_ms / 100.0, largest * case.step_ms / 100.0
    return ops_ms >= _LONG_OPS_MS or (largest >= ops / 2.0 and largest_ms >= _FRAMEWORK_MS)


def several_steps(case: Case, cost: Range) -> Action | None:
    """Return the advice to run several steps per call, which saves a share of this cost; None if it cannot help.

    The cost ranges from Python between calls to all per-step overhead: the trace does not show how much of the time
    inside a call belongs to the call and how much to each op. `train_on_batch` of Keras ignores steps_per_execution. A
    loop inside a function takes its batches there: from a dataset, or from data on the device.
    """
    program = case.program
    if int(case.results["steps"].steps.batches.max()) > 1 or program.calls.iterators_per_step >= _OFTEN:
        return None
    if case.summary.kind == INFERENCE:  # requests come one by one, but `predict` reads a dataset
        return case.action("steps_per_execution", cost) if program.api == "keras" and program.calls.fetches else None
    if program.api == "keras":
        return case.action("steps_per_execution" if program.is_fit else "use_tf_data", cost)
    if program.api == "jax" and program.calls.puts_per_step >= _OFTEN:
        return None
    # XLA runs a whole scan; executors of TensorFlow still dispatch each op.
    action = case.action("loop_in_function", Range(cost.high, cost.high) if program.api == "jax" else cost)
    if action is None or program.calls.fetches or program.api == "jax":
        return action
    return replace(
        action,
        text="run several steps in one tf.function (for i in tf.range(10)), on stacked batches",
        snippet=(
            "+ @tf.function\n"
            "+ def train_steps(batches):  # stacked along a new first axis\n"
            "+     for i in tf.range(10):\n"
            "+         train_step(batches[i])"
        ),
    )


def garbage_collection(case: Case) -> Cause | None:
    """Check for Python garbage collection, as recorded in the capture, or else as gc.collect calls in the frames."""
    found, between = case.program.collections, _between(case)
    if found is not None:
        percent, alone = found.percent, found.alone_percent
    elif between is not None and case.program.outside_calls_percent is not None:
        percent = alone = between.collecting_share * case.program.outside_calls_percent
    else:
        return None
    parts = ("all_others", "host_compute")
    if case.program.is_tpu or min(percent, case.ledger.left(*parts)) < LEAST_PERCENT:
        return _rare_collections(case)
    cost = case.ledger.claim(*parts, most=percent, least=alone)
    detail, quantities, is_explicit = "the program runs gc.collect between framework calls", [], True
    if found is not None:
        longest = Quantity("longest_collection", found.longest_ms, "ms", case.summary.kind)
        quantities.append(longest)
        detail = f"{counted(found.count, 'collection')} in {counted(found.step_count, 'step')}, the longest {longest}"
        if found.rare_steps:
            detail += f"; nearly all of that time in {found.rare_steps} of {counted(found.step_count, 'step')}"
        elif found.most_steps <= max(1, _FEW_STEPS * found.step_count):
            steps = "1 step has" if found.most_steps == 1 else f"{found.most_steps} steps have"
            detail += f"; {steps} at least half of that time"
        # Automatic full collections are rare, and not always in the same line.
        is_explicit = bool(found.place) and found.full_count >= found.step_count / 2
        detail += f"; most of it in {found.place}" if found.place else ""
    actions = ["collect_less_often"] * is_explicit + ["freeze_objects"]
    # A single pause may not recur, and the median step does not include it.
    actions = [] if found is not None and found.rare_steps else actions
    return case.cause(
        "garbage_collection",
        "Python garbage collection",
        cost,
        detail,
        actions=actions,
        rests_on=(in_categories("all_others"),),
        quantities=quantities,
    )


def _rare_collections(case: Case) -> Cause | None:
    """Return the cause of steps that averages exclude because they consist of a garbage collection."""
    steps, wall = case.results["steps"].steps, case.wall
    rows = np.flatnonzero(steps.are(case.summary.kind) & [flag == COLLECTION for flag in steps.flags])
    if wall is None or not len(rows):
        return None
    longer_ms = float(steps.duration_ps[rows].sum()) / PS_PER_MS - len(rows) * case.step_ms
    share = 100.0 * longer_ms * PS_PER_MS / wall.steady_ps
    return case.over_wall().cause(
        "garbage_collection",
        "Python garbage collection",
        Range(share, share),
        f"nearly all of it in {len(rows)} of {counted(wall.count, 'step')} (not in the averages)",
        actions=(),
        rests_on=(Evidence("steps", "steps", steps.names[rows[0]]),),
    )


def _between(case: Case) -> BetweenCalls | None:
    """Return the Python frames between calls; None without frames, or for another kind of step."""
    between = case.of_pace["python"].between
    is_about_these = case.is_headline and not case.results.is_other_kind
    return between if is_about_these and between is not None and between.total_ps else None


def python_between_steps(case: Case) -> Cause | None:
    """Check for time without events: Python, while the calling thread is outside of calls.

    A TPU core without an op waits for the host or for a slower core; the trace does not show which. If each run ends
    before Python makes the next call, the program waits for Python, also during that run; how much of this can be saved
    is unknown.
    """
    # Python between eager ops belongs to them.
    eager, between = case.of_pace["functions"].eager, _between(case)
    hidden = max(case.program.hidden_python_percent - (eager.stretch_percent or 0.0), 0.0)
    # A callback is one cause, including the calls that it makes, or its I/O or compute.
    calls = eager.percent_of("callback_ps")
    if case.program.is_tpu or case.ledger.left("all_others") + hidden + calls < LEAST_PERCENT:
        return None
    outside = case.program.outside_calls_percent
    if outside is not None and outside + calls < LEAST_PERCENT:
        return None
    collecting = 0.0 if case.program.collections is None else case.program.collections.alone_percent
    alone = min(case.ledger.left("all_others"), 100.0 if outside is None else max(outside - collecting, 0.0))
    if between is not None and between.callback and 2.0 * eager.percent_of("held_ps") >= (outside or 0.0):
        case.ledger.claim("all_others", most=alone)
        return None  # the rest is not in that callback
    cost = case.ledger.claim("all_others", "host_compute", most=alone + hidden, least=alone)
    in_calls = case.ledger.claim("host_compute", "all_others", most=calls).high
    cost = Range(cost.low + in_calls, cost.high + in_calls)
    if outside is None:
        return case.cause(
            "python_between_steps",
            "Time without recorded events",
            cost,
            "Python, I/O or idle",
            actions=[case.without_estimate("record_python")],
            rests_on=(in_categories("all_others"),),
            confidence="low",
        )
    ready = case.program.ready_outside
    does = _what_python_does(between, ready)
    detail, quantities = _between_calls(case, between, ready)
    is_asked = _depends_on_callers(case) and does != "computes"
    title = "Time between requests" if is_asked else "Python between calls"
    if is_asked:
        callers = "the coordinator" if _is_requested(case) else "callers"
        detail = f"waiting for {callers}, or " + (detail if between is None else f"Python; {detail}")
    found = case.cause(
        "python_between_steps",
        f"{title}, which {does}," if does and not is_asked else title,
        cost,
        detail,
        actions=[several_steps(case, cost)] if is_asked else _python_actions(case, cost, between, does),
        rests_on=(Evidence("python", "python_functions", between.function),)
        if between is not None and between.function
        else (in_categories("all_others"),),
        confidence="high" if does else "medium",
        quantities=quantities,
    )
    return replace(found, gain_ms=0.0) if is_asked and not found.actions else found


def _depends_on_callers(case: Case) -> bool:
    """Return whether the time between calls may be that between requests; `predict` of Keras reads a dataset."""
    return (case.summary.kind == INFERENCE and case.program.api != "keras") or _is_requested(case)


def _what_python_does(between: BetweenCalls | None, ready: Range | None) -> Literal["computes", "waits", ""]:
    """Return the activity of Python in at least half of the time, from its CPU time or else innermost frames."""
    if ready is not None and (ready.low >= _HALF_PERCENT or ready.high < _HALF_PERCENT):
        return "computes" if ready.low >= _HALF_PERCENT else "waits"
    if between is not None and between.waiting_share >= _HALF_PERCENT / 100.0:
        return "waits"
    return "computes" if between is not None and between.computing_share >= _HALF_PERCENT / 100.0 else ""


def _between_calls(case: Case, between: BetweenCalls | None, ready: Range | None) -> tuple[str, tuple[Quantity, ...]]:
    quantities, clauses = [], []
    if between is not None and (between.function or between.callee):
        share = case.quantity("python_function", 100.0 * (between.share if between.function else between.callee_share))
        quantities.append(share)
        where = without_middle(between.function or between.callee, LONGEST_NAME)
        called = without_middle(between.callee, LONGEST_NAME)
        clauses.append(f"{share} of it in {where}" + (f", most in {called}" if between.function and called else ""))
        if between.callback:
            caller = without_middle(between.callback, LONGEST_NAME)
            clauses[-1] += ", a callback" if between.callback == between.function else f", in the callback {caller}"
    elif between is not None and between.framework_share >= _HALF_PERCENT / 100.0:
        share = case.quantity("python_framework", 100.0 * between.framework_share)
        quantities.append(share)
        clauses.append(f"{share} of it in functions of the framework")
    elif between is not None:
        clauses.append("no single function takes half of it (-s python)")
    if ready is not None and (ready.low >= _HALF_PERCENT or ready.high < _HALF_PERCENT):
        # The range has a certain part for each activity.
        is_busy = ready.low >= _HALF_PERCENT
        bound = case.quantity("python_ready", ready.low if is_busy else ready.high)
        quantities.append(bound)
        clauses.append(f"the thread needs the CPU for at {'least' if is_busy else 'most'} {bound} of it")
    if not clauses:
        return "your code, callbacks or I/O, outside any framework call", ()
    return "; ".join(clauses), tuple(quantities)


def _python_actions(
    case: Case, cost: Range, between: BetweenCalls | None, does: Literal["computes", "waits", ""]
) -> list[Action | None]:
    """Return actions against Python between calls by its activity, and how to find out more if it is unknown.

    Without Python, the step takes the rest of its time. With Python parallel to the step, it takes the longer of both.
    """
    rest = max(100.0 - cost.high, 0.0)
    beside = Range(_BESIDE * min(rest / cost.high, 1.0) if cost.high else 0.0, 1.0)
    is_framework = between is not None and between.framework_share >= _HALF_PERCENT / 100.0
    # A framework takes some milliseconds; longer time is the program's own.
    is_short = between is None and cost.high * case.step_ms / 100.0 <= _FRAMEWORK_MS
    actions: list[Action | None] = []
    if is_framework or is_short:
        share = _OF_LONG_STEPS if (case.program.op_percent or 0.0) >= _HALF_PERCENT else None
        codes = ["steps_per_execution", *(["loop_in_function"] if is_framework else [])]
        is_one_call = int(case.results["steps"].steps.batches.max()) > 1
        if is_one_call or (case.program.api == "keras" and not case.program.is_fit):  # only `fit` of Keras has one
            codes = []
        actions += [case.action(code, cost, share) for code in codes]
    elif case.program.is_fit and (between is None or between.callback):
        # `fit` takes the batches on other threads.
        actions.append(case.action("callback_less_often", cost))
    elif does == "waits":
        actions.append(case.action("wait_in_threads", cost, beside))
    elif does == "computes" or (between is not None and between.function):
        actions.append(case.action("input_in_python", cost, Range(_HALF_OF_IT * beside.low, 1.0)))
    return [*actions, *([case.without_estimate("record_python")] if between is None else [])]


def waiting_in_calls(case: Case) -> Cause | None:
    """Check for time inside calls without any other event."""
    if not case.matters("all_others") or case.program.outside_calls_percent is None or case.program.is_tpu:
        return None
    cost, ready = case.ledger.claim("all_others"), case.program.ready_inside
    detail, quantities, title = "locks, other hosts or a busy CPU (the profile does not show which)", [], ""
    if ready is not None and (ready.low >= _HALF_PERCENT or ready.high < _HALF_PERCENT):
        is_busy = ready.low >= _HALF_PERCENT
        bound = case.quantity("calls_ready", ready.low if is_busy else ready.high)
        quantities = [bound]
        what = "Work inside calls" if is_busy else "Waiting inside calls"
        title = f"{what}, without recorded events,"
        share = f"at {'least' if is_busy else 'most'} {bound} of its time in calls"
        detail = f"the thread needs the CPU for {share}" + ("" if is_busy else ": it waits for other threads or hosts")
    return case.cause(
        "waiting_in_calls",
        title or "Waiting inside calls",
        cost,
        detail,
        actions=(),
        rests_on=(in_categories("all_others"),),
        confidence="low",
        quantities=quantities,
    )


def profiling_overhead(case: Case) -> Cause | None:
    """Check for profiling overhead, if the capture measured it: it increases other values, too."""
    environment = case.results["environment"]
    pairs = zip(environment, case.results.of_hosts("steps"), strict=True)
    slower = max((host.overhead_beyond_noise(breakdown.steps) for host, breakdown in pairs), default=0.0)
    percent = 100.0 * slower / (100.0 + slower)
    if case.results.is_other_kind or percent < _OVERHEAD_PERCENT:
        return None
    cost = case.ledger.claim("host_compute", "kernel_launch", "all_others", most=percent)
    longer = Quantity("overhead", slower)
    detail = f"steps are {longer} longer than before the capture"
    rests_on = (Evidence("environment", "environment", environment[0].host),)
    title, actions = "Profiling overhead", ("capture_less",)
    return case.cause(
        "profiling_overhead", title, cost, detail, actions=actions, rests_on=rests_on, quantities=(longer,)
    )


def awaiting_each_result(case: Case) -> Cause | None:
    """Check for waiting for each result before the next call, though the TPU is done by then (`HostLoop`).

    Otherwise calls and runs would overlap, and a step would take the longer of both, so the cost of waiting is the step
    time beyond that. The remaining idle time would be that of calls and of Python between them.
    """
    loop = case.program.host_loop
    if loop is None or min(loop.waiting, case.ledger.left("all_others")) < LEAST_PERCENT:
        return None
    idle_ms = Quantity("idle", case.share("all_others") * case.step_ms / 100.0, "ms", case.summary.kind)
    cost = case.ledger.claim("all_others", most=loop.waiting)
    called = f"a call takes {format_ms(loop.calling * case.step_ms / 100.0)} ms"
    assumption = f"{ADVICE['fetch_less_often'].assumption}; {called}, so a step takes at least as long"
    where = without_middle(f"{loop.waits_by} {loop.place}".strip(), 2 * LONGEST_NAME)
    return case.cause(
        "waiting_for_results",
        "Waiting for each result before the next call",
        cost,
        "; ".join(filter(None, (where, f"the TPU is idle for {idle_ms} of {format_ms(case.step_ms)} ms"))),
        actions=[case.action("fetch_less_often", cost, assumption=assumption)],
        rests_on=(in_categories("all_others"),),
        quantities=(idle_ms,),
    )


def late_calls(case: Case) -> Cause | None:
    """Check for calls that take longer on the host than their runs on the TPU, which waits for the next one."""
    loop = case.program.host_loop
    share = 0.0 if loop is None else loop.late(case.share("all_others")) * loop.calling_share
    if loop is None or min(share, case.ledger.left("all_others")) < LEAST_PERCENT:
        return None
    cost = case.ledger.claim("all_others", most=share)
    called_ms = Quantity("calling", loop.calling * case.step_ms / 100.0, "ms", case.summary.kind)
    busy_ms = Quantity("busy", (100.0 - case.share("all_others")) * case.step_ms / 100.0, "ms", case.summary.kind)
    return case.cause(
        "launch_bound",
        "Waiting for the host's calls",
        cost,
        f"calling {without_middle(loop.function, LONGEST_NAME)} takes {called_ms} on the host, and the TPU {busy_ms}",
        actions=[several_steps(case, cost), "larger_batch"],
        rests_on=(in_categories("all_others"),),
        quantities=(called_ms, busy_ms),
    )


def late_python(case: Case) -> Cause | None:
    """Check for Python between calls that takes longer than runs on the TPU, which waits for the next call."""
    loop = case.program.host_loop
    share = 0.0 if loop is None else loop.late(case.share("all_others")) * (1.0 - loop.calling_share)
    if loop is None or min(share, case.ledger.left("all_others")) < LEAST_PERCENT:
        return None
    between = case.of_pace["python"].between
    function = "" if between is None else between.function
    detail = f"most of it in {without_middle(function, LONGEST_NAME)}; " if function else ""
    return case.cause(
        "python_between_steps",
        "Python between calls",
        case.ledger.claim("all_others", most=share),
        f"{detail}the TPU is idle until the next call",
        actions=[case.without_estimate("record_python")] if between is None else [],
        rests_on=(in_categories("all_others"),),
    )
