"""Columns of the tables of ops."""

from __future__ import annotations

from dataclasses import replace

from tfperf.report.model import Column

OPS = (
    Column("rank", "#", "count", "place by self time, on this side"),
    Column("self_percent", "Self", "%", "self time / self time of all ops of this side"),
    Column("cumulative_self_percent", "Cum.", "%", "running sum of self %"),
    Column("op_type", "Type", "", "op type; Dataset for a tf.data stage"),
    Column("op_name", "Name", "", "name of the op, with its scope"),
    Column("occurrences", "Count", "count", "how often it ran", compact=False),
    Column("total_ms", "Total", "ms", "time with the ops inside", compact=False),
    Column("average_ms", "Mean total", "ms", "total time / count", compact=False),
    Column("self_ms", "Self", "ms", "time without the ops inside", compact=False),
    Column("average_self_ms", "Mean", "ms", "self time / count", compact=False),
    Column("self_with_idle_percent", "With idle", "%",
           "self time / (length of the capture x devices); host: / (op time + time between ops on the same threads)",
           compact=False),
    Column("execution", "Run as", "", "eager: run from Python one by one; function: part of a graph; empty: not known",
           compact=False),
    Column("tensor_core_percent", "TC", "%",
           "time of its kernels on tensor cores / time of its kernels; empty: no kernels, or names do not tell",
           compact=False),
    Column("hlo_op", "HLO op", "", "what XLA calls the op, if it compiled it", compact=False),
    Column("hlo_module", "HLO module", "", "the compiled program, if known", compact=False),
)  # fmt: skip

GROUPS = (
    Column("side", "Side", "", "device or host", compact=False),
    Column("rank", "#", "count", "place by self time, on this side"),
    Column("self_percent", "Self", "%", "self time / self time of all ops of this side"),
    Column("cumulative_self_percent", "Cum.", "%", "running sum of self %"),
    Column("group", "Group", "", "what the ops have in common"),
    Column("ops", "Ops", "count", "different ops"),
    Column("occurrences", "Count", "count", "how often they ran, all together"),
    Column("total_ms", "Total", "ms", "sum of times with the ops inside: ops inside each other count more than once",
           compact=False),
    Column("self_ms", "Self", "ms", "time without the ops inside"),
    Column("forward_self_ms", "Forward", "ms", "self time outside the backward pass", compact=False),
    Column("backward_self_ms", "Backward", "ms", "self time in the backward pass (gradient_tape)", compact=False),
    Column("self_with_idle_percent", "With idle", "%", "self time / time with idle, as in the tables of ops",
           compact=False),
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
