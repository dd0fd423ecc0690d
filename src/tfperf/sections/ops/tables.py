"""Columns of the tables of ops."""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

OPS = (
    Column("rank", "#", int, "count", "place by self time, on this side"),
    Column("self_percent", "Self", float, "%", "self time / self time of all ops of this side"),
    Column("cumulative_self_percent", "Cum.", float, "%", "running sum of self %"),
    Column("op_type", "Type", str, "", "op type; Dataset for a tf.data stage"),
    Column("op_name", "Name", str, "", "name of the op, with its scope"),
    Column("occurrences", "Count", int, "count", "how often it ran", level="data"),
    Column("total_ms", "Total", float, "ms", "time with the ops inside", level="data"),
    Column("average_ms", "Mean total", float, "ms", "total time / count", level="data"),
    Column("self_ms", "Self", float, "ms", "time without the ops inside", level="data"),
    Column("average_self_ms", "Mean", float, "ms", "self time / count", level="data"),
    Column("self_with_idle_percent", "With idle", float, "%",
           "self time / (length of the capture x devices); host: / (op time + time between ops on the same threads)",
           level="data"),
    Column("execution", "Run as", str, "", "eager: run from Python one by one; function: part of a graph; empty: not known",
           level="data"),
    Column("tensor_core_percent", "TC", float, "%",
           "time of its kernels on tensor cores / time of its kernels; empty: no kernels, or names do not tell",
           level="data"),
    Column("hlo_op", "HLO op", str, "", "what XLA calls the op, if it compiled it", level="data"),
    Column("hlo_module", "HLO module", str, "", "the compiled program, if known", level="data"),
)  # fmt: skip

GROUPS = (
    Column("side", "Side", str, "", "device or host", level="data"),
    Column("rank", "#", int, "count", "place by self time, on this side"),
    Column("self_percent", "Self", float, "%", "self time / self time of all ops of this side"),
    Column("cumulative_self_percent", "Cum.", float, "%", "running sum of self %"),
    Column("group", "Group", str, "", "what the ops have in common"),
    Column("ops", "Ops", int, "count", "different ops"),
    Column("occurrences", "Count", int, "count", "how often they ran, all together"),
    Column("total_ms", "Total", float, "ms", "sum of times with the ops inside: ops inside each other count more than once",
           level="data"),
    Column("self_ms", "Self", float, "ms", "time without the ops inside"),
    Column("forward_self_ms", "Forward", float, "ms", "self time outside the backward pass", level="data"),
    Column("backward_self_ms", "Backward", float, "ms", "self time in the backward pass (gradient_tape)", level="data"),
    Column("self_with_idle_percent", "With idle", float, "%", "self time / time with idle, as in the tables of ops",
           level="data"),
)  # fmt: skip
_GROUP_TITLES = {"op": "Op", "type": "Type", "scope": "Name scope", "layer": "Layer"}


def brief_columns(*, hlo: bool) -> tuple[Column, ...]:
    """Return the columns of the table in a whole report; the HLO op takes the room of the running sum."""
    hidden, shown = ("cumulative_self_percent", "hlo_op") if hlo else ("", "")
    return tuple(replace(own, compact=(own.compact or own.key == shown) and own.key != hidden) for own in OPS)


def op_columns(*, tensor_cores: bool, hlo: bool) -> tuple[Column, ...]:
    """Return the columns of the full table: people see counts and means, and what this table tells besides."""
    shown = {"rank", "self_percent", "occurrences", "average_self_ms", "op_type", "op_name"}
    shown |= {"tensor_core_percent"} if tensor_cores else set()
    shown |= {"hlo_op"} if hlo else set()
    return tuple(replace(column, compact=column.key in shown) for column in OPS)


def group_columns(by: str) -> tuple[Column, ...]:
    """Return the columns of ops in groups; of layers, people see the backward pass apart."""
    titled = [replace(own, title=_GROUP_TITLES[by]) if own.key == "group" else own for own in GROUPS]
    if by != "layer":
        return tuple(titled)
    shown = {"rank", "self_percent", "group", "ops", "self_ms", "forward_self_ms", "backward_self_ms"}
    return tuple(replace(column, compact=column.key in shown) for column in titled)
