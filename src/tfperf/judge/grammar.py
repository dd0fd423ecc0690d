"""Limits as text: `input_bound <= 10%`, `sum(kernels.total_us[name~nccl]) < 500us`.

    limit     = measured , relation , bound , [ "or" , "none" ] ;
    measured  = figure | column | function , "(" , ( figure | column ) , ")" ;
    figure    = name , [ "[" , cause , "]" ] ;
    column    = table , "." , key , [ "[" , condition , { "," , condition } , "]" ] ;
    condition = key , operator , value ;
    function  = "sum" | "max" | "min" | "mean" | "median" | "p95" | "count" ;
    relation  = "<" | "<=" | ">" | ">=" ;
    operator  = "~" | "!~" | "=" | "!=" | "<" | "<=" | ">" | ">=" ;
    bound     = [ "-" ] , digits , [ "." , digits ] , [ unit ] ;
    unit      = "us" | "ms" | "s" | "m" | "min" | "h" | "%" | "B" | "kB" | "MB" | "GB" | "TB" | "KiB" | "MiB" | "GiB"
              | "TiB" ;
    value     = quoted | bare ;
    quoted    = '"' , { character | '""' } , '"' | "'" , { character | "''" } , "'" ;
    bare      = { any character but white space , quotes , comma and brackets , not starting with an operator } ;

Figures are `input_bound`, `step_time`, `kernel_launch`, `all_others`, `device_busy`, `memory`, `retraces`, `skew`,
`straggler_loss`, `input_cost`, and with the code of a cause `cause_cost[compilation]` and `cause[compilation]`; tables
and their keys are those that `tfperf query --schema` lists, without the recorded ones. White space between parts has no
meaning. Without a function, every row must hold the limit. `~` and `!~` search for a regular expression of RE2, which
is case-sensitive unless it starts with `(?i)`. `name` stands for the column that names the rows, if none is called so.
A bound without a unit is in the unit of the column. `or none` lets a limit hold where no row meets the conditions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn, cast

from msgspec import Struct

from tfperf.analysis.registry import TableSpec, all_tables
from tfperf.base.patterns import pattern
from tfperf.base.units import Unit, did_you_mean
from tfperf.export.query.sql_tables import RECORDED
from tfperf.judge.limits import (
    COMMAND_LINE,
    FIGURES,
    RELATIONS,
    Condition,
    Limit,
    LimitError,
    Metric,
    Relation,
    bound_text,
    check_bound,
    check_cause,
    quoted,
    read_bound,
)
from tfperf.report.model import Column

FUNCTIONS = ("sum", "max", "min", "mean", "median", "p95", "count")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OR_NONE = re.compile(r"\s+or\s+none\s*$")
_RELATION = re.compile(r"<=|>=|<|>")
_OPERATOR = re.compile(r"!~|!=|<=|>=|~|=|<|>")
_BARE = re.compile(r"[^\s\[\]\"',=~!<>][^\s\[\]\"',]*")
_QUOTED = re.compile(r"\"((?:[^\"]|\"\")*)\"|'((?:[^']|'')*)'")
_SUITABLE: Mapping[type, str] = {**dict.fromkeys((int, float), "= != < <= > >="), bool: "= or !=", str: "~ !~ = or !="}
_TRUTHS = {"true": "true", "yes": "true", "false": "false", "no": "false"}
_LONGEST = 2000
_SHOWN_COLUMNS = 8
_EXAMPLE = "write, for example, input_bound <= 10% or sum(kernels.total_us[name~nccl]) < 500us"


@cache
def limit_tables() -> Mapping[str, TableSpec]:
    """Return the tables for limits, including their aliases."""
    return {name: table for table in all_tables() if table.in_limits for name in (table.name, *table.aliases)}


def column_of(table: str, name: str) -> Column | None:
    """Return the column of a table, or None."""
    return next((column for column in limit_tables()[table].columns if column.key == name), None)


def holds_numbers(column: Column) -> bool:
    """Return whether a column can be compared with a number."""
    return column.dtype in (int, float)


class _Reader(Struct):
    """A text, its origin, and the read position."""

    text: str
    origin: str
    at: int = 0

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the match at the position, and skip it and the following space."""
        match = pattern.match(self.text, self.at)
        if match:
            self.at = len(self.text) - len(self.text[match.end() :].lstrip())
        return match

    def has(self, mark: str) -> bool:
        """Skip a mark if it comes next; return whether it did."""
        return self.take(re.compile(re.escape(mark))) is not None

    def word(self, what: str, example: str = "") -> tuple[str, int]:
        """Return the next name and its position."""
        at = self.at
        match = self.take(_WORD)
        return (match[0], at) if match else self.wrong(f"{what} is missing{example}")

    def wrong(self, message: str, at: int | None = None) -> NoReturn:
        """Raise LimitError for a position, by default the current one."""
        place = (self.at if at is None else at) + 1
        raise LimitError(f"{self.origin}: limit {quoted(self.text)}, character {place}: {message}") from None


def read_limit(text: str, origin: str = COMMAND_LINE) -> Limit:
    """Parse a limit; raise LimitError."""
    reader = _Reader(text, origin, len(text) - len(text.lstrip()))
    if len(text) > _LONGEST:
        reader.wrong(f"longer than {_LONGEST} characters", 0)
    metric = _measured(reader)
    match = reader.take(_RELATION)
    if match is None:
        operator = _OPERATOR.match(text, reader.at)
        known = " ".join(RELATIONS)
        reader.wrong(f"{operator[0]} is not one of {known}" if operator else f"one of {known} is missing")
    relation = cast("Relation", match[0])
    or_none = _OR_NONE.search(text, reader.at)
    if or_none and not metric.table:
        reader.wrong("`or none` applies only to limits on a table column", or_none.start())
    bound = text[reader.at : or_none.start() if or_none else None]
    return Limit(text.strip(), metric, relation, _bound(reader, bound, metric, relation), origin, bool(or_none))


def metric_text(metric: Metric) -> str:
    """Return a metric in the syntax of a limit."""
    conditions = ",".join(_condition_text(metric.table, condition) for condition in metric.conditions)
    text = f"{metric.table}.{metric.name}" if metric.table else metric.name
    text += f"[{conditions or metric.cause}]" if conditions or metric.cause else ""
    return f"{metric.function}({text})" if metric.function else text


def unit_measured(metric: Metric) -> Unit:
    """Return the unit of a metric."""
    if metric.function == "count":
        return "count"
    if not metric.table:
        return FIGURES[metric.name].unit if metric.name in FIGURES else "%"
    column = column_of(metric.table, metric.name)
    return column.unit if column else ""


def _measured(reader: _Reader) -> Metric:
    word, at = reader.word("a figure or table.column", example=f": {_EXAMPLE}")
    if not reader.has("("):
        return _figure_or_column(reader, word, at, "")
    if word not in FUNCTIONS:
        reader.wrong(f"unknown function {word[:80]}: {did_you_mean(word, FUNCTIONS)}", at)
    metric = _figure_or_column(reader, *reader.word("a figure or table.column"), word)
    if not reader.has(")"):
        reader.wrong("a ) is missing")
    return metric


def _figure_or_column(reader: _Reader, word: str, at: int, function: str) -> Metric:
    if reader.has("."):
        return _column(reader, word, at, function)
    if word in FIGURES:
        if function and function not in FIGURES[word].functions:
            reader.wrong(f"{function}({word}) is not possible: {word} has one value per host", at)
        return Metric(word, function=function, cause=_cause(reader, word) if FIGURES[word].of_cause else "")
    if word in limit_tables():
        reader.wrong(f"{word} is a table: write {word}.COLUMN, where COLUMN is {_columns(word)}", at)
    if word in FUNCTIONS:
        reader.wrong(f"{word} is a function: write {word}(table.column), or a figure: {_EXAMPLE}", at)
    return reader.wrong(f"unknown figure {word[:80]}: {did_you_mean(word, FIGURES) or _EXAMPLE}", at)


def _cause(reader: _Reader, figure: str) -> str:
    if not reader.has("["):
        reader.wrong(f"{figure} requires a cause: write {figure}[compilation]")
    code, at = reader.word("the code of a cause")
    try:
        check_cause(code)
    except ValueError as error:
        reader.wrong(str(error), at)
    if not reader.has("]"):
        reader.wrong("a ] is missing")
    return code


def _column(reader: _Reader, table: str, at: int, function: str) -> Metric:
    if table not in limit_tables():
        close = did_you_mean(table, limit_tables())
        message = f"unknown table {table[:80]}: {close or 'tfperf query --schema lists all tables'}"
        if table == "host_steps":
            message = "host_steps cannot be limited: each host is checked separately; use the table steps"
        elif table in {recorded.name for recorded in RECORDED}:
            message = f"{table} contains recorded events: use a table of the analysis, for example"
            message += " kernels.total_us"
        reader.wrong(message, at)
    column, at = _named_column(reader, table, "the name of a column")
    if not holds_numbers(column) and function != "count":
        reader.wrong(f"{table}.{column.key} is not numeric: use count({table}.{column.key})", at)
    conditions: list[Condition] = []
    if reader.has("["):
        conditions.append(_condition(reader, table))
        while reader.has(","):
            conditions.append(_condition(reader, table))
        if not reader.has("]"):
            reader.wrong("a , or ] is missing: put values with spaces, commas or brackets in quotes")
    return Metric(column.key, table, function, tuple(conditions))


def _named_column(reader: _Reader, table: str, what: str) -> tuple[Column, int]:
    name, at = reader.word(what)
    column = column_of(table, name)
    if column is None and name == "name":
        column = column_of(table, limit_tables()[table].name_key)
    if column is None:
        close = did_you_mean(name, [other.key for other in limit_tables()[table].columns])
        reader.wrong(f"{table} has no column {name[:80]}: {close or f'its columns are {_columns(table)}'}", at)
    return column, at


def _columns(table: str) -> str:
    names = [column.key for column in limit_tables()[table].columns]
    more = len(names) - _SHOWN_COLUMNS
    return ", ".join(names[:_SHOWN_COLUMNS]) + (f" or one of {more} more (tfperf query --schema)" if more > 0 else "")


def _bound(reader: _Reader, text: str, metric: Metric, relation: Relation) -> float:
    unit = unit_measured(metric)
    of_table = bool(metric.table)
    try:
        if not text:
            raise ValueError("the bound is missing")
        value = read_bound(text, unit, bare=of_table, signed=of_table and metric.function != "count")
        if not of_table:
            check_bound(value, unit, relation, is_share=FIGURES[metric.name].is_share)
    except ValueError as error:
        reader.wrong(f"{metric.table}{'.' * of_table}{metric.name}: {error}")
    return value


def _condition(reader: _Reader, table: str) -> Condition:
    column, _ = _named_column(reader, table, "the column of a condition")
    at = reader.at
    operator = reader.take(_OPERATOR)
    if operator is None:
        reader.wrong("a condition requires one of ~ !~ = != < <= > >=")
    suitable = _SUITABLE[column.dtype]
    if operator[0] not in suitable.split():
        holds = "is" if holds_numbers(column) else "is not"
        reader.wrong(f"{column.key} {holds} numeric: compare it with {suitable}", at)
    at = reader.at
    match = reader.take(_QUOTED) or reader.take(_BARE)
    if match is None:
        reader.wrong("the value of the condition is missing: put special characters in quotes")
    value = match[0]
    if value[0] in "\"'":
        value = value[1:-1].replace(value[0] * 2, value[0])
    try:
        return Condition(column.key, cast("Any", operator[0]), _typed(column, operator[0], value))
    except ValueError as error:
        reader.wrong(str(error), at)


def _typed(column: Column, operator: str, value: str) -> str | float:
    if holds_numbers(column):
        try:
            return read_bound(value, column.unit, bare=True, signed=True)
        except ValueError as error:
            raise ValueError(f"{column.key}: {error}") from error
    if column.dtype is bool:
        if value.lower() not in _TRUTHS:
            raise ValueError(f"{column.key} is true or false, not {quoted(value)}")
        return _TRUTHS[value.lower()]
    if operator in ("~", "!~"):
        pattern(value)
    return value


def _condition_text(table: str, condition: Condition) -> str:
    if isinstance(condition.value, float):
        column = column_of(table, condition.column)
        text = bound_text(condition.value, column.unit if column else "")
    elif _BARE.fullmatch(condition.value):
        text = condition.value
    else:
        doubled = condition.value.replace('"', '""')
        text = f'"{doubled}"'
    return f"{condition.column}{condition.relation}{text}"
