"""Reports for programs: one strict JSON document, and CSV files.

docs/json-format.md describes the JSON. The text is safe inside a page's script element: it contains no `</`, `<!--` or
JavaScript line separators. Characters with an effect on terminals are JSON escapes, and so is the first one of `##[`
and other commands of CI runners.

CSV follows RFC 4180: CRLF, doubled quotes, column keys as header, numbers with all digits. An unknown value is an empty
field. Text is unchanged except for NUL, which CSV readers (and the writer of Python 3.10) reject and which becomes
U+FFFD. With `for_spreadsheets`, text that spreadsheets would run as a formula is prefixed with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from tfperf.base import __version__
from tfperf.report.model import FORMAT_VERSION, Report, Section, Table
from tfperf.report.render import RenderOptions
from tfperf.report.render.values import COMMAND_MARK, encodable, plain, safe

_PLAIN = {str, int, float, bool, type(None)}
"""Types written unchanged, which are nearly all. NaN and infinities become null."""
_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def render_json(report: Report, _options: RenderOptions) -> str:
    """Return the whole report as JSON text, independent of the destination."""
    document = {
        "format": FORMAT_VERSION,
        "tfperf_version": __version__,
        "source": _jsonable(report.source),
        "summary": _jsonable(report.summary),
        **_jsonable(report.documents),
        "sections": {section.name: _section(section) for section in report.sections},
    }
    try:
        text = msgspec.json.encode(document).decode()
    except UnicodeEncodeError:
        # Lone surrogates become U+FFFD.
        text = msgspec.json.encode(json.loads(encodable(json.dumps(document, ensure_ascii=False)))).decode()
    # All of these occur only inside strings, where their escapes are equivalent.
    text = text.replace("</", "<\\/").replace("<!--", "\\u003c!--")
    if "##" in text:
        text = COMMAND_MARK.sub("\\\\u0023#", text)
    if not text.isascii() or "\x7f" in text:
        text = _ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return msgspec.json.format(text, indent=2) + "\n"


def _section(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "findings": [
            {
                **{key: getattr(finding, key) for key in ("code", "severity", "text", "action", "causes", "url")},
                "quantities": [
                    {key: _jsonable(getattr(quantity, key)) for key in ("key", "of", "value", "unit")}
                    for quantity in finding.quantities
                ],
            }
            for finding in section.findings
        ],
        "facts": {
            fact.key: {"value": _jsonable(fact.value), "unit": fact.unit, "title": fact.title, "note": fact.note}
            for fact in section.facts
        },
        "tables": {table.name: _table(table) for table in section.tables},
        "notes": list(section.notes),
    }


def _table(table: Table) -> dict[str, Any]:
    keys = [column.key for column in table.columns]
    cells = (
        table.data[key] if {*map(type, table.data[key])} <= _PLAIN else map(_jsonable, table.data[key]) for key in keys
    )
    return {
        "title": table.title,
        "total_rows": table.total_rows,
        "note": table.note,
        "columns": [
            {"key": column.key, "title": column.title, "unit": column.unit, "meaning": column.meaning}
            for column in table.columns
        ],
        "rows": [dict(zip(keys, row, strict=True)) for row in zip(*cells, strict=True)],
    }


def _jsonable(value: Any) -> Any:
    """Convert a value for JSON: containers keep their shape, numpy and other values become plain ones."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Mapping):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_jsonable(item) for item in value]
    if getattr(value, "ndim", 0):
        return _jsonable(value.tolist())
    return plain(value)


_LINE_END = "\r\n"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Prefixes of text that a spreadsheet runs, or removes before it looks for a formula."""


def render_csv(report: Report, options: RenderOptions) -> str:
    """Return the only table as CSV; several tables each follow a line `# name`, with blank lines between them."""
    tables = list(report.tables())
    if not tables:
        return f"# this report has no tables{_LINE_END}"
    if len(tables) == 1:
        text = table_csv(tables[0])
    else:
        text = _LINE_END.join(f"# {safe(table.name)}{_LINE_END}{table_csv(table)}" for table in tables)
    # Control characters would affect a terminal; files and pipes get them unchanged.
    return "\n".join(map(safe, text.split(_LINE_END))) if options.interactive else text


def table_csv(table: Table, *, for_spreadsheets: bool = False) -> str:
    """Return one table, header first; with `for_spreadsheets`, its texts are not formulas."""
    field = _inert if for_spreadsheets else _field
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator=_LINE_END)
    writer.writerow([column.key for column in table.columns])
    writer.writerows([field(value) for value in row] for row in table.rows())
    return lines.getvalue()


def csv_files(report: Report, *, for_spreadsheets: bool = False) -> dict[str, str]:
    """Return CSV text by file name, one per table; a repeated name is prefixed with its section."""
    files: dict[str, str] = {}
    for section in report.sections:
        for table in section.tables:
            name = f"{table.name}.csv"
            files[f"{section.name}_{name}" if name in files else name] = table_csv(
                table, for_spreadsheets=for_spreadsheets
            )
    return files


def _field(value: Any) -> Any:
    item = plain(value)
    if isinstance(item, str):
        return item.replace("\0", "\ufffd")
    return ("false", "true")[item] if isinstance(item, bool) else item


def _inert(value: Any) -> Any:
    item = _field(value)
    return f"'{item}" if isinstance(value, str) and item.startswith(_FORMULA) else item
