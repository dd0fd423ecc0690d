"""What is kept of a host where there are many: no more of a large program than of a small one, and the same sums."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from builders import Event, Line, event, gpu, line, plane, ref, space
from msgspec.structs import replace
from sections.memory.made import alloc

import tfperf
from tfperf.analysis.load import ALWAYS, Analysis, analyze_host, assemble
from tfperf.analysis.many_hosts import MANY_HOSTS, MOST_ROWS
from tfperf.analysis.parallel.engine import analyze_packed, lacking_rows, shortened
from tfperf.analysis.registry import OURS, HostResults, default_sections, find_section, with_dependencies
from tfperf.report.render import FORMATS, RenderOptions, render
from tfperf.trace.logdir import HostFile

SMALL, LARGE = 150, 450
POINTS = 1000
"""So many points of memory over time are kept of any host."""
MOST = 5
ALL = [name for name in OURS if find_section(name).analyze is not None]
SUMMED = {
    "host_ops": ("occurrences", "total_ms", "self_ms"),
    "device_ops": ("occurrences", "total_ms", "self_ms"),
    "kernels": ("occurrences", "total_us"),
    "hlo_ops": ("runs", "total_ms"),
    "hlo_modules": ("runs", "total_ms"),
    "tf_functions": ("calls", "self_ms"),
    "eager_ops": ("calls", "total_ms"),
    "python_functions": ("calls", "self_ms"),
    "input_ops": ("count", "self_ms"),
    "memory_alive": ("total_bytes",),
}
"""Columns that add up to the same whatever rows there are."""


def _threads(count: int) -> list[Line]:
    """So many different ops, functions of all kinds, tensors and pipelines; and as many threads."""
    at = [10.0 * number for number in range(count)]

    def events(named: Any) -> list[Event]:
        return [named(number, start) for number, start in enumerate(at)]

    steps = [event("train", 0, 5 * count, step_num=0), event("train", 5 * count, 5 * count, step_num=1)]
    ops = events(lambda n, start: event(f"layer_{chr(97 + n % 26)}{n}x/MatMul:MatMul", start + 1, 2))
    functions = events(lambda n, start: event(f"f_{n}", start + 1, 3, tf_function_call=ref("traced-nonXla")))
    eager = events(lambda n, start: event("EagerExecute", start + 5, 1, is_func=0, eager_op=ref(f"Op{n}")))
    frames = events(lambda n, start: event(f"$train.py:{n} load{n}", start, 4))
    most = 256 * (POINTS + count)
    tensors = []
    for n, used in enumerate(range(256, most + 1, 256)):
        stats = {"allocation_bytes": 256, "bytes_available": most - used, "tf_op": ref(f"layer_{n}x/MatMul")}
        tensors.append(alloc(5.0 * n, 200, used, 1 + n, **stats))
    iterators = events(lambda n, start: event(f"Iterator::Map{n}", start, 3, id=n + 1))
    return [
        line("python", *steps, *ops, id=1),
        line("functions", *functions, *eager, id=2),
        line("frames", *frames, id=3),
        line("tensors", *tensors, id=4),
        line("input", *iterators, id=5),
        *(line(f"pool/{number}", event("work", 0, 1 + number), id=10 + number) for number in range(count)),
    ]


def _kernel(number: int) -> Event:
    """A kernel of an instruction and a program of its own."""
    details = ref(f"regs:{number} grid:1,1,1 block:1,1,1")
    program = {"hlo_op": ref(f"fusion.{number}"), "hlo_module": ref(f"jit_{number}"), "program_id": number}
    return event(f"kernel_{number}", 10 * number, 10, kernel_details=details, **program)


def large_host(folder: Path, count: int) -> HostFile:
    """A host with so many of each."""
    path = folder / f"h{count}.xplane.pb"
    path.write_bytes(space(plane("/host:CPU", *_threads(count)), gpu(*map(_kernel, range(count)))))
    return HostFile(f"h{count}", path)


def packed_run(file: HostFile, hosts: int) -> Analysis:
    """A run of so many hosts, all with this trace."""
    run = tfperf.load(file.path, sections=["steps"])
    names = with_dependencies((*ALWAYS, *default_sections()))
    host = analyze_packed(partial(analyze_host, sections=names), file)
    return replace(run, hosts=(host,) * hosts, sections=names)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[int, HostResults]:
    folder = tmp_path_factory.mktemp("large")
    names = with_dependencies(ALL)
    analyze = partial(analyze_host, sections=names, host_count=MANY_HOSTS + 1)
    return {count: analyze(large_host(folder, count)) for count in (SMALL, LARGE)}


def pickled(result: Any) -> int:
    return len(pickle.dumps(result, pickle.HIGHEST_PROTOCOL))


@pytest.mark.parametrize("section", ALL)
def test_what_is_kept_does_not_grow_with_the_program(section: str, results: dict[int, HostResults]) -> None:
    small, large = (shortened(of_host.results, MOST)[section] for of_host in results.values())
    # Numbers take a few bytes more as they grow.
    assert pickled(large) < 1.1 * pickled(small) + 200


@pytest.mark.parametrize("table", SUMMED)
def test_sums_stay(table: str, results: dict[int, HostResults], tmp_path: Path) -> None:
    """One row stands for all others."""
    whole = results[LARGE]
    run = tfperf.load(large_host(tmp_path, 1).path, sections=["steps"])
    before, after = (
        replace(run, hosts=(each,), sections=tuple(whole.results)).table(table)
        for each in (whole, replace(whole, results=shortened(whole.results, MOST)))
    )
    assert before is not None
    assert after is not None
    assert len(next(iter(before.values()))) >= LARGE
    assert len(next(iter(after.values()))) <= 2 * MOST + 1
    for key in SUMMED[table]:
        assert sum(after[key]) == pytest.approx(sum(before[key]))


def test_the_report_says_what_lacks_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = large_host(tmp_path, 30)
    assert packed_run(file, MANY_HOSTS + 1).hosts[0].shortened == ()
    monkeypatch.setattr("tfperf.analysis.parallel.engine.shortened", partial(shortened, most=29))
    run = packed_run(file, MANY_HOSTS + 1)
    lacking = run.hosts[0].shortened
    assert {"functions", "host_threads", "kernels", "memory", "ops", "python", "xla"} <= {*lacking}
    report = assemble(run)
    (finding,) = (finding for finding in report.sections[0].findings if finding.code == "first_rows")
    first, *_ = sorted(lacking)
    assert f"only the largest {MOST_ROWS:,} rows of each host are kept ({first}, " in finding.text
    kernels = next(table for section in report.sections for table in section.tables if table.name == "kernels")
    assert kernels.total_rows == 30
    assert "(other kernels)" in kernels.data["kernel"]


@pytest.mark.parametrize("format_name", FORMATS)
def test_short_results_are_shown_in_all_formats(
    format_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfperf.analysis.parallel.engine.shortened", partial(shortened, most=MOST))
    run = packed_run(large_host(tmp_path, 30), 2)
    assert "(other kernels)" in render(assemble(run), format_name, RenderOptions(view="sections"))


def test_where_all_rows_are_kept_results_are_what_they_were(results: dict[int, HostResults]) -> None:
    before = results[SMALL].results
    after = shortened(before)
    assert lacking_rows(before, after) == ()
    assert [name for name in before if after[name] is not before[name]] == []


def test_what_several_functions_call_of_each_other_is_no_total(results: dict[int, HostResults]) -> None:
    times = shortened(results[SMALL].results, MOST)["python"]
    assert [time.function for time in times.functions if time.totals_ps is None] == ["(other functions)"]
