"""Table -> CSV as RFC 4180 has it: CRLF, quotes doubled, column keys as header, numbers with all digits.

What is not known is an empty field. Text stays as it was traced, also where it starts with `=`, `+`, `-` or
`@`: the files feed scripts, and a quote put in front would falsify names. Whoever opens one in a spreadsheet
imports it as text. Only NUL, which readers of CSV (and the writer of Python 3.10) refuse, becomes U+FFFD.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from tfperf.render.options import RenderOptions
from tfperf.render.text import safe
from tfperf.render.values import plain
from tfperf.report.model import Report, Table

_LINE_END = "\r\n"


def render_csv(report: Report, options: RenderOptions) -> str:
    """Return the only table as CSV, or each of several below a `# name` line a blank line between them."""
    tables = list(report.tables())
    if not tables:
        return f"# this report has no tables{_LINE_END}"
    text = table_csv(tables[0]) if len(tables) == 1 else _LINE_END.join(map(_named_block, tables))
    # A person's terminal would act on control characters; files and pipes get them as they are.
    return "\n".join(map(safe, text.split(_LINE_END))) if options.interactive else text


def table_csv(table: Table) -> str:
    """Return one table, header line first."""
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator=_LINE_END)
    writer.writerow([column.key for column in table.columns])
    writer.writerows([_field(value) for value in row] for row in table.rows())
    return lines.getvalue()


def csv_files(report: Report) -> dict[str, str]:
    """Return CSV text by file name, one file per table."""
    return {f"{name}.csv": table_csv(table) for name, table in _names(report)}


def _names(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield tables by name; where two sections use the same, the later one is told apart by its section."""
    seen: set[str] = set()
    for section in report.sections:
        for table in section.tables:
            name = f"{section.name}_{table.name}" if table.name in seen else table.name
            seen.add(name)
            yield name, table


def _named_block(table: Table) -> str:
    """Return one table below a line with its name."""
    return f"# {safe(table.name)}{_LINE_END}{table_csv(table)}"


def _field(value: Any) -> Any:
    """Return what the csv module writes faithfully: it uses `repr` for floats, and nothing for None."""
    item = plain(value)
    if isinstance(item, str):
        return item.replace("\0", "\ufffd")
    return ("false", "true")[item] if isinstance(item, bool) else item
