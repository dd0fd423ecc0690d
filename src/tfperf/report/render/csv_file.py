"""Table -> CSV as RFC 4180 defines it: CRLF, quotes doubled, column keys as header, numbers with all digits.

An unknown value is an empty field. Text stays as it was traced, but for NUL, which readers of CSV (and the writer of
Python 3.10) refuse and which becomes U+FFFD. Files for spreadsheets are made `for_spreadsheets`: text that these would
run as a formula has an apostrophe in front.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from tfperf.report.model import Report, Table
from tfperf.report.render import RenderOptions
from tfperf.report.render.values import plain, safe

_LINE_END = "\r\n"
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""How text starts that a spreadsheet runs, or from which it first removes what is before a formula."""


def render_csv(report: Report, options: RenderOptions) -> str:
    """Return the only table as CSV; of several, each below a line `# name`, with blank lines between them."""
    tables = list(report.tables())
    if not tables:
        return f"# this report has no tables{_LINE_END}"
    if len(tables) == 1:
        text = table_csv(tables[0])
    else:
        text = _LINE_END.join(f"# {safe(table.name)}{_LINE_END}{table_csv(table)}" for table in tables)
    # A person's terminal would act on control characters; files and pipes get them as they are.
    return "\n".join(map(safe, text.split(_LINE_END))) if options.interactive else text


def table_csv(table: Table, *, for_spreadsheets: bool = False) -> str:
    """Return one table, header line first; `for_spreadsheets`: no text of it is a formula."""
    field = _inert if for_spreadsheets else _field
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator=_LINE_END)
    writer.writerow([column.key for column in table.columns])
    writer.writerows([field(value) for value in row] for row in table.rows())
    return lines.getvalue()


def csv_files(report: Report, *, for_spreadsheets: bool = False) -> dict[str, str]:
    """Return CSV text by file name, one file per table; a name used before gets its section's name in front."""
    files: dict[str, str] = {}
    for section in report.sections:
        for table in section.tables:
            name = f"{table.name}.csv"
            files[f"{section.name}_{name}" if name in files else name] = table_csv(
                table, for_spreadsheets=for_spreadsheets
            )
    return files


def _field(value: Any) -> Any:
    """Return what the csv module writes faithfully: it uses `repr` for floats, and nothing for None."""
    item = plain(value)
    if isinstance(item, str):
        return item.replace("\0", "\ufffd")
    return ("false", "true")[item] if isinstance(item, bool) else item


def _inert(value: Any) -> Any:
    item = _field(value)
    return f"'{item}" if isinstance(value, str) and item.startswith(_FORMULA) else item
