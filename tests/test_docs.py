"""Pages cannot drift: their generated parts are compared with the program, and their examples are run.

A generated part stands between `<!-- output: COMMAND -->` (or `columns:`, `priorities:`, ...) and `<!-- end -->`;
`make docs` writes it anew. Blocks of `sh` and `python` are run; `console` blocks are for what changes the machine.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import click
import jax_builders as jax
import pytest
from builders import Event, Plane, event, host, iterator_call, line, logdir_of, plane, ref, space
from click.testing import CliRunner, Result
from job_environment import needs_tensorflow, run_tensorflow
from places import ROOT, SAMPLES, TRACES
from sections.hosts.jobs import host_of_job
from sections.requests.jobs import server
from synthetic_tpu import offload_tpu
from tpu_twin import tpu_twin

import tfperf
from tfperf.analysis.registry import OURS, all_tables, find_section
from tfperf.capture.outcomes import Captured
from tfperf.cli import main
from tfperf.cli.explain import glossary_terms, page_of
from tfperf.judge import diff_report as diff_tables
from tfperf.judge.diff_report import COLUMNS as DIFF_COLUMNS
from tfperf.judge.outcome import BASELINE_COLUMNS, LIMIT_COLUMNS
from tfperf.live.sampling import CAPTURED_COLUMNS, capture_report
from tfperf.models.linter.report import UNKNOWN_COLUMNS, VIOLATION_COLUMNS
from tfperf.models.linter.rules import RULES
from tfperf.report.model import Column, Report
from tfperf.report.render import render
from tfperf.report.render.data_files import csv_files
from tfperf.sections.diagnosis.catalogue import ADVICE, CAUSE_MEANINGS
from tfperf.trace.host.activities import PRIORITY, Attribution
from tfperf.trace.steps.categories import STEP_SOURCES

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
SECTION_TABLES = {table.name: table for table in all_tables() if table.in_report}
TABLES = {
    **{name: table.columns for name, table in SECTION_TABLES.items()},
    "limits": LIMIT_COLUMNS,
    "baseline": BASELINE_COLUMNS,
    "lint_findings": VIOLATION_COLUMNS,
    "lint_not_evaluable": UNKNOWN_COLUMNS,
    **DIFF_COLUMNS,
}
_FENCE = re.compile(r"^```(sh|python|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder as the pages assume it: the sample traces, and `logs`."""
    shutil.copytree(SAMPLES, tmp_path / "sample_traces")
    shutil.copytree(SAMPLES / "input_fixed", tmp_path / "logs")
    return tmp_path


def shell(command: str, folder: Path, stdin: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a reader would who has activated the virtual environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    of_pages = {"COLUMNS": "80", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"}
    environment = os.environ | {"PATH": path} | of_pages | variables
    call = ["bash", "-eu", "-c", command]
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300, "input": stdin}
    return subprocess.run(call, check=False, cwd=folder, env=environment, **options)


def lines_of(block: str) -> list[str]:
    """Return the parts of a block that may be run one after the other: its lines, if each of them runs tfperf."""
    lines = [line for line in block.splitlines() if line.strip()]
    return lines if all("tfperf " in line and not line.endswith("\\") for line in lines) else [block]


def arguments_of(line: str) -> list[str]:
    """Return the arguments of a line that is `tfperf ...` and needs no shell, else nothing.

    Help has another width in a process of its own, and other options after tests of single commands.
    """
    words = [*shlex.shlex(line, posix=True, punctuation_chars=True)]
    needs_shell = any(set(word) <= set("();<>|&") for word in words) or set("$`\\") & set(line)
    if words[:1] != ["tfperf"] or needs_shell or "--help" in words:
        return []
    return shlex.split(line, comments=True)[1:]


_EACH_A_FORK = """
import json, os, sys
from tfperf.__main__ import run
import tfperf.cli
for words in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if not (child := os.fork()):
        sys.argv = words
        run()
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(f"\x1c{code}\x1d", end="", flush=True)
"""


@cache
def helps() -> dict[str, tuple[int, str]]:
    """Return what each command of the pages that ends in --help says: in processes that share the start of Python."""
    commands = sorted(set(re.findall(r"<!-- output: (tfperf [a-z -]*--help) -->", "".join(map(read, PAGES)))))
    words = json.dumps([command.split() for command in commands])
    done = shell(f"python -c {shlex.quote(_EACH_A_FORK)} {shlex.quote(words)}", ROOT)
    assert not done.stderr, done.stderr
    parts = [part.rpartition("\x1c") for part in done.stdout.split("\x1d")[:-1]]
    return {command: (int(code), text) for command, (text, _, code) in zip(commands, parts, strict=True)}


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def follow(block: str, folder: Path) -> tuple[int, str, str]:
    """Do what a page says: return exit code, stdout and stderr. A process for each `tfperf` would take most time."""
    stdout, stderr = "", ""
    for command in lines_of(block):
        first, pipe, rest = (command if "||" not in command else "").partition(" | ")
        if arguments := arguments_of(first):
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                result = CliRunner().invoke(main, arguments, env={"COLUMNS": "80"}, catch_exceptions=False)
            code, out, err = result.exit_code, result.stdout, result.stderr
            if pipe:
                filtered = shell(rest, folder, out)
                code, out, err = filtered.returncode, filtered.stdout, err + filtered.stderr
        else:
            done = shell(command, folder)
            code, out, err = done.returncode, done.stdout, done.stderr
        stdout, stderr = stdout + out, stderr + err
        if code:
            return code, stdout, stderr
    return 0, stdout, stderr


# --- generated parts ---


def output(command: str) -> str:
    code, stdout, stderr = (*helps()[command], "") if command.endswith("--help") else follow(command, ROOT)
    assert (code, stderr) == (0, ""), command
    return f"```text\n$ {command}\n{stdout.rstrip()}\n```\n"


def markdown(heads: str, rows: Iterable[str]) -> str:
    """Return a table of lines without the bars at their ends."""
    lines = (heads, "---|" * heads.count("|") + "---", *rows)
    return "".join(f"| {line} |\n" for line in lines).replace("| ---", "|---", 1).replace("--- |", "---|", 1)


def column_table(columns: Iterable[Column]) -> str:
    return markdown("column | unit | meaning", (f"`{each.key}` | {each.unit} | {each.meaning}" for each in columns))


def priorities(names: str) -> str:
    words = names.split()
    ranked = [[kind.name.lower() for kind in PRIORITY[name]] for name in words]  # type: ignore[index]
    rows = enumerate(zip_longest(*ranked, fillvalue=""), start=1)
    return markdown(f"| {' | '.join(words)}", (f"{rank} | {' | '.join(row)}" for rank, row in rows))


def tables_of_sections(_: str) -> str:
    """Return a heading, what there is to know, and the columns of each table; those with the same columns together."""
    parts = []
    for columns, tables in itertools.groupby(SECTION_TABLES.values(), lambda table: table.columns):
        same = list(tables)
        heading = " and ".join(f"{table.name}.csv" for table in same)
        details = "\n\n".join(table.details for table in same if table.details)
        parts.append("\n".join([f"## {heading}", "", *([details, ""] if details else []), column_table(columns)]))
    return "\n".join(parts)


def sections(_: str) -> str:
    """Return a row for each section: its question is the docstring of its folder."""
    rows = []
    for name in OURS:
        question = str(import_module(f"tfperf.sections.{name}").__doc__).partition(": ")[2]
        rows.append(f"`{name}` | {question} | " + (f"[{page_of(name)}]({page_of(name)})" if page_of(name) else ""))
    return markdown("section | contents | page", rows)


def tables_of_results(_: str) -> str:
    """Return a row for each section: the table that `.table` of its result is."""
    analysis = tfperf.load(SAMPLES / "input_bound")
    homes = {name: getattr(analysis[name], "home", ("", "")) for name in OURS if find_section(name).tables}
    return markdown("section | `.table`", (f"`{name}` | `{table}`" for name, (_, table) in homes.items()))


def action_table(_: str) -> str:
    """Return a row for each change that takes a share of a cost away."""
    saving = ((code, *advice.saves, advice.assumption) for code, advice in ADVICE.items() if advice.saves[1])
    rows = (f"`{code}` | {100 * least:.0f} to {100 * most:.0f}% | {text}" for code, least, most, text in saving)
    return markdown("action | share of the cost that it saves | assumption", rows)


def cause_table(_: str) -> str:
    rows = (f"`{code}` | {cause.text} | {cause.taken_from}" for code, cause in CAUSE_MEANINGS.items())
    return markdown("code | cause | source of the number", rows)


def source_table(_: str) -> str:
    rows = (f"`{name}` | {source.step} | {source.confidence}" for name, source in STEP_SOURCES.items())
    return markdown("`step_source` | step | confidence", rows)


def glossary(_: str) -> str:
    """Return a table for each part of the glossary."""
    tables = {title: (" | ".join(term) for term in terms.items()) for title, terms in glossary_terms().items()}
    return "\n".join(f"## {title}\n\n{markdown('term | meaning', rows)}" for title, rows in tables.items())


def of_shared_trace(name: str) -> str:
    """Return the first screen of a trace that is no part of the project."""
    code, stdout, stderr = follow(f"tfperf analyze {Path(name).name}", (TRACES / name).parent)
    assert (code, stderr) == (0, ""), name
    return f"```text\n$ tfperf analyze {Path(name).name}\n{stdout.rstrip()}\n```\n"


def public_names(names: str) -> str:
    """Return a row for each public name; on the site, its docstring stands there."""
    summaries = {name: str(attrgetter(name)(tfperf).__doc__).split("\n\n")[0] for name in names.split()}
    rows = (f"`tfperf.{name}` | {' '.join(summary.split())}" for name, summary in summaries.items())
    return markdown("name | description", rows)


def rule_catalogue(device: str) -> str:
    """Return what each rule of a device is."""
    return "\n".join(
        f"""### {rule.id}: {rule.title}

*Finds* ({rule.level}): {rule.when}.

*Advice:* {rule.advice}. *Unless:* {rule.unless}. *Reads:* {rule.needs}.

> {rule.says} ({rule.source})
"""
        for rule in map(RULES.__getitem__, RULES)
        if rule.device == device
    )


MAKERS: dict[str, Callable[[str], str]] = {
    "shared": of_shared_trace,
    "actions": action_table,
    "causes": cause_table,
    "glossary": glossary,
    "sources": source_table,
    "output": output,
    "columns": lambda name: column_table(TABLES[name]),
    "results": tables_of_results,
    "tables": tables_of_sections,
    "priorities": priorities,
    "sections": sections,
    "names": public_names,
    "rules": rule_catalogue,
}
_PART = re.compile(rf"<!-- ({'|'.join(MAKERS)}): (.*?) -->\n.*?<!-- end -->", re.DOTALL)


def refreshed(page: str) -> str:
    def made(part: re.Match[str]) -> str:
        if part[1] == "shared" and not TRACES.exists():
            return part[0]
        return f"<!-- {part[1]}: {part[2]} -->\n{MAKERS[part[1]](part[2])}<!-- end -->"

    return _PART.sub(made, page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_parts_are_what_the_program_says(page: Path, compare_gold: Callable[[Path, str], None]) -> None:
    compare_gold(page, refreshed(page.read_text(encoding="utf-8")))


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    navigation = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert {page.name for page in ROOT.glob("docs/*.md")} - {"README.md"} <= {*navigation}


def test_every_command_is_on_the_page_of_commands() -> None:
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    commands = main.list_commands(click.Context(main))
    assert re.findall(r"^## tfperf ?(.*)$", page, re.MULTILINE) == ["", *commands]


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    named = {name for names in re.findall("<!-- names: (.*?) -->", page) for name in names.split()}
    assert {name.partition(".")[0] for name in named} == set(tfperf.__all__) - {"__version__"}


def test_every_csv_file_is_on_the_page_of_csv_files(every_report: list[Report]) -> None:
    seen = set()
    for report in every_report:
        for name, text in csv_files(report).items():
            stem = Path(name).stem
            assert text.split("\n")[0].rstrip("\r").split(",") == [column.key for column in TABLES[stem]]
            seen.add(stem)
    assert seen == set(SECTION_TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_units_are_in_the_names_of_columns(table: str) -> None:
    for column in TABLES[table]:
        assert f"_{column.key}".endswith("_ms") == (column.unit == "ms"), column
        assert column.key.endswith("percent") == (column.unit == "%"), column
        assert ("_bytes" in column.key) == (column.unit == "bytes"), column
        assert column.key.endswith("_us") == (column.unit == "us"), column
        assert column.meaning


# --- the JSON document ---


def every_kind_of_trace(folder: Path) -> list[Path]:
    """Logdirs that between them make every table and every null: samples, hosts, a GPU, a pause, no steps, XLA."""
    gpu = plane(
        "/device:GPU:0",
        line("Stream #1", *(event("gemm", 1000 * n + 500, 300, correlation_id=n) for n in range(3))),
        line("Stream #2", event("MemcpyH2D", 100, 50, memcpy_details="size:1024 dest:0 async:1")),
    )
    marked = [event("train", 1000 * n, 1000, step_num=n) for n in range(3)]
    fetches = [event("IteratorGetNextOp::DoCompute", 1000 * n, 200) for n in range(3)]
    phases = [
        event("train", 0, 10, step_num=0),
        event("train", 10, 10, step_num=1),
        event("eval", 500, 10, step_num=0),
        event("eval", 510, 10, step_num=1),
        event("gradient_tape/x:MatMul", 1, 1),
        event("gradient_tape/x:MatMul", 11, 1),
    ]
    made = {
        "two": {"a": space(host(*marked, *fetches), gpu, plane("/device:GPU:1")), "b": space(host(*marked))},
        "gpu": {"a": space(host(*marked, *fetches), gpu)},
        "one": {"a": space(host(marked[0]))},
        "damaged": {"a": space(host(*marked, event("work", 5, -1)))},
        "phases": {"a": space(host(*phases))},
        "server": {"a": space(server())},
        "missing": {"a": space(host(*marked)), "b": b""},
        "python": {"a": space(host(event("$train.py:9 load", 0, 9), event("$time sleep", 1, 5)))},
        "pipelines": {
            "a": space(
                plane(
                    "/host:CPU",
                    *(line(name, iterator_call("Root", begin, 90, begin + 1)) for begin, name in enumerate("ab")),
                )
            )
        },
        "xla": {"a": space(host(event("dot.1", 0, 5, hlo_op="dot.1", program_id=7)))},
        "jax": {"a": space(host(*jax.call("step", 0, 90), *jax.call("step", 100, 90)))},
        "roofline": {"a": space(_tpu())},
        "host_memory": {"a": offload_tpu()},
        "regions": {"a": tpu_twin()},
        "none": {"a": space(host(event("MatMul:MatMul", 0, 10)))},
        "late": {"a": host_of_job([0] * 4, [20_000] * 4), "b": host_of_job([20_000] * 4, [20_000] * 4)},
        "layers": {
            "a": space(
                host(*(event(f"layer_{n}/A:A", 10 * n, 5) for n in range(2))),
                plane("/device:GPU:0", line("Stream", *(event("k", n, 1, tf_op=f"layer_{n}/A:A") for n in range(2)))),
            )
        },
    }
    samples = sorted(path for path in (folder / "sample_traces").iterdir() if (path / "plugins").is_dir())
    return [*samples, *(logdir_of(folder / name, **hosts) for name, hosts in made.items())]


def _tpu() -> Plane:
    """A core that states its peaks and the work of an instruction."""
    text = "%dot.1 = bf16[8] dot(bf16[8] %p)"
    stats = {"program_id": 7, "flops": 100, "bytes_accessed": 100, "hlo_category": "dot"}
    peaks = {"peak_teraflops_per_second": 1.0, "peak_hbm_bw_gigabytes_per_second": 1.0}
    return plane("/device:TPU:0", line("XLA Ops", event(text, 0, 5)), stats=peaks, name_stats={text: stats})


@pytest.fixture(scope="module")
def every_analysis(tmp_path_factory: pytest.TempPathFactory) -> list[tfperf.Analysis]:
    """What each of them says; several tests look at it."""
    folder = tmp_path_factory.mktemp("every")
    shutil.copytree(SAMPLES, folder / "sample_traces")
    return [tfperf.load(path) for path in every_kind_of_trace(folder)]


@pytest.fixture(scope="module")
def every_report(every_analysis: list[tfperf.Analysis]) -> list[Report]:
    return [analysis.report() for analysis in every_analysis]


NAMED = {"kinds": "KIND", "other_step_kinds": "KIND", "sections": "SECTION", "facts": "FACT", "tables": "TABLE"}
"""Objects whose keys depend on the report, and what the page calls such a key."""


def leaves(value: Any, path: str = "", called: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key of a document as the page writes it, with the type of its value."""
    if isinstance(value, dict):
        for key, item in value.items():
            shown = called or key
            yield from leaves(item, f"{path}.{shown}" if path else shown, NAMED.get(key, "") if not called else "")
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, f"{path}[]", "COLUMN" if path.endswith("rows") else "")
    else:
        yield path, type_name(value)


def type_name(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names[type(value)]


def documented_keys(part: str) -> dict[str, set[str]]:
    page = (ROOT / "docs" / "json-format.md").read_text(encoding="utf-8")
    table = page.split(f"<!-- checked: {part} -->")[1].split("\n## ")[0].split("<!-- checked")[0]
    rows = re.findall(r"^\| `(.*?)` \| (.*?) \|", table, re.MULTILINE)
    return {key: set(re.split(r", | or ", types)) for key, types in rows}


def kinds_of(documents: Iterable[Any]) -> dict[str, set[str]]:
    """Return the keys of documents with the types of their values."""
    found: dict[str, set[str]] = {}
    for document in documents:
        for key, kind in leaves(document):
            found.setdefault(key, set()).add(kind)
    return found


def test_the_page_of_the_json_document_has_every_key_and_type(every_report: list[Report]) -> None:
    found = kinds_of(json.loads(render(report, "json")) for report in every_report)
    documented = documented_keys("report")
    assert found.keys() == documented.keys()
    for key, kinds in found.items():
        allowed = documented[key]
        assert {"number" if kind == "integer" and "number" in allowed else kind for kind in kinds} == allowed, key


def test_the_page_of_the_json_document_has_the_keys_of_a_list(samples: Path, run_tfperf: Callable[..., Result]) -> None:
    found = json.loads(run_tfperf("analyze", samples, "--list", "--format", "json").stdout)
    for key, kinds in documented_keys("list").items():
        values = [found]
        for step in re.findall(r"\w+|\[\]", key):
            values = [item for value in values for item in value] if step == "[]" else [v[step] for v in values]
        assert {type_name(value) for value in values} == kinds - {"null"}, key
    assert found["source"].keys() | found["summary"].keys() == {"folder", "run_count"}


def test_the_page_of_the_json_document_has_the_keys_of_a_capture() -> None:
    path = Path("/logs/r/a_1.xplane.pb")
    kept = Captured(worker="a:1", path=path, size_bytes=10, event_count=2, overhead_percent=1.5, start_time_us=5)
    failed = Captured(worker="b:1", reason="busy", message="b:1 is busy")
    reports = [capture_report(path.parent, some, {path: 3}) for some in ([kept, kept], [failed])]
    of_reports = kinds_of(json.loads(render(report, "json")) for report in reports)
    found = {key.replace("SECTION", "capture").replace("TABLE", "captured"): of for key, of in of_reports.items()}
    documented = documented_keys("capture")
    row = "sections.capture.tables.captured.rows[]"
    assert {key for key in found if key.startswith(("summary.", "source."))} == {
        key for key in documented if not key.startswith("sections.")
    }
    assert {f"{row}.{column.key}" for column in CAPTURED_COLUMNS} == {key for key in documented if key.startswith(row)}
    both = documented.keys() & found.keys()
    assert {key: found[key] for key in both} == {key: documented[key] for key in both}


def test_the_page_of_the_json_document_has_the_keys_of_a_doctor(run_tfperf: Callable[..., Result]) -> None:
    found = json.loads(run_tfperf("doctor", "--format", "json").stdout)
    (first, *_) = found["sections"]["doctor"]["tables"]["checks"]["rows"]
    keys = {f"summary.{key}" for key in found["summary"]}
    assert documented_keys("doctor").keys() == keys | {f"sections.doctor.tables.checks.rows[].{key}" for key in first}


def test_the_page_of_the_json_document_has_keys_of_a_check(
    workplace: Path, samples: Path, run_tfperf: Callable[..., Result]
) -> None:
    asked = ("--max-input-bound", "1%", "--format", "json")
    answers = [run_tfperf("check", path, *asked) for path in (samples / "input_bound", *every_kind_of_trace(workplace))]
    documents = (json.loads(answer.stdout) for answer in answers)
    assert kinds_of({"summary": document["summary"]} for document in documents) == documented_keys("check")


def test_the_page_of_the_json_document_has_keys_of_a_diff(samples: Path, run_tfperf: Callable[..., Result]) -> None:
    runs = (samples / "input_fixed", samples / "input_bound")
    document = json.loads(run_tfperf("diff", *runs, "--format", "json").stdout)
    found = kinds_of([{key: document[key] for key in ("summary", "comparison")}])
    documented = documented_keys("diff")
    assert documented.keys() == found.keys()
    assert [key for key, kinds in found.items() if not kinds <= documented[key]] == []


def test_the_tables_of_a_comparison_are_on_its_page(samples: Path, run_tfperf: Callable[..., Result]) -> None:
    page = (ROOT / "docs" / "diff.md").read_text(encoding="utf-8")
    documented = [
        name.strip()
        for names in re.findall(r"^### (.*)\n\n<!-- columns: \w+ -->", page, re.MULTILINE)
        for name in names.split(",")
    ]
    assert documented == [*diff_tables.COLUMNS]
    runs = (samples / "input_fixed", samples / "input_bound")
    sections = json.loads(run_tfperf("diff", *runs, "--format", "json").stdout)["sections"]
    tables = {name: table for section in sections.values() for name, table in section["tables"].items()}
    assert {"runs", "category_changes", "host_ops_changes", "stages_changes"} <= tables.keys() <= {*documented}
    for name, table in tables.items():
        assert [column["key"] for column in table["columns"]] == [column.key for column in TABLES[name]]


def test_the_json_document_says_its_format(workplace: Path) -> None:
    page = (ROOT / "docs" / "json-format.md").read_text(encoding="utf-8")
    newest = re.findall(r"^\| (\d+) \| [\d.]+ \|", page, re.MULTILINE)[-1]
    assert json.loads(render(tfperf.load(workplace / "logs").report(), "json"))["format"] == int(newest)


def call(start: float, duration: float) -> Event:
    return event("f", start, duration, tf_function_call=ref("notTraced-nonXla"), tracing_count=1)


def fetch(start: float) -> Event:
    return event("IteratorGetNextOp::DoCompute", start, 5)


TRACE_OF_SOURCE: dict[str, tuple[Plane, ...]] = {
    "markers": (host(*(event("train", 100 * n, 90, step_num=n) for n in range(4))),),
    "device steps": (plane("/device:TPU:0", line("Steps", *(event(str(n), 100 * n, 95) for n in range(4)), id=1)),),
    "stored groups": (host(*(event("op", 100 * n, 60, group_id=n, step_name=f"train {n}") for n in range(4))),),
    "program runs": (
        plane("/device:TPU:0", line("XLA Modules", *(event("jit_step(1)", 100 * n, 90) for n in range(5)))),
        jax.programs({1: ("jit_step", (jax.GRADIENT,))}),
    ),
    "jitted calls": (
        jax.programs({1: ("jit_step", (jax.GRADIENT,))}),
        host(*(e for n in range(5) for e in jax.call("step", 100 * n, 90))),
    ),
    "tf.function calls": (host(*(e for n in range(5) for e in (call(100 * n, 90), fetch(100 * n + 10)))),),
    "tf.data fetches inside a call": (host(call(0, 500), *(fetch(100 * n) for n in range(5))),),
    "executor runs": (host(*(event("FunctionRun", 100 * n, 50, id=n) for n in range(4))),),
    "tf.data fetches": (host(*(fetch(100 * n) for n in range(5))),),
    "eager ops": (
        host(*(event("EagerExecute", 10 * n, 9, is_func=0, eager_op=ref("abcdefgh"[n % 8])) for n in range(32))),
    ),
    "device modules": (
        plane("/device:GPU:0", line("XLA Modules", *(event("jit", 90 * n, 80) for n in range(4)), id=1)),
    ),
    "groups": (
        host(*(event("train", 100 * n, 90, step_num=n, _r=1) for n in range(4)), event("MatMul:MatMul", 10, 50)),
    ),
    "none": (host(event("MatMul:MatMul", 0, 10)),),
}
"""A trace for each way to find steps; `groups` is that of attribution tensorflow."""


def test_every_way_to_find_steps_is_on_the_page_of_the_architecture(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "architecture-reasons.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `(.*?)` \|.*\| (.*?) \|$", page.split("| `step_source` |")[1].split("\n\n")[0], re.MULTILINE
    )
    assert [source for source, _ in rows] == list(TRACE_OF_SOURCE)
    for number, (source, confidence) in enumerate(rows):
        logdir = logdir_of(tmp_path / str(number), a=space(*TRACE_OF_SOURCE[source]))
        steps = tfperf.load(logdir, attribution="tensorflow" if source == "groups" else "corrected")["steps"].steps
        assert steps.source == source
        assert steps.confidence in confidence.split()[0].rstrip(",")


def test_samples_have_no_other_way_to_find_steps(every_analysis: list[tfperf.Analysis]) -> None:
    for analysis in every_analysis:
        others = [way for way in get_args(Attribution) if way != analysis.attribution]
        by_others = [tfperf.load(analysis.run.folder, attribution=way, sections=["steps"]) for way in others]
        for each in (analysis, *by_others):
            assert each["steps"].steps.source in TRACE_OF_SOURCE


# --- examples ---


def blocks(language: str) -> list[Any]:
    """Return the examples in a language, each with a name that says where it stands."""
    found = []
    for page in PAGES:
        for match in _FENCE.finditer(text := page.read_text(encoding="utf-8")):
            if match[1] == language:
                found.append(pytest.param(match[2], id=f"{page.name}:{text[: match.start()].count(chr(10)) + 1}"))
    return found


@pytest.mark.usefixtures("asked_here")
@pytest.mark.parametrize("block", blocks("sh"))
def test_shell_example_runs(block: str, workplace: Path) -> None:
    code, _, stderr = follow(block, workplace)
    assert (code, "Traceback" in stderr) == (0, False), stderr


def runs_tensorflow(block: str) -> bool:
    return any(word in block for word in ("tensorflow", "tf.", "train_step", "model.fit"))


@pytest.mark.usefixtures("asked_here")
@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index")  # so dask calls pandas
@pytest.mark.parametrize("block", [block for block in blocks("python") if not runs_tensorflow(str(block.values[0]))])
def test_python_example_runs(
    block: str, workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A warning is an error, as in all tests."""
    monkeypatch.chdir(workplace)
    if '"dataset/' in block:
        tfperf.write_parquet("logs", "dataset")
    Path("example.py").write_text(block)
    runpy.run_path("example.py", run_name="__main__")
    assert capsys.readouterr().out
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


_PRELUDE = """
import keras, tensorflow as tf
dataset = tf.data.Dataset.from_tensor_slices((tf.ones((80, 4)), tf.ones((80, 1)))).batch(2)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
train_step = tf.function(lambda batch: tf.reduce_sum(model(batch[0])))
"""


_IN_TURN = """
import os, pathlib, runpy, sys, traceback

for folder in sys.argv[1:]:
    os.chdir(folder)
    try:
        runpy.run_path("example.py")
        pathlib.Path("ended").touch()
    except Exception:
        traceback.print_exc()
"""


def profiling_examples() -> dict[str, str]:
    """Return the examples that need a job, by their places."""
    return {str(block.id): text for block in blocks("python") if runs_tensorflow(text := str(block.values[0]))}


@pytest.fixture(scope="module")
def examples_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Run each example in a folder of its name; all in one process, because TensorFlow takes seconds to start."""
    base = tmp_path_factory.mktemp("examples")
    for place, block in profiling_examples().items():
        (base / place).mkdir()
        (base / place / "example.py").write_text(_PRELUDE + block)
    return base, run_tensorflow("-c", _IN_TURN, *(base / place for place in profiling_examples()))


@needs_tensorflow
@pytest.mark.parametrize("place", profiling_examples())
def test_example_with_a_job_profiles_twenty_steps_or_collects_a_graph(
    place: str, examples_run: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    folder, done = examples_run
    assert (folder / place / "ended").exists(), done.stderr
    if place.startswith("tfprof.md"):
        assert (folder / place / "collected").exists() == ("Collector" in profiling_examples()[place])
    else:
        assert len(tfperf.load(folder / place / "logs")["steps"].steps) == 20


@pytest.mark.parametrize(("sample", "code"), [("input_fixed", 0), ("input_bound", 3), ("", 1)])
def test_the_first_gate_of_the_page_fails_bad_jobs(sample: str, code: int, workplace: Path) -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    gate = re.findall(r"^tfperf check .*$", page, re.MULTILINE)[0]
    shutil.rmtree(workplace / "logs")
    if sample:
        shutil.copytree(SAMPLES / sample, workplace / "logs")
    else:
        logdir_of(workplace, a=space(host(event("MatMul:MatMul", 0, 10))))
    exit_code, stdout, stderr = follow(gate, workplace)
    assert exit_code == code, stderr
    assert ("FAIL: max-input-bound 20%" in stdout) == (code == 3)
    assert ("UNKNOWN: max-input-bound 20%" in stdout) == (code == 1)


# --- the rest of a page ---


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_exist(page: Path) -> None:
    rules = re.findall(r"^([a-z ]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)) <= targets


def test_extras_named_in_pages_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(r"^(\w+) = \[", project.split("[project.optional-dependencies]")[1], re.MULTILINE)
    named = {name for page in PAGES for name in re.findall(r'"\.\[(\w+)\]"', page.read_text(encoding="utf-8"))}
    assert named
    assert named <= set(extras)


def test_the_changes_begin_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[0] == tfperf.__version__
