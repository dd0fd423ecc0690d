"""What a gate came to, told to GitHub Actions: annotations, and a Markdown summary on the page of the job.

Annotations are workflow commands, lines such as `::error title=...::message`. The runner reads them from stderr as
well as from stdout, puts ten of a kind on the page, and cuts messages at 4,096 characters. A summary over 1 MiB is
not shown at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tfperf.errors import OutputError
from tfperf.gate.model import Judged, Outcome
from tfperf.gate.report import VERDICTS, check_report, open_questions, sentence
from tfperf.render import render
from tfperf.render.safe_text import brief, safe

SUMMARY_FILE = "GITHUB_STEP_SUMMARY"
"""The environment variable that names the file of the summary."""

SUMMARY_BYTES = 1 << 20
"""What the file of a step may hold at most."""

_LEAST = 512
"""Less room than that is not worth a summary."""

_LONGEST_TITLE = 120
_LONGEST_LINE = 1300
_CUT = "\n\nNote: cut, since GitHub shows no summary over 1 MiB. The log of the step has all.\n"
_TITLES = {
    "pass": "tfperf check: all limits hold", "breach": "tfperf check: a limit is breached",
    "unknown": "tfperf check: could not be judged",
}  # fmt: skip


def annotation_text(outcome: Outcome) -> str:
    """Return one workflow command per line for each breach, and for what could not be judged; empty if all hold.

    What decides the exit code is an error; what could not be judged beside a breach is a warning.
    """
    lines = [_command("error", f"{one.limit.text} is breached", _breach(one)) for one in outcome.breached]
    kind = "warning" if outcome.breached else "error"
    lines += [_command(kind, what, [reason]) for what, reason in open_questions(outcome)]
    return "\n".join(lines)


def summary_text(outcome: Outcome, room_bytes: int = SUMMARY_BYTES) -> str:
    """Return the report as Markdown below a headline, in at most `room_bytes` bytes of UTF-8 (512 are always used)."""
    text = f"# {_TITLES[VERDICTS[outcome.exit_code]]}\n\n{render(check_report(outcome), 'markdown')}\n"
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > room_bytes:
        kept = data[: max(room_bytes, _LEAST) - len(_CUT.encode())].decode("utf-8", "ignore")
        return kept.rpartition("\n")[0] + _CUT
    return data.decode()


def write_summary(outcome: Outcome, environ: Mapping[str, str]) -> str:
    """Append the summary to the file that the environment names; return in words why not, empty if it was written.

    Raises OutputError if the file cannot be written.
    """
    name = environ.get(SUMMARY_FILE)
    if not name:
        return f"no job summary was written: {SUMMARY_FILE} is not set"
    path = Path(name)
    try:
        room = SUMMARY_BYTES - (path.stat().st_size if path.exists() else 0)
        if room < _LEAST:
            return "no job summary was written: other commands of this step have filled its 1 MiB"
        text = summary_text(outcome, room)
        with path.open("ab") as file:
            file.write(text.encode())
    except OSError as error:
        raise OutputError(f"cannot write the job summary {safe(name)}: {error.strerror or error}") from error
    return ""


def _breach(one: Judged) -> list[str]:
    """Return lines: both numbers, and the first evidence with what to do about it."""
    lines = [sentence(one)]
    for finding in one.evidence[:1]:
        lines += [finding.text] + ([f"Try: {finding.action}"] if finding.action else [])
    return lines


def _command(kind: str, title: str, lines: Sequence[str]) -> str:
    message = "\n".join(brief(line, _LONGEST_LINE) for line in lines)
    return f"::{kind} title={_property(brief(title, _LONGEST_TITLE))}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
