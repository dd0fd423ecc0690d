"""Runs that lie seconds apart and hold different tasks are said to belong together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from builders import event, host, space
from click.testing import Result

from tfperf.trace.logdir import find_runs, runs_of_one_cluster


def logdir(folder: Path, **hosts: str) -> Path:
    """A logdir with a run for each second (`s05="vm_worker-0 vm_worker-1"`), of these hosts."""
    for second, names in hosts.items():
        run = folder / "plugins" / "profile" / f"2026_11_24_12_00_{second[1:]}"
        run.mkdir(parents=True)
        for name in names.split():
            (run / f"{name}.xplane.pb").write_bytes(space(host(event("train", 0, 10, step_num=1))))
    return folder


def said(folder: Path) -> list[str]:
    return list(runs_of_one_cluster(find_runs(folder)))


def test_tasks_that_did_not_agree_on_a_run(tmp_path: Path) -> None:
    path = logdir(tmp_path, s05="a_worker-0 a_worker-1", s07="b_worker-2", s09="b_ps-0")
    (line,) = said(path)
    assert line.startswith(
        "3 runs within 4 s hold different tasks (worker-0, worker-1, worker-2, ps-0), perhaps of one"
    )
    assert line.endswith("--run 2026_11_24_12_00_05 --run 2026_11_24_12_00_07 --run 2026_11_24_12_00_09.")


def test_many_are_not_all_named(tmp_path: Path) -> None:
    path = logdir(tmp_path, **{f"s{number:02}": f"vm_rank-{number}" for number in range(10)})
    (line,) = said(path)
    assert "10 runs within 9 s hold different tasks (rank-0, rank-1, rank-2, rank-3, ...)" in line
    assert "--run 2026_11_24_12_00_00 --run ... (each of them)" in line


def test_a_task_that_comes_again_starts_another_group(tmp_path: Path) -> None:
    path = logdir(tmp_path, s01="vm_worker-0", s02="vm_worker-1", s31="vm_worker-1", s32="vm_worker-0")
    first, second = said(path)
    assert "_01 --run" in first
    assert "_31 --run" in second


def test_hosts_that_name_no_task_may_be_of_anything(tmp_path: Path) -> None:
    assert said(logdir(tmp_path, s01="a", s02="b", s03="vm_worker-0", s04="localhost_6009", s05="vm_worker-1")) == []


def test_far_apart(tmp_path: Path) -> None:
    path = logdir(tmp_path, s01="vm_worker-0")
    (path / "plugins/profile/2026_11_24_12_00_01").rename(path / "plugins/profile/2026_11_24_11_58_59")
    assert said(logdir(path, s01="vm_worker-1")) == []


def test_what_the_list_says_can_be_typed(run_tfperf: Callable[..., Result], tmp_path: Path) -> None:
    path = logdir(tmp_path, s05="vm_worker-0", s07="vm_worker-1")
    listed = run_tfperf("analyze", path, "--list")
    words = " ".join(listed.stdout.split())
    options = words.partition("To read them as one: ")[2].partition(".")[0].split()
    assert options == ["--run", "2026_11_24_12_00_05", "--run", "2026_11_24_12_00_07"]
    report = run_tfperf("analyze", path, *options, "--format", "json")
    assert report.exit_code == 0, report.stderr
    assert json.loads(report.stdout)["source"]["hosts"] == ["vm_worker-0", "vm_worker-1"]
