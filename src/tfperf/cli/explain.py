"""`tfperf explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from tfperf.cli import stdout_screen
from tfperf.cli.typed import completions

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tfperf.cli.explanations.entries import Entry
    from tfperf.report.render.text_table import Line

_LONGEST_LINE = 100
_EXAMPLES = 3


def _complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    # A shell completes words, not names of several.
    names = (name for entry in _known(context) for name in entry.names if " " not in name)
    return completions(sorted(set(names)), incomplete)


@click.command(
    "explain",
    short_help="Say what a word in a report, a file or an option means.",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("words", metavar="[TERM]...", nargs=-1, type=click.UNPROCESSED, shell_complete=_complete)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> None:
    """Say what a word means: a term, category, cause, action, step source, flag, table, column, option, ...

    Without TERM, the kinds of words are listed; with the name of a kind, its words.

    \b
    Example:
      tfperf explain input-bound
      tfperf explain self_ms
      tfperf explain all others
      tfperf explain causes
      tfperf explain --max-step-time
    """
    from tfperf.report.render import write
    from tfperf.report.render.text_table import joined

    screen = stdout_screen()
    width, known = min(screen.width, _LONGEST_LINE), tuple(_known(context))
    lines = _answer(" ".join(words), known, width) if words else _kinds(known, width)
    write(joined(lines, colour=screen.colour), None, screen=screen)


def _answer(word: str, known: tuple[Entry, ...], width: int) -> Iterator[Line]:
    from tfperf.cli.explanations.entries import KINDS, find, key_of
    from tfperf.report.render.text_table import line_of

    entries = find(word, known)
    singular = key_of(word).removesuffix("s")
    kind = next((kind for kind in KINDS if singular in (kind, _plural(kind).removesuffix("s"))), "")
    if not entries and not kind:
        raise click.UsageError(_unknown(word, known))
    for number, entry in enumerate(entries):
        yield from [line_of("")] if number else []
        yield from _entry_lines(entry, width)
    if kind:
        yield from [line_of("")] if entries else []
        yield from _list_lines(kind, known, width)


def _entry_lines(entry: Entry, width: int) -> Iterator[Line]:
    from tfperf.report.render.text_table import Part

    yield Part(entry.names[0], "bold"), Part(f" ({entry.kind})", "dim")
    for text in (entry.text, *entry.details, f"see {entry.page}"):
        yield from _indented(text, width)


def _list_lines(kind: str, known: tuple[Entry, ...], width: int) -> Iterator[Line]:
    from tfperf.cli.explanations.entries import names_of
    from tfperf.report.render.text_table import line_of

    names = names_of(kind, known)
    yield line_of(f"All {len(names)} {_plural(kind)}", "bold")
    yield from _indented(_listed(names), width)


def _listed(names: Sequence[str]) -> str:
    return ("; " if any("," in name for name in names) else ", ").join(names)


def _kinds(known: tuple[Entry, ...], width: int) -> Iterator[Line]:
    from tfperf.cli.explanations.entries import KINDS, names_of
    from tfperf.report.render.text_table import TextTable, line_of, table_lines

    rows = []
    for kind in KINDS:
        names = names_of(kind, known)
        rows.append((_plural(kind), str(len(names)), _listed(names[:_EXAMPLES])))
    table = TextTable(("Kind", "Words", "For example"), tuple(rows), (False, True, False))
    yield from table_lines(table, width, interactive=False)
    yield line_of("")
    yield from _indented("tfperf explain TERM says what one means, tfperf explain KIND lists them", width, indent="")


def _indented(text: str, width: int, indent: str = "  ") -> Iterator[Line]:
    from tfperf.report.render.text_table import line_of, wrap

    yield from (line_of(indent + line) for line in wrap(text, width - len(indent)))


def _plural(kind: str) -> str:
    first, *rest = kind.split(" ")
    if kind == "category":
        return "categories"
    return " ".join((f"{first}s", *rest)) if "of" in rest else f"{kind}s"


def _unknown(word: str, known: Iterable[Entry]) -> str:
    from tfperf.base.units import did_you_mean
    from tfperf.cli.explanations.entries import key_of
    from tfperf.report.render.values import for_people

    shown_as = {key_of(name): name for entry in known for name in entry.names}
    close = did_you_mean(key_of(word), shown_as, shown_as)
    return f"'{for_people(word)}' is not a term that tfperf knows: {close or 'tfperf explain lists what there is'}"


def _known(context: click.Context) -> Iterator[Entry]:
    from tfperf.cli.explanations.entries import entries

    yield from entries()
    yield from _of_command_line(context.find_root().command)


def _commands(group: click.Group, context: click.Context, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield all commands by what is typed for them, those of groups too."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, context, f"{before}{name} ")


def _of_command_line(main: click.Command) -> Iterator[Entry]:
    """Yield commands, and options of one name and help together, whatever their commands."""
    from tfperf.cli.explanations.entries import Entry

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
        of = f"of tfperf {', '.join(commands)}"
        page = f"docs/commands.md#tfperf-{commands[0].split()[0]}"
        yield Entry("option", names, help_text, page, (", ".join(names), of) if len(names) > 1 else (of,))
