"""`tfperf explain`: every word of reports, files and options, from the modules that declare it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from tfperf.base.units import did_you_mean, listed
from tfperf.cli import stdout_screen
from tfperf.cli.options import completions
from tfperf.report.render import write

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tfperf.report.render.text_table import Line

_LONGEST_LINE = 100
_EXAMPLES = 3


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    # Shells complete single words.
    names = (name for entry in _known(context) for name in entry.names if " " not in name)
    return completions(sorted(set(names)), incomplete)


@click.command(
    "explain",
    short_help="Explain a term, column, cause, flag or option.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", metavar="[TERM]...", nargs=-1, type=click.UNPROCESSED, shell_complete=_complete)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Explain a word: a term, category, cause, action, detection method, flag, table, column, option, ...

    Without TERM, list the kinds of words. With the name of a kind, list its words.

    \b
    Example:
      tfperf explain input-bound
      tfperf explain self_ms
      tfperf explain all others
      tfperf explain causes
      tfperf explain --max-step-time
    """
    from tfperf.report.render.text_table import joined

    screen = stdout_screen()
    width, known = min(screen.width, _LONGEST_LINE), tuple(_known(context))
    lines = _answer(" ".join(words), known, width) if words else _kinds(known, width)
    write(joined(lines, colour=screen.colour), None, screen=screen)


def explanation(word: str, width: int) -> str:
    """Return the explanation of a word, or all kinds of words, as plain text. Raises click.UsageError for others."""
    from tfperf.cli import main
    from tfperf.report.render.text_table import joined

    known = (*entries(), *_of_command_line(main))
    return joined(_answer(word, known, width) if word.strip() else _kinds(known, width), colour=False)


def _answer(word: str, known: tuple[Entry, ...], width: int) -> Iterator[Line]:
    from tfperf.report.render.text_table import Part, line_of
    from tfperf.report.render.values import for_people

    entries = find(word, known)
    singular = key_of(word).removesuffix("s")
    kind = next((kind for kind in KINDS if singular in (kind, _plural(kind).removesuffix("s"))), "")
    if not entries and not kind:
        shown_as = {key_of(name): name for entry in known for name in entry.names}
        close = did_you_mean(key_of(word), shown_as, shown_as) or "tfperf explain lists all kinds of terms"
        raise click.UsageError(f"unknown term '{for_people(word)}': {close}")
    for number, entry in enumerate(entries):
        yield from [line_of("")] if number else []
        yield Part(entry.names[0], "bold"), Part(f" ({entry.kind})", "dim")
        for text in (entry.text, *entry.details, f"see {entry.page}"):
            yield from _indented(text, width)
    if kind:
        yield from [line_of("")] if entries else []
        names = names_of(kind, known)
        yield line_of(f"All {len(names)} {_plural(kind)}", "bold")
        yield from _indented(_listed(names), width)


def _listed(names: Sequence[str]) -> str:
    return ("; " if any("," in name for name in names) else ", ").join(names)


def _kinds(known: tuple[Entry, ...], width: int) -> Iterator[Line]:
    from tfperf.report.render.text_table import TextTable, line_of, table_lines

    rows = []
    for kind in KINDS:
        names = names_of(kind, known)
        rows.append((_plural(kind), str(len(names)), _listed(names[:_EXAMPLES])))
    table = TextTable(("Kind", "Words", "Examples"), tuple(rows), (False, True, False))
    yield from table_lines(table, width, interactive=False)
    yield line_of("")
    yield from _indented(
        "tfperf explain TERM prints its meaning, tfperf explain KIND lists all terms of a kind", width, indent=""
    )


def _indented(text: str, width: int, indent: str = "  ") -> Iterator[Line]:
    from tfperf.report.render.text_table import line_of, wrap

    yield from (line_of(indent + line) for line in wrap(text, width - len(indent)))


def _plural(kind: str) -> str:
    first, *rest = kind.split(" ")
    if kind == "category":
        return "categories"
    return " ".join((f"{first}s", *rest)) if "of" in rest else f"{kind}s"


def _known(context: click.Context) -> Iterator[Entry]:

    yield from entries()
    yield from _of_command_line(context.find_root().command)


def _commands(group: click.Group, context: click.Context, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, context, f"{before}{name} ")


def _of_command_line(main: click.Command) -> Iterator[Entry]:
    """Yield commands, and options; options with equal name and help are one entry."""
    assert isinstance(main, click.Group)
    found: dict[tuple[tuple[str, ...], str], list[str]] = {}
    context = click.Context(main, info_name="tfperf", **main.context_settings)
    for name, command in _commands(main, context):
        yield Entry("command", (name,), command.get_short_help_str(200), f"docs/commands.md#tfperf-{name.split()[0]}")
        for option in command.get_params(context):
            if isinstance(option, click.Option):
                names = (*sorted(option.opts, key=len, reverse=True), *option.secondary_opts)
                found.setdefault((names, option.help or ""), []).append(name)
    for (names, help_text), commands in found.items():
        of = f"option of tfperf {', '.join(commands)}"
        page = f"docs/commands.md#tfperf-{commands[0].split()[0]}"
        yield Entry("option", names, help_text, page, (", ".join(names), of) if len(names) > 1 else (of,))


@cache
def glossary_terms() -> dict[str, dict[str, str]]:
    """Return the terms of each part of the glossary with their meanings, in Markdown."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    with Path(__file__).with_name("glossary.toml").open("rb") as file:
        terms: dict[str, dict[str, str]] = tomllib.load(file)
    return terms


WITHOUT_PAGE = ("steps", "environment", "gaps")
_PAGES = {"python": "python_functions"}
"""Pages with another name than their section."""


def page_of(section: str) -> str:
    """Return the file in docs/ about a section; empty if there is none."""
    return "" if section in WITHOUT_PAGE else f"{_PAGES.get(section, section)}.md"


class Entry(Struct, frozen=True):
    """A term: its search keys `names` (the first is its title), kind, meaning, page, and additional lines."""

    kind: str
    names: tuple[str, ...]
    text: str
    page: str
    details: tuple[str, ...] = ()


_STAGES = {
    "Map ParallelMap ParallelMapV2 MapAndBatch MapAndBatchV2": "calls a function for each element: map()",
    "Batch BatchV2 ParallelBatch PaddedBatch PaddedBatchV2": "combines elements into a batch: batch(), padded_batch()",
    "Prefetch": "prepares the next elements in a thread: prefetch()",
    "Shuffle ShuffleV3 ShuffleAndRepeat": "returns elements in random order: shuffle()",
    "Repeat ForeverRepeat FiniteRepeat EmptyRepeat": "starts again at the end of its input: repeat()",
    "Cache CacheV2 MemoryCache MemoryCacheImpl": "keeps the elements of the first epoch: cache()",
    "Interleave ParallelInterleave ParallelInterleaveV4 FlatMap": "joins several datasets: interleave(), flat_map()",
    "Range": "numbers: Dataset.range()",
    "TensorSlice": "slices of arrays in memory: from_tensor_slices()",
    "FromTensor Tensor": "one element in memory: from_tensors()",
    "Generator": "elements of a Python generator: from_generator()",
    "TFRecord TFRecordV2": "records of files: TFRecordDataset",
    "Filter": "drops elements for which a function is false: filter()",
    "Take Skip Shard": "selects elements by their place: take(), skip(), shard()",
    "Zip Concatenate": "combines datasets: zip(), concatenate()",
    "Options Model Root": "the outermost part of a pipeline, without work of its own",
}
"""Stages of tf.data pipelines, by name in profiles."""
KINDS = (
    "term",
    "category",
    "cause",
    "action",
    "cause of idle time",
    "detection method",
    "flag",
    "role",
    "stage",
    "figure",
    "rule",
    "section",
    "table",
    "column",
    "command",
    "option",
)
"""In display order. Commands and options come from the command line."""
_DEGREES = ("highly", "moderately", "possibly", "not")


@cache
def key_of(name: str) -> str:
    """Return the search key of a word, equal for `--max-input-bound`, `max_input_bound` and `Max input bound`."""
    return " ".join(re.split(r"[\s_\-]+", name.strip("- `").lower())).removesuffix(" ()")


def plain_text(markdown: str) -> str:
    """Return Markdown without link targets and code marks."""
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", markdown).replace("`", "")


@cache
def entries() -> tuple[Entry, ...]:
    """Return all terms except those of the command line; imports the declarations of all sections."""
    makers = (_terms, _roles, _stages, _steps_and_causes, _figures_and_rules, _sections, _tables, _columns)
    return tuple(entry for maker in makers for entry in maker())


_DETAILS = re.compile(r", (?:which|without) [\w ]+,?$|\s*[!*]+$|^\d ")
_VALUE = re.compile(r"\b(?:HOST|NAME|N)\b")


def _has_values(name: str, wanted: str) -> bool:
    """Return whether a word is this name with values in place of its capital words."""
    if _VALUE.search(name) is None:
        return False
    parts = (re.escape(key_of(part)) for part in _VALUE.split(name))
    return re.fullmatch(r" ?.+ ?".join(parts), wanted) is not None


def find(word: str, known: Sequence[Entry]) -> list[Entry]:
    """Return the entries for a word in the order of `KINDS`; it may be plural, with a unit, or with a quantity."""
    wanted = key_of(_DETAILS.sub("", word.strip()) or word)
    without_unit = re.sub(r" \(.*\)$", "", wanted)
    keys = {wanted, without_unit, wanted.removesuffix("s"), re.sub("ies$", "y", wanted)} - {""}
    found = [
        entry
        for entry in known
        if not keys.isdisjoint(map(key_of, entry.names))
        or (entry.kind == "cause" and any(_has_values(name, key_of(word)) for name in entry.names))
    ]
    degree, _, rest = wanted.partition(" ")
    if not found and degree in _DEGREES:
        return find(rest, known)
    return sorted(found, key=lambda entry: KINDS.index(entry.kind))


def _terms() -> Iterator[Entry]:
    for part, terms in glossary_terms().items():
        for term, meaning in terms.items():
            outside = re.sub(r"\s*\(.*?\)", "", term)
            short = re.findall(r"\((\w[\w ]*)\)", term)
            others = [name for name in (outside, *outside.split(", "), *short) if name != term]
            names = tuple(dict.fromkeys((term, *others)))
            anchor = part.lower().replace(" ", "-")
            yield Entry("term", names, plain_text(meaning), f"docs/glossary.md#{anchor}")


def _steps_and_causes() -> Iterator[Entry]:
    from tfperf.sections.diagnosis.catalogue import ADVICE, CAUSE_MEANINGS, CAUSE_TITLES
    from tfperf.sections.idle.analysis import CAUSE_TEXTS
    from tfperf.trace.steps.categories import CATEGORY_MEANINGS, CATEGORY_TITLES, STEP_SOURCES
    from tfperf.trace.steps.steps import FLAGS

    for key, meaning in CATEGORY_MEANINGS.items():
        note = "one of the nine parts of step time"
        yield Entry("category", (CATEGORY_TITLES[key], key), meaning, "docs/glossary.md#steps", (note,))
    copies = "copies to the device: part of input, unless a TPU program copies its own arrays from host memory"
    yield Entry("category", (CATEGORY_TITLES["host_to_device"], "host_to_device"), copies, "docs/glossary.md#steps", ())
    for code, cause in CAUSE_MEANINGS.items():
        details = [f"source of the number: {plain_text(cause.taken_from)}", f"limit: tfperf check --fail-on {code}"]
        names = (code, *CAUSE_TITLES.get(code, ()))
        yield Entry("cause", names, plain_text(cause.text), "docs/diagnosis.md#the-causes", tuple(details))
    for code, advice in ADVICE.items():
        texts = [f"{api}: {text}" for api, text in advice.texts.items()]
        has_one = len(set(advice.texts.values())) == 1
        details = [] if has_one else texts[1:]
        least, most = advice.saves
        if most:
            share = f"removes {100 * least:.0f} to {100 * most:.0f}% of the cost"
            details.append(f"{share}, if {advice.assumption}")
        text = next(iter(advice.texts.values())) if has_one else texts[0]
        yield Entry("action", (code,), text, "docs/diagnosis.md#the-estimates", (*details, advice.url))
    for idle, words in CAUSE_TEXTS.items():
        names = (words.title, idle, words.short_title)
        yield Entry("cause of idle time", names, f"the device is idle: {words.meaning}", "docs/idle.md")
    for name, source in STEP_SOURCES.items():
        text, confidence = plain_text(source.step), f"confidence: {source.confidence}"
        text = text if name == "none" else f"a step is {text}"
        yield Entry(
            "detection method", (name,), text, "docs/architecture-reasons.md#how-steps-are-found", (confidence,)
        )
    for name, meaning in FLAGS.items():
        note = "a step with this flag is excluded from averages if at least three other steps remain"
        yield Entry("flag", (name,), meaning, "docs/glossary.md#steps", (note,))


def _roles() -> Iterator[Entry]:
    from tfperf.report.palette import ROLES

    for name, role in ROLES.items():
        text = f"time of the step by cause, {role.title}: the letter {role.letter} of the bar"
        yield Entry("role", (role.title, name), text, "docs/diagnosis.md")


def _stages() -> Iterator[Entry]:
    from tfperf.sections.tfdata.advice import CHANGES

    for code, change in CHANGES.items():
        yield Entry("action", (code,), f"change the tf.data pipeline: {change.format('a stage')}", "docs/tfdata.md")
    for names, text in _STAGES.items():
        yield Entry("stage", tuple(names.split()), text, "docs/tfdata.md")


def _figures_and_rules() -> Iterator[Entry]:
    from tfperf.judge.limits import FIGURES
    from tfperf.models.linter.rules import RULES

    for name, figure in FIGURES.items():
        details = [f"unit: {figure.unit}"] if figure.unit else []
        details.append(f"limit: --{figure.option}")
        names = (name, figure.title) if not figure.of_cause else (name,)
        yield Entry("figure", names, plain_text(figure.meaning), "docs/ci.md", tuple(details))
    for rule in RULES.values():
        about = (
            f"level: {rule.level}",
            f"advice: {rule.advice}",
            f"unless: {rule.unless}",
            f'based on: "{rule.says}" ({rule.source})',
            f"checked by: tfperf lint SOURCE --rule {rule.id}",
        )
        yield Entry("rule", (rule.id, rule.title), f"{rule.title}: {rule.when}", "docs/lint.md", about)


def _sections() -> Iterator[Entry]:
    from importlib import import_module

    from tfperf.analysis.registry import OURS

    for name in OURS:
        question = str(import_module(f"tfperf.sections.{name}").__doc__).partition(": ")[2]
        page = f"docs/{page_of(name) or 'README.md#sections-of-a-report'}"
        yield Entry("section", (name,), question, page, (f"shown by: tfperf analyze PATH -s {name}",))


def _tables() -> Iterator[Entry]:
    from tfperf.analysis.registry import OURS, find_section

    for section in OURS:
        for table in find_section(section).tables:
            columns = f"columns: {', '.join(column.key for column in table.columns)}"
            page = "docs/csv-files.md" if table.in_report else "docs/sql.md"
            row = f"{table.title}; {table.row}" if table.row else table.title
            yield Entry("table", (table.name, *table.aliases), row, page, (f"section: {section}", columns))


def _columns() -> Iterator[Entry]:
    """Yield columns; those with equal name and meaning in several tables are one entry."""
    from tfperf.analysis.registry import OURS, find_section
    from tfperf.judge.diff_report import COLUMNS
    from tfperf.judge.outcome import BASELINE_COLUMNS, LIMIT_COLUMNS
    from tfperf.models.linter.report import UNKNOWN_COLUMNS, VIOLATION_COLUMNS

    tables = [(table.name, table.columns) for name in OURS for table in find_section(name).tables]
    tables += [("lint_findings", VIOLATION_COLUMNS), ("lint_not_evaluable", UNKNOWN_COLUMNS)]
    tables += [*COLUMNS.items(), ("limits", LIMIT_COLUMNS), ("baseline", BASELINE_COLUMNS)]
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for table, columns in tables:
        for column in columns:
            found.setdefault((column.key, column.title, column.unit, column.meaning), []).append(table)
    for (key, title, unit, meaning), names in found.items():
        details = (f"unit: {unit}",) if unit else ()
        tables_of = f"in the tables {listed(names, 8)}" if len(names) > 1 else f"in the table {names[0]}"
        yield Entry("column", (key, title), plain_text(meaning), "docs/csv-files.md", (*details, tables_of))


def names_of(kind: str, known: Iterable[Entry]) -> tuple[str, ...]:
    """Return the distinct words of one kind."""
    return tuple(dict.fromkeys(entry.names[0] for entry in known if entry.kind == kind))
