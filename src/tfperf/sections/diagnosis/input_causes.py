"""Causes of input and output: waiting for batches, copying them, and copying results back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfperf.base.units import counted, format_bytes, format_number, format_percent, without_middle
from tfperf.sections.diagnosis.case import LEAST_PERCENT, LONGEST_NAME, Case, in_categories
from tfperf.sections.diagnosis.cause import Action, Cause, Evidence, Range
from tfperf.sections.overview.input_cost import outlook_of, slowed_percent
from tfperf.sections.tfdata.actions import actions_of
from tfperf.sections.tfdata.analysis import TfData
from tfperf.sections.tfdata.blame import Blame, Reason, blamed_stage
from tfperf.sections.tfdata.stage_rules import change_in_code
from tfperf.sections.tfdata.whatif import FREE_INPUT

if TYPE_CHECKING:
    from tfperf.sections.kernels.analysis import Kernels
    from tfperf.sections.tfdata.pipeline import Pipeline


_MUCH_PERCENT = 10.0
"""From this share of the step on, waiting says how many cores work meanwhile."""


def input_wait(case: Case) -> Cause | None:
    """Judge waiting for the next batch: the stage that is waited for, and what changes of the pipeline bring."""
    if not case.matters("input_wait"):
        return None
    tfdata = pipelines_of(case)
    blame = blamed_stage(tfdata)
    rests_on, detail = [in_categories("input")], "the trace does not show what makes the batches"
    if blame is not None:
        name = f"{without_middle(blame.stage, LONGEST_NAME)}{_python_of(tfdata, blame)}"
        detail = f"the stage waited for is {name}{_REASONS[blame.reason]}"
        rests_on.append(Evidence("tfdata", "tfdata_stages", blame.stage))
    elif tfdata.pipelines:
        detail = "no single stage of the pipeline is what is waited for"
    actions: tuple[Action | str | None, ...] = ("use_tf_data",)
    if case.results["tfdata"].pipelines:
        actions = (case.without_estimate("look_at_stages"),)
    outlook = outlook_of(case.results)
    is_new_iterator = outlook is not None and outlook.waits_at_epoch_start
    if outlook is not None and outlook.is_at_epoch_start:
        what = "for the first batch of a new iterator" if is_new_iterator else f"in which buffers fill: {detail}"
        detail = f"mostly in the first step of each epoch, {what}"
    if is_new_iterator or _slows_rather(case):
        actions = ()
    elif case.program.api != "jax":
        actions = _pipeline_actions(case, tfdata) or actions
    cost = case.ledger.claim("input_wait")
    detail += cores_meanwhile(tfdata.main) if cost.high >= _MUCH_PERCENT else ""
    title = "Waiting for input" if case.program.is_tpu else "Waiting for tf.data"
    return case.cause("input_wait", title, cost, detail, actions=actions, rests_on=rests_on)


def input_contention(case: Case) -> Cause | None:
    """Judge what the threads of the pipeline take from the step's own work: they compute on the same cores."""
    parts, slowed, outlook = ("host_compute", "all_others"), slowed_percent(case.results), outlook_of(case.results)
    if slowed is None or outlook is None or min(slowed[0], case.ledger.left(*parts)) < LEAST_PERCENT:
        return None
    cost = case.ledger.claim(*parts, most=slowed[1], least=slowed[0])
    detail = f"{outlook.threads:.1f} threads of the pipeline compete with the step for {counted(outlook.cores, 'core')}"
    return case.cause(
        "input_contention",
        "Sharing cores with the input pipeline",
        cost,
        detail,
        actions=_pipeline_actions(case, pipelines_of(case)) if _slows_rather(case) else (),
        rests_on=(Evidence("tfdata", "what_if", change_in_code(FREE_INPUT, None)), in_categories("host_compute")),
        confidence="medium",
    )


def _slows_rather(case: Case) -> bool:
    """Tell whether the pipeline costs time because of its threads rather than by waiting: that decides for what
    changes of it are given as actions.
    """
    outlook = outlook_of(case.results)
    return outlook is not None and outlook.is_costly and outlook.keeps_up


def cores_meanwhile(pipeline: Pipeline | None) -> str:
    """Say how many cores work while steps wait, where that is few or all; a clause that follows another one."""
    if pipeline is not None and pipeline.cores is not None:
        of_cores = f"of {counted(pipeline.cores, 'core')}"
        if pipeline.fills_cores:
            return f", while {pipeline.threads_computing or 0.0:.1f} {of_cores} compute: more at a time cannot help"
        if pipeline.leaves_cores:
            return f", while only {pipeline.threads_at_work or 0.0:.1f} {of_cores} work, as far as the trace shows"
    return ""


def pipelines_of(case: Case) -> TfData:
    """Return the pipelines, first the one that these steps wait for; none if it is unknown which that is."""
    tfdata: TfData = case.results["tfdata"]
    return tfdata.for_steps(case.summary.kind) or (TfData(()) if case.results.is_other_kind else tfdata)


def _pipeline_actions(case: Case, tfdata: TfData) -> tuple[Action, ...]:
    return pipeline_actions(tfdata, is_estimated=case.results.is_other_kind or not case.results.is_narrowed)


def _python_of(tfdata: TfData, blame: Blame) -> str:
    """Return the Python function that a stage runs, in brackets; empty if it runs none."""
    stages = [stage for pipeline in tfdata.pipelines if pipeline.name == blame.pipeline for stage in pipeline.stages]
    return next((f" ({stage.python})" for stage in stages if stage.name == blame.stage and stage.python), "")


_REASONS: Mapping[Reason, str] = {
    "work": "",
    "host_pipeline": ", which asks the host's pipeline",
    "to_device": ", on the way to the device",
    "workers": ", which waits for the data service",
    "hand_over": ", while no stage works",
}


def pipeline_actions(tfdata: TfData, *, is_estimated: bool = True) -> tuple[Action, ...]:
    """Return the changes of the pipeline, the largest likely gain first; those without an estimate follow.

    The estimates are for the steps that the trace was read with: `is_estimated` is False where others are judged.
    """

    def after(low_ms: float | None, high_ms: float | None) -> Range | None:
        return Range(low_ms, high_ms) if is_estimated and low_ms is not None and high_ms is not None else None

    return tuple(
        Action(
            code=change.code,
            text=change.text,
            step_ms=after(change.low_ms, change.high_ms),
            assumption=change.assumption,
            url=change.url,
        )
        for change in actions_of(tfdata)
    )


def input_copy(case: Case) -> Cause | None:
    """Judge copying batches to the device while nothing else goes on."""
    if not case.matters("host_to_device"):
        return None
    kernels: Kernels = case.results["kernels"]
    copies = [copy for copy in kernels.copies if copy.kind == "H2D"]
    detail, rests_on = "nothing else goes on meanwhile", [in_categories("input")]
    if copies:
        worst = max(copies, key=lambda copy: copy.total_ps)
        rate = f" at {format_number(worst.gb_per_second)} GB/s" if worst.gb_per_second is not None else ""
        size = f"copies of {format_bytes(int(worst.mean_bytes))} on average" if worst.mean_bytes else "copies"
        detail = f"{size}{rate}, while nothing else goes on"
        rests_on.append(Evidence("kernels", "copies", worst.device))
    is_ahead = any(pipeline.is_device for pipeline in case.results["tfdata"].pipelines)
    actions = ("smaller_types",) if is_ahead else ("prefetch_to_device", "smaller_types")
    cost = case.ledger.claim("host_to_device")
    return case.cause("input_copy", "Copying batches to the device", cost, detail, actions=actions, rests_on=rests_on)


def output_copy(case: Case) -> Cause | None:
    """Judge copying results to the host."""
    if not case.matters("output"):
        return None
    cost = case.ledger.claim("output")
    detail = "the step waits for results on the host"
    rests_on = (in_categories("output"),)
    title = "Copying results to the host"
    return case.cause("output_copy", title, cost, detail, actions=("fetch_less_often",), rests_on=rests_on)


def stated(percent: Range) -> str:
    """Return a share as text: `27.0%`, or `20.0 to 31.5%`."""
    low, high = format_percent(percent.low), format_percent(percent.high)
    return f"{high}%" if low == high else f"{low} to {high}%"
