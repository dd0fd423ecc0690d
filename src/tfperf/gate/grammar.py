"""Limits as text: `input_bound <= 10%`, `sum(kernels.total_us[name~nccl]) < 500us`.

    limit     = measured , relation , bound ;
    measured  = figure | column | function , "(" , ( figure | column ) , ")" ;
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
    bare      = { any character but white space , quotes , comma and brackets , not beginning with an operator } ;

Figures are `input_bound`, `step_time`, `kernel_launch`, `all_others`, `device_busy`, `memory`, `retraces` and `skew`;
tables and their keys are those that `tfperf query --schema` lists, without the recorded ones. White space between parts
means nothing. Without a function a limit must hold for every row. `~` and `!~` search for a regular expression (letters
as they are; `(?i)` makes them alike). `name` is the column that says which row it is, where none is called so. A bound
without a unit is in the unit of the column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from tfperf.gate.bounds import bound_text, read_bound
from tfperf.gate.catalogue import NAME_COLUMNS, TABLES, column_of, did_you_mean, type_of, unit_of
from tfperf.gate.errors import LimitError, as_written
from tfperf.gate.figures import FIGURES
from tfperf.gate.model import Condition, Limit, Metric, Relation
from tfperf.gate.patterns import compiled
from tfperf.query.tables import RECORDED, SqlColumn
from tfperf.units import Unit

FUNCTIONS = ("sum", "max", "min", "mean", "median", "p95", "count")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPACE = re.compile(r"\s*")
_RELATION = re.compile(r"<=|>=|<|>")
_OPERATOR = re.compile(r"!~|!=|<=|>=|~|=|<|>")
_BARE = re.compile(r"[^\s\[\]\"',=~!<>][^\s\[\]\"',]*")
_QUOTED = re.compile(r"\"((?:[^\"]|\"\")*)\"|'((?:[^']|'')*)'")
_RELATIONS = "< <= > >="
_ONLY_NUMBERS = ("<", "<=", ">", ">=")
_TRUTHS = {"true": "true", "yes": "true", "false": "false", "no": "false"}
_LONGEST = 2000
_EXAMPLE = "write it like input_bound <= 10% or sum(kernels.total_us[name~nccl]) < 500us"


class _WrongError(Exception):
    """What is wrong, and where it stands in the text."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass
class _Reader:
    """A text, and how far it is read."""

    text: str
    at: int = 0

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return what comes next if it is that, without the space after it."""
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
            self.skip()
        return found

    def skip(self) -> None:
        """Go on to what is no space."""
        space = _SPACE.match(self.text, self.at)
        self.at = space.end() if space else self.at

    def has(self, mark: str) -> bool:
        """Tell whether this comes next, and take it if so."""
        return self.take(re.compile(re.escape(mark))) is not None

    def word(self, what: str) -> tuple[str, int]:
        """Return the name that comes next, and where it begins."""
        at = self.at
        found = self.take(_WORD)
        return (found[0], at) if found else self.wrong(f"{what} is missing")

    def wrong(self, message: str, at: int | None = None) -> NoReturn:
        """Say what is wrong here, or there."""
        raise _WrongError(message, self.at if at is None else at)


def read_limit(text: str, origin: str = "command line") -> Limit:
    """Return the limit that a text says. Raises LimitError."""
    reader = _Reader(text)
    try:
        if len(text) > _LONGEST:
            reader.wrong(f"it is longer than {_LONGEST} characters")
        reader.skip()
        metric = _measured(reader)
        relation = _relation(reader)
        return Limit(text.strip(), metric, relation, _bound(reader, metric, relation), origin)
    except _WrongError as wrong:
        raise LimitError(f"{origin}: limit {as_written(text)!r}, character {wrong.at + 1}: {wrong}") from None


def metric_text(metric: Metric) -> str:
    """Return what is measured as a limit says it."""
    conditions = ",".join(_condition_text(metric.table, own) for own in metric.conditions)
    text = f"{metric.table}.{metric.name}" if metric.table else metric.name
    text += f"[{conditions}]" if conditions else ""
    return f"{metric.function}({text})" if metric.function else text


def unit_measured(metric: Metric) -> Unit:
    """Return the unit of what a limit is on."""
    if metric.function == "count":
        return "count"
    if not metric.table:
        return FIGURES[metric.name].unit if metric.name in FIGURES else "%"
    column = column_of(metric.table, metric.name)
    return unit_of(column) if column else ""


def check_bound(value: float, name: str, relation: Relation) -> None:
    """Raise ValueError for a bound that a figure can never pass, or always does."""
    figure = FIGURES[name]
    if figure.is_share and value > 100:
        verdict = "never be broken" if relation.startswith("<") else "never hold"
        raise ValueError(f"a share is at most 100%, so {value:g}% could {verdict}")
    if not value and figure.unit in ("ms", "bytes"):
        raise ValueError(f"a bound of 0 says nothing here; write {'50ms' if figure.unit == 'ms' else '10GiB'}")


# --- the parts of a limit ---


def _measured(reader: _Reader) -> Metric:
    word, at = reader.word(f"what is limited ({_EXAMPLE})")
    if not reader.has("("):
        return _figure_or_column(reader, word, at, "")
    if word not in FUNCTIONS:
        reader.wrong(f"there is no function {as_written(word)}: {did_you_mean(word, FUNCTIONS)}", at)
    metric = _figure_or_column(reader, *reader.word("a figure or table.column"), word)
    if not reader.has(")"):
        reader.wrong("a ) is missing")
    return metric


def _figure_or_column(reader: _Reader, word: str, at: int, function: str) -> Metric:
    if reader.has("."):
        return _column(reader, word, at, function)
    if word in FIGURES:
        if function and function not in FIGURES[word].functions:
            reader.wrong(f"{function}({word}) cannot be taken: {word} is one number for a host", at)
        return Metric(word, function=function)
    if word in TABLES:
        reader.wrong(f"{word} is a table: write {word}.COLUMN, where COLUMN is {_columns(word)}", at)
    if word in FUNCTIONS:
        reader.wrong(f"{word} is a function: write {word}(table.column), or a figure: {_EXAMPLE}", at)
    return reader.wrong(f"there is no figure {as_written(word)}: {did_you_mean(word, FIGURES) or _EXAMPLE}", at)


def _column(reader: _Reader, table: str, at: int, function: str) -> Metric:
    if table not in TABLES:
        reader.wrong(_no_table(table), at)
    name, at = reader.word("the name of a column")
    column = _named_column(reader, table, name, at)
    if type_of(column) != "number" and function != "count":
        reader.wrong(f"{table}.{column.name} holds no numbers; only count({table}.{column.name}) can be limited", at)
    conditions: list[Condition] = []
    if reader.has("["):
        conditions.append(_condition(reader, table))
        while reader.has(","):
            conditions.append(_condition(reader, table))
        if not reader.has("]"):
            reader.wrong("a , or ] is missing; put values with spaces, commas or brackets into quotes")
    return Metric(column.name, table, function, tuple(conditions))


def _named_column(reader: _Reader, table: str, name: str, at: int) -> SqlColumn:
    column = column_of(table, name)
    if column is None and name == "name":
        column = column_of(table, NAME_COLUMNS.get(table, ""))
    return column or reader.wrong(f"{table} has no column {as_written(name)}: {_close_columns(table, name)}", at)


def _close_columns(table: str, name: str) -> str:
    names = [own.name for own in TABLES[table].columns]
    return did_you_mean(name, names) or f"it has {_columns(table)}"


def _columns(table: str) -> str:
    names = [own.name for own in TABLES[table].columns]
    return ", ".join(names[:8]) + (f" or one of {len(names) - 8} more (tfperf query --schema)" if names[8:] else "")


def _no_table(table: str) -> str:
    if table == "host_steps":
        return "host_steps cannot be limited; every host is judged by itself, so its steps are in the table steps"
    if table in {own.name for own in RECORDED}:
        return f"{table} holds what was recorded; limits are on what was found out, as in kernels.total_us"
    close = did_you_mean(table, TABLES)
    return f"there is no table {as_written(table)}: {close or 'tfperf query --schema lists those that there are'}"


def _relation(reader: _Reader) -> Relation:
    found = reader.take(_RELATION)
    if found is None:
        given = _OPERATOR.match(reader.text, reader.at)
        reader.wrong(f"{given[0]} is none of {_RELATIONS}" if given else f"one of {_RELATIONS} is missing")
    relations: dict[str, Relation] = {"<": "<", "<=": "<=", ">": ">", ">=": ">="}
    return relations[found[0]]


def _bound(reader: _Reader, metric: Metric, relation: Relation) -> float:
    text, unit = reader.text[reader.at :], unit_measured(metric)
    of_table = bool(metric.table)
    try:
        if not text:
            raise ValueError("a number is missing after the relation")
        value = read_bound(text, unit, bare=of_table, signed=of_table and metric.function != "count")
        if not of_table:
            check_bound(value, metric.name, relation)
    except ValueError as error:
        reader.wrong(f"{metric.table}{'.' * of_table}{metric.name}: {error}")
    return value


# --- conditions ---


def _condition(reader: _Reader, table: str) -> Condition:
    name, at = reader.word("the column of a condition")
    column = _named_column(reader, table, name, at)
    at = reader.at
    operator = reader.take(_OPERATOR)
    if operator is None:
        reader.wrong("a condition needs one of ~ !~ = != < <= > >=")
    value_at, value = reader.at, _value(reader)
    return _typed(reader, column, operator[0], value, (at, value_at))


def _value(reader: _Reader) -> str:
    quoted = reader.take(_QUOTED)
    if quoted:
        return quoted[1].replace('""', '"') if quoted[1] is not None else quoted[2].replace("''", "'")
    bare = reader.take(_BARE)
    return bare[0] if bare else reader.wrong("the value of a condition is missing; put odd characters into quotes")


def _typed(reader: _Reader, column: SqlColumn, operator: str, value: str, at: tuple[int, int]) -> Condition:
    """Return the condition, with a value of the kind that the column holds."""
    kind = type_of(column)
    if kind == "number":
        if operator in ("~", "!~"):
            reader.wrong(f"{column.name} holds numbers: compare it with = != < <= > >=", at[0])
        try:
            return _made(column, operator, read_bound(value, unit_of(column), bare=True, signed=True))
        except ValueError as error:
            reader.wrong(f"{column.name}: {error}", at[1])
    if operator in _ONLY_NUMBERS or (kind == "truth" and operator not in ("=", "!=")):
        fitting = "= or !=" if kind == "truth" else "~ !~ = or !="
        reader.wrong(f"{column.name} holds no numbers: compare it with {fitting}", at[0])
    if kind == "truth" and value.lower() not in _TRUTHS:
        reader.wrong(f"{column.name} is true or false, not {as_written(value)!r}", at[1])
    if operator in ("~", "!~"):
        try:
            compiled(value)
        except ValueError as error:
            reader.wrong(str(error), at[1])
    return _made(column, operator, _TRUTHS[value.lower()] if kind == "truth" else value)


def _made(column: SqlColumn, operator: str, value: str | float) -> Condition:
    return Condition(column.name, cast("Any", operator), value)


def _condition_text(table: str, own: Condition) -> str:
    column = column_of(table, own.column)
    if isinstance(own.value, float):
        return f"{own.column}{own.relation}{bound_text(own.value, unit_of(column) if column else '')}"
    doubled = own.value.replace('"', '""')
    return f"{own.column}{own.relation}{own.value if _BARE.fullmatch(own.value) else f'{chr(34)}{doubled}{chr(34)}'}"
