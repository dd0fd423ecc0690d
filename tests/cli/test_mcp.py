"""`tfperf mcp`: what its tools answer, that they read nothing outside of the folders, and that they write nothing."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from builders import event, fetching, logdir_of, marks, space
from builders import host as host_plane
from printed import Run

from tfperf.base.errors import TfperfError
from tfperf.cli import analyze, main, mcp
from tfperf.cli.mcp import TOOLS, Profiles, answer_of, schema_of, server_of
from tfperf.export.query.engine import Query, QueryLimits
from tfperf.export.query.sources import source_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

RUN = "2026_01_01_00_00_00"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the logdirs `slow` (input takes 30 of 100 us), `fast` (10 us), and `hosts` (two hosts)."""
    served = tmp_path / "served"
    for name, data in {
        "slow": {"vm": fetching(30, count=12)},
        "fast": {"vm": fetching(10, count=12)},
        "hosts": {"a": fetching(30), "b": fetching(10)},
    }.items():
        logdir_of(served / name, **data)
    return served


def asked(folder: Path, name: str, **arguments: Any) -> str:
    """Return the answer of a tool, which must not be an error."""
    text, is_error = answer_of(Profiles.below([folder]), name, arguments)
    assert not is_error, text
    return text


def refused(folder: Path, name: str, **arguments: Any) -> str:
    """Return the error of a tool: one line."""
    text, is_error = answer_of(Profiles.below([folder]), name, arguments)
    assert is_error
    assert len(text.splitlines()) == 1
    return text


def with_client(connect: Callable[[], Any], talk: Callable[[Client], Awaitable[Any]], mode: str = "auto") -> Any:
    import anyio
    from mcp import Client  # which takes long, so not while tests are collected

    async def session() -> Any:
        async with Client(connect(), mode=mode) as client:
            return await talk(client)

    # The browser of other tests leaves an event loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(anyio.run, session).result()


def text_of(result: Any) -> str:
    from mcp_types import CallToolResult, TextContent

    assert isinstance(result, CallToolResult)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return str(content.text)


def test_a_client_lists_and_calls_tools(folder: Path) -> None:
    async def talk(client: Client) -> tuple[list[Tool], str, tuple[str, bool | None]]:
        tools = (await client.list_tools()).tools
        screen = text_of(await client.call_tool("first_screen", {"path": "slow"}))
        wrong = await client.call_tool("first_screen", {"path": "slow", "rows": 3})
        return tools, screen, (text_of(wrong), wrong.is_error)

    tools, screen, wrong = with_client(lambda: server_of(Profiles.below([folder])), talk)
    assert [tool.name for tool in tools] == ["list_runs", "first_screen", "section", "query", "compare", "explain"]
    for tool in tools:
        assert tool.annotations is not None
        assert (tool.annotations.read_only_hint, tool.annotations.open_world_hint) == (True, False)
        assert tool.description
    assert "30.0%" in screen
    assert "HIGHLY input-bound" in screen
    assert wrong == ("Object contains unknown field `rows`", True)


def test_a_client_talks_to_a_process(folder: Path) -> None:
    """Over stdin and stdout, as an editor does; nothing else is printed there."""
    from mcp import StdioServerParameters, stdio_client

    server = StdioServerParameters(
        command=sys.executable, args=["-m", "tfperf", "mcp", str(folder)], env={**os.environ}
    )

    async def talk(client: Client) -> tuple[str, str]:
        runs = text_of(await client.call_tool("list_runs", {}))
        return runs, text_of(await client.call_tool("section", {"path": "slow", "section": "steps", "format": "json"}))

    # Most editors still begin with the handshake of earlier versions of the protocol.
    with (folder.parent / "stderr").open("w") as errors:
        runs, section = with_client(lambda: stdio_client(server, errlog=errors), talk, mode="legacy")
    assert [Path(run["path"]).name for run in json.loads(runs)["runs"]] == [RUN] * 3
    assert json.loads(section)["summary"]["step_count"] == 12


def test_every_argument_is_described() -> None:
    for tool in TOOLS.values():
        schema = schema_of(tool)
        assert schema["additionalProperties"] is False
        for argument in schema["properties"].values():
            assert argument["description"].endswith("."), argument


def test_runs_of_all_folders_are_listed(folder: Path, tmp_path: Path) -> None:
    other = logdir_of(tmp_path / "other", vm=fetching(30))
    text, _ = answer_of(Profiles.below([folder, folder / "slow", other]), "list_runs", {})
    assert len(json.loads(text)["runs"]) == 4  # the second folder is part of the first
    (run,) = json.loads(asked(folder, "list_runs", path="hosts"))["runs"]
    assert (run["hosts"], run["time"], run["size_bytes"]) == (
        ["a", "b"],
        "2026-01-01 00:00:00",
        sum(file.stat().st_size for file in Path(run["path"]).iterdir()),
    )
    assert json.loads(asked(folder, "first_screen", path=run["path"], format="json"))["source"]["hosts"] == ["a", "b"]
    (tmp_path / "empty").mkdir()
    assert json.loads(asked(tmp_path / "empty", "list_runs")) == {"runs": []}


def test_a_part_of_a_run(folder: Path) -> None:
    of_host = json.loads(asked(folder, "first_screen", path="hosts", host="b", format="json"))
    assert (of_host["source"]["hosts"], of_host["summary"]["input_percent"]) == (["b"], pytest.approx(10))
    of_steps = json.loads(asked(folder, "section", path="slow", section="ops", steps="2..4", format="json"))
    assert of_steps["source"]["steps"]["last"] == 4
    (row,) = of_steps["sections"]["ops"]["tables"]["host_ops"]["rows"]
    assert row["occurrences"] == 3
    assert refused(folder, "section", path="slow", section="ops", steps="99") == (
        "step 99 does not exist; the steps are 0..11"
    )


def test_tables_have_at_most_so_many_rows(folder: Path) -> None:
    document = json.loads(asked(folder, "section", path="slow", section="steps", format="json", rows=5))
    table = document["sections"]["steps"]["tables"]["steps"]
    assert (len(table["rows"]), table["total_rows"]) == (5, 12)


def test_each_section_can_have_few_rows(samples: Path) -> None:
    profiles = Profiles.below([samples / "gpu_transformer"])
    for name in TOOLS["section"].sections():
        for format_name in ("text", "json"):
            arguments = {"path": ".", "section": name, "format": format_name, "rows": 1}
            text, is_error = answer_of(profiles, "section", arguments)
            assert not is_error, text
            assert "More: tfperf" not in text


def test_ops_are_grouped_and_steps_are_named_on_request(folder: Path) -> None:
    marked = space(host_plane(*(event("mine", 100 * row, 90) for row in range(6))))
    logdir_of(folder / "marked", vm=marked)
    screen = json.loads(asked(folder, "first_screen", path="marked", step_marker="mine", format="json"))
    assert screen["summary"]["step_count"] == 6
    assert "Ops by type: host" in asked(folder, "section", path="slow", section="ops", by="type")


def test_groups_are_those_of_the_command_line() -> None:
    option = next(each for each in analyze.command.params if each.name == "by")
    assert isinstance(option.type, click.Choice)
    assert schema_of(TOOLS["section"])["properties"]["by"]["enum"] == sorted(option.type.choices)


def test_two_runs_are_compared(folder: Path) -> None:
    assert "slow -> fast: mean of 12 and 12 steps" in asked(folder, "compare", before="slow", after="fast")
    document = json.loads(asked(folder, "compare", before="slow", after="slow", steps="2..9", format="json"))
    assert (document["source"]["steps"], document["summary"]["before"]["step_count"]) == ("2..9", 8)
    assert {*document["sections"]} == {*filter(None, TOOLS["compare"].sections())}
    categories = asked(folder, "compare", before="slow", after="fast", section="categories")
    assert "Input" in categories
    assert "mean of 12" not in categories
    assert refused(folder, "compare", before="slow", after="fast", section="categorys").endswith("mean categories?")


def test_words_are_explained(folder: Path) -> None:
    assert asked(folder, "explain", word="all others").startswith("all others (term)\n")
    assert refused(folder, "explain", word="input bond").startswith("unknown term 'input bond': did you mean")
    assert refused(folder, "explain", word="zzzzqq") == "unknown term 'zzzzqq': tfperf explain lists all kinds of terms"
    assert "causes" in asked(folder, "explain", word="")


def test_results_are_kept_until_a_file_changes(folder: Path) -> None:
    profiles = Profiles.below([folder])
    sections = ["steps", "ops", "steps", "wall"]
    for section in sections:
        assert not answer_of(profiles, "section", {"path": "slow", "section": section})[1]
    (first,) = profiles._loaded.values()
    assert {"steps", "ops", "wall"} <= {*first.sections}
    logdir_of(folder / "slow", vm=fetching(20, count=9))
    document = json.loads(answer_of(profiles, "first_screen", {"path": "slow", "format": "json"})[0])
    assert document["summary"]["step_count"] == 9
    for steps in range(6):
        answer_of(profiles, "first_screen", {"path": "slow", "steps": f"{steps}.."})
    assert len(profiles._loaded) == mcp._MOST_LOADED


# --- what may not be read or written ---


@pytest.mark.parametrize("path", ["../outside", "/etc", "..", "slow/../../outside", "nothing", "slow\0", "~", "link"])
def test_paths_outside_are_refused_as_if_they_did_not_exist(path: str, folder: Path, tmp_path: Path) -> None:
    outside = logdir_of(tmp_path / "outside", vm=fetching(30))
    (folder / "link").symlink_to(outside)
    text = refused(folder, "first_screen", path=path)
    assert "is not in the folders of this server: list_runs lists the paths of runs" in text
    refused(folder, "compare", before="slow", after=path)
    refused(folder, "query", path=path, sql="select 1")
    refused(folder, "list_runs", path=path)


def test_files_that_lie_outside_are_not_read_through_links(folder: Path, tmp_path: Path) -> None:
    outside = logdir_of(tmp_path / "outside", vm=fetching(30))
    (trace,) = outside.rglob("*.pb")
    run = folder / "linked" / "plugins" / "profile" / RUN
    run.mkdir(parents=True)
    (run / "vm.xplane.pb").symlink_to(trace)
    assert (
        refused(folder, "first_screen", path="linked") == "the runs of 'linked' are not in the folders of this server"
    )
    assert not [each for each in json.loads(asked(folder, "list_runs"))["runs"] if "linked" in each["path"]]
    inside = folder / "inside"
    inside.symlink_to(folder / "slow")  # links within the folders are fine
    assert "30.0%" in asked(folder, "first_screen", path="inside")


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select * from read_csv('/etc/passwd')", "not allowed, because a query can read only the profile"),
        ("select * from '{}'", "not allowed, because a query can read only the profile"),
        ("attach '{}' as other", "ATTACH is not allowed, because queries are read-only"),
        ("copy (select 1) to '{}'", "COPY is not allowed, because queries are read-only"),
        ("install httpfs", "is not allowed, because queries are read-only"),
        ("set enable_external_access = true", "is not allowed, because queries are read-only"),
        ("select 1; select 2", "the query has 2 statements"),
    ],
)
def test_queries_reach_no_files(
    sql: str, words: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here in this process, which is faster; test_engine.py tries many more ways."""

    def ask(path: Path, sql: str, limits: QueryLimits, **selection: Any) -> None:
        Query(source_of(path, **selection), sql, limits).check()

    monkeypatch.setattr("tfperf.export.query.answer_report.ask", ask)
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    assert words in refused(folder, "query", path="slow", sql=sql.format(secret))
    assert secret.read_text() == "a\n1\n"


def test_nothing_is_written(folder: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in folder.rglob("*")}

    before = state()
    asked(folder, "list_runs")
    asked(folder, "first_screen", path="slow")
    asked(folder, "compare", before="slow", after="fast")
    rows = json.loads(asked(folder, "query", path="slow", sql="select count(*) as n from events"))
    assert rows["sections"]["query"]["tables"]["result"]["rows"] == [{"n": 36}]
    assert state() == before


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("first_screen", {}, "Object missing required field `path`"),
        ("first_screen", {"path": 3}, "Expected `str`, got `int` - at `$.path`"),
        ("first_screen", {"path": "slow", "steps": "3-5"}, "'3-5' is not a range of steps: use 3..5, 3.., ..5 or 3"),
        ("first_screen", {"path": "slow", "host": "other"}, "other"),
        ("section", {"path": "slow", "section": "op"}, "'op' is not a section: did you mean ops?"),
        ("section", {"path": "slow", "section": "ops", "rows": 0}, "Expected `int` >= 1 - at `$.rows`"),
        ("run_script", {}, "no tool is named 'run_script'"),
    ],
)
def test_errors_are_one_line(name: str, arguments: dict[str, Any], words: str, folder: Path) -> None:
    assert words in refused(folder, name, **arguments)


def test_a_baseline_has_the_steps_that_it_was_saved_with(folder: Path, run_tfperf: Run) -> None:
    run_tfperf("analyze", folder / "slow", "--steps", "1..8", "--save-baseline", folder / "base.json")
    same = asked(folder, "compare", before="base.json", after="slow", steps="1..8")
    assert "Only steps 1..8 of each run are compared." in same
    other = asked(folder, "compare", before="base.json", after="slow")
    assert "NOT COMPARABLE: selected steps 1..8 -> all" in other


def test_an_answer_that_is_too_long_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "_LARGEST_ANSWER", 100)
    for arguments, advice in (
        ({"name": "section", "path": "slow", "section": "steps"}, "pass a smaller number of rows"),
        ({"name": "first_screen", "path": "slow"}, "pass one host, or format=text"),
        ({"name": "list_runs"}, "pass the path of a folder with fewer runs"),
    ):
        assert refused(folder, **arguments) == f"the answer has more than 100 characters: {advice}"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (
            "select repeat('x', 100000) as text from range(1000)",
            "the result exceeds 10.0 MB of memory: select fewer rows",
        ),
        ("select range(1000) as numbers from range(1000)", "the result exceeds 10.0 MB of memory: select fewer rows"),
        ("select repeat('x', 1000) as text from range(1001)", "more than 1,000,000 characters: pass a smaller number"),
        (
            f'select 1 as "{"n" * 1000}" from range(1001)',
            "more than 1,000,000 characters: pass a smaller number of rows",
        ),
    ],
    ids=["long texts", "lists", "more texts", "a long name"],
)
def test_a_long_result_is_refused_before_its_text_exists(
    sql: str, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(*_: Any) -> str:
        raise AssertionError("a text of a long result")

    monkeypatch.setattr("tfperf.report.render.render", render)
    assert words in refused(folder, "query", path="slow", sql=sql, rows=10_000)


def test_only_local_folders_are_served(tmp_path: Path, run_tfperf: Run) -> None:
    (tmp_path / "file").write_bytes(space(host_plane(*marks(3))))
    for path in (tmp_path / "file", tmp_path / "nothing"):
        with pytest.raises(TfperfError, match="is not a folder: pass local folders that contain runs"):
            Profiles.below([path])
    result = run_tfperf("mcp", tmp_path / "nothing")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert run_tfperf("mcp").exit_code == 2


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, run_tfperf: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "find_spec", lambda _: None)
    result = run_tfperf("mcp", tmp_path)
    expected = "Error: tfperf mcp requires version 2 of the MCP SDK: pip install 'tfperf[mcp]'\n"
    assert (result.exit_code, result.stderr) == (1, expected)


# --- its page ---


def test_the_page_has_the_tools_and_configurations_that_start_the_server(root: Path) -> None:
    page = (root / "docs" / "mcp.md").read_text(encoding="utf-8")
    assert [*TOOLS] == re.findall(r"^\| `(\w+)` \|", page.split("\n## Tools")[1].split("| argument |")[0], re.MULTILINE)
    arguments = {name for tool in TOOLS.values() for name in schema_of(tool)["properties"]}
    assert arguments - {"sql", "word"} == {
        name
        for row in re.findall(r"^\| (`.*?`) \|", page.split("| argument |")[1], re.MULTILINE)
        for name in re.findall(r"\w+", row)
    }
    configurations = [
        json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ]
    assert len(configurations) == 3
    for document in configurations:
        ((_, servers),) = document.items()
        words = [servers["tfperf"]["command"], *servers["tfperf"]["args"]]
        assert words[:2] == ["tfperf", "mcp"]
        mcp.command.make_context("mcp", [str(root) for _ in words[2:]], **main.context_settings)
