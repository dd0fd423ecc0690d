"""Which profiles a path holds."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from builders import event, host, logdir_of, space
from click.testing import Result

from tfperf.base.errors import TfperfWarning, TraceNotFoundError
from tfperf.trace.logdir import HostFile, Run, choose_hosts, choose_run, find_runs, run_names, runs_of_one_cluster
from tfperf.trace.logdir import sampled as sample_hosts


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def names(runs: list[Run]) -> list[str]:
    return [run.name for run in runs]


@pytest.mark.parametrize("part", ["", "plugins", "plugins/profile", "plugins/profile/2026_01_01_00_00_00"])
def test_one_run_with_a_file_per_host_below_any_folder(part: str, tmp_path: Path) -> None:
    (run,) = find_runs(logdir_of(tmp_path, b=b"", a=b"") / part)
    assert run.name == "2026_01_01_00_00_00"
    assert [(file.host, file.path.name) for file in run.files] == [("a", "a.xplane.pb"), ("b", "b.xplane.pb")]


@pytest.mark.parametrize(("name", "host"), [("vm.xplane.pb", "vm"), ("profile.bin", "profile.bin")])
def test_a_single_file_of_any_name_is_a_run_of_one_host(name: str, host: str, tmp_path: Path) -> None:
    touch(tmp_path / "run" / name, tmp_path / "run" / "other.xplane.pb")
    (run,) = find_runs(tmp_path / "run" / name)
    assert (run.name, [file.host for file in run.files]) == ("run", [host])


def test_runs_are_ordered_by_the_time_in_their_names(tmp_path: Path) -> None:
    stamps = ["2026_03_01_00_00_00", "2025_12_31_23_59_59", "train-20260301-000001", "2026-02-28_10-00-00"]
    touch(*(tmp_path / name / "vm.xplane.pb" for name in stamps))
    assert names(find_runs(tmp_path)) == [stamps[1], stamps[3], stamps[0], stamps[2]]


def test_a_name_without_a_time_counts_by_its_files(tmp_path: Path) -> None:
    touch(*(tmp_path / name / "vm.xplane.pb" for name in ("untimed", "2001_01_01_00_00_00", "2090_01_01_00_00_00")))
    os.utime(tmp_path / "untimed" / "vm.xplane.pb", (1.7e9, 1.7e9))
    assert names(find_runs(tmp_path)) == ["2001_01_01_00_00_00", "untimed", "2090_01_01_00_00_00"]


def test_only_a_valid_time_in_the_name_counts(tmp_path: Path) -> None:
    """Numbers before it, such as a batch size, look like the start of a time as well."""
    names = ["1024_20210202-131913", "bs512_20210202_131914", "2048_2021_02_02_13_19_15", "2021-99-2021-02-02-13-19-16"]
    for seconds, name in zip(range(13, 17), names, strict=True):
        assert Run(name, tmp_path, ()).time == datetime(2021, 2, 2, 13, 19, seconds)
    touch(*(tmp_path / name / "vm.xplane.pb" for name in names[::-1]))
    assert [run.name for run in find_runs(tmp_path)] == names


@pytest.mark.parametrize("name", ["1024_11_12_13_14_15", "2026_99_99_00_00_00", "99999999999999", "0000_00_00_00_00"])
def test_an_impossible_time_in_a_name_is_not_a_time(name: str, tmp_path: Path) -> None:
    """As of a run without any: the time of the file counts."""
    touch(tmp_path / name / "vm.xplane.pb", tmp_path / "2001_01_01_00_00_00" / "vm.xplane.pb")
    os.utime(tmp_path / name / "vm.xplane.pb", (1.7e9, 1.7e9))
    assert names(find_runs(tmp_path)) == ["2001_01_01_00_00_00", name]
    os.utime(tmp_path / name / "vm.xplane.pb", (9e8, 9e8))
    assert names(find_runs(tmp_path)) == [name, "2001_01_01_00_00_00"]


def test_the_newest_run_unless_one_is_named(tmp_path: Path) -> None:
    touch(*(tmp_path / job / stamp / "vm.xplane.pb" for job in ("a", "b") for stamp in ("2026_01_01_00_00_00", "x1")))
    runs = find_runs(tmp_path)
    newest, *_ = find_runs(tmp_path / "b" / "x1")
    touch(tmp_path / "2099_11_21_12_00_00" / "vm.xplane.pb")
    assert choose_run(find_runs(tmp_path), None).name == "2099_11_21_12_00_00"
    assert choose_run(runs, str(newest.folder)) in runs
    assert choose_run(runs, str(Path("b", "2026_01_01_00_00_00"))).folder == tmp_path / "b" / "2026_01_01_00_00_00"
    with pytest.raises(TraceNotFoundError, match=r"no run is named '1'; the newest runs are: .*x1"):
        choose_run(runs, "1")


def test_several_runs_are_read_as_one(tmp_path: Path) -> None:
    touch(*(tmp_path / run / f"{host}.xplane.pb" for run in ("a", "b") for host in ("vm", f"{run}0")))
    touch(tmp_path / "c" / "vm.xplane.pb")
    runs = find_runs(tmp_path)
    both = choose_run(runs, ("a", "b"))
    assert (both.name, both.folder) == ("a + b", tmp_path)
    assert [file.host for file in both.files] == ["a0", "a/vm", "b0", "b/vm"], "no host stands for two"
    assert [file.path.parent.name for file in both.files] == ["a", "a", "b", "b"]
    assert choose_run(runs, ("a", "a")) == choose_run(runs, ["a"]) == choose_run(runs, "a")
    with pytest.raises(TraceNotFoundError, match="no run is named 'x'"):
        choose_run(runs, ("a", "x"))


def test_runs_of_one_name_are_told_apart_and_none_is_chosen_silently(tmp_path: Path) -> None:
    stamp = "2026_01_01_00_00_00"
    touch(*(tmp_path / job / "profile" / stamp / "vm.xplane.pb" for job in ("a", "b")), tmp_path / "c" / "vm.xplane.pb")
    runs = [run for run in find_runs(tmp_path) if run.name == stamp]
    assert sorted(run_names(runs)) == [str(Path(job, "profile", stamp)) for job in ("a", "b")]
    for name in (None, stamp):
        with pytest.raises(TraceNotFoundError, match=f"2 runs are named {stamp}; select one with --run: "):
            choose_run(runs, name)
    for run, name in zip(runs, run_names(runs), strict=True):
        assert choose_run(runs, name) is run
    assert run_names(find_runs(tmp_path / "a")) == [stamp]


def test_the_root_of_the_file_system_is_too_broad() -> None:
    for path in (Path("/"), Path("/.."), Path(Path.cwd().anchor)):
        with pytest.raises(TraceNotFoundError, match="is a file system root, too large to search"):
            find_runs(path)


def test_a_run_has_the_time_of_its_name_or_of_its_files(tmp_path: Path) -> None:
    touch(tmp_path / "2026_11_21_12_00_30" / "vm.xplane.pb", tmp_path / "x" / "vm.xplane.pb")
    os.utime(tmp_path / "x" / "vm.xplane.pb", (1e9, 1e9))
    times = {run.name: run.time for run in find_runs(tmp_path)}
    assert times == {"2026_11_21_12_00_30": datetime(2026, 11, 21, 12, 0, 30), "x": datetime.fromtimestamp(1e9)}
    assert Run("2026_99_99_00_00_00", tmp_path / "nowhere", ()).time is None


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://bucket/logs", "s3://bucket/logs is an address, .*; pass a string"),
        ("abc://x", "abc://x has the unknown scheme abc"),
        ("file:///data/logs", "pass the path without file://"),
    ],
)
def test_an_address_that_became_a_path_is_no_logdir(address: str, words: str) -> None:
    with pytest.raises(TraceNotFoundError, match=words):
        find_runs(Path(address))


def test_events_of_tensorboard_are_no_profile(tmp_path: Path) -> None:
    touch(tmp_path / "train" / "events.out.tfevents.1700000000.vm.1.0.v2")
    with pytest.raises(TraceNotFoundError, match=r"TensorBoard event file.*To record one, .* with tfperf run"):
        find_runs(tmp_path)


def test_hosts_are_chosen_by_name(tmp_path: Path) -> None:
    (run,) = find_runs(logdir_of(tmp_path, a=b"", b=b"", c=b""))
    assert [file.host for file in choose_hosts(run, ("c", "a")).files] == ["a", "c"]
    assert choose_hosts(run, ()) == run
    with pytest.raises(TraceNotFoundError, match="has no host named 'd'; its hosts are: a, b, c"):
        choose_hosts(run, ("a", "d"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "does not exist; pass a logdir"),
        ("", "profiles are in LOGDIR/plugins/profile/RUN/HOST"),
        pytest.param("x" * 5000, "cannot read ", id="a name that no file can have"),
        ("pipe", "is neither a file nor a folder"),
    ],
)
def test_nothing_there(name: str, words: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceNotFoundError, match=words):
        find_runs(tmp_path / name)


def unfinished(logdir: Path, name: str, *files: str) -> Path:
    folder = logdir / "plugins" / "profile" / name
    folder.mkdir()
    touch(*(folder / file for file in files))
    return folder


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ((), "empty"),
        (("vm.xplane.pb.tmp",), r"has vm.xplane.pb.tmp, but no \*.xplane.pb file"),
        (("vm.overview_page.pb", "vm.xplane.pb.part"), "has vm.overview_page.pb, but"),
    ],
)
@pytest.mark.parametrize("part", ["", "plugins", "plugins/profile"])
def test_a_newer_run_without_a_trace_is_named(files: tuple[str, ...], why: str, part: str, tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, vm=b"")
    unfinished(logdir, "2025_12_31_00_00_00", *files)  # older than the run that is read
    unfinished(logdir, "2026_01_02_00_00_00", *files)
    runs = find_runs(logdir / part)
    assert names(runs) == ["2026_01_01_00_00_00"]
    text = rf"the newest run has no profile: 2026_01_02_00_00_00 \({why}.*\); run 2026_01_01_00_00_00 is older"
    with pytest.warns(TfperfWarning, match=text):
        assert choose_run(runs, None).newer
    assert choose_run(runs, "2026_01_01_00_00_00").newer == ()


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="nothing is denied")
def test_a_newer_run_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, vm=b"")
    folder = unfinished(logdir, "2026_01_02_00_00_00", "vm.xplane.pb")
    folder.chmod(0)
    try:
        assert find_runs(logdir)[-1].newer == ("2026_01_02_00_00_00 (it cannot be read)",)
    finally:
        folder.chmod(0o700)


def test_other_folders_are_no_runs(tmp_path: Path) -> None:
    logdir = logdir_of(tmp_path, vm=b"")
    unfinished(logdir, ".2026_01_02_00_00_00")
    touch(
        logdir / "2026_01_02_00_00_00" / "checkpoint", logdir / "plugins" / "profile" / "around" / "run" / "a.xplane.pb"
    )
    assert not any(run.newer for run in find_runs(logdir))


def test_a_newer_run_without_a_name_of_a_time_counts_by_its_files(tmp_path: Path) -> None:
    folder = unfinished(logdir_of(tmp_path, vm=b""), "mine", "note.txt")
    for seconds, newer in ((1e9, 0), (2e9, 1)):
        os.utime(folder / "note.txt", (seconds, seconds))
        assert len(find_runs(tmp_path)[-1].newer) == newer


def test_many_runs_take_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder is listed once. No file is looked at where the names of runs say their times."""
    runs = tmp_path / "plugins" / "profile"
    touch(*(runs / f"2026_01_01_00_00_{second}" / "vm.xplane.pb" for second in range(10, 60)))
    for second in range(10, 60):
        unfinished(tmp_path, f"2026_01_02_00_00_{second}")
    looks: Counter[str] = Counter()

    def count(name: str) -> None:
        function = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *path, **options: (looks.update([name]), function(*path, **options))[1])

    for name in ("scandir", "stat", "lstat"):
        count(name)
    found = find_runs(tmp_path)
    assert choose_run(found, "2026_01_01_00_00_10").name == run_names(found)[0]
    assert (len(found), len(found[-1].newer)) == (50, 50)
    assert looks["scandir"] == 1 + 2 + 100
    assert looks["stat"] + looks["lstat"] < 50


def test_a_compressed_trace_is_one_of_a_host_unless_it_lies_beside_the_other(tmp_path: Path) -> None:
    touch(*(tmp_path / "run" / name for name in ("a.xplane.pb.gz", "b.xplane.pb", "b.xplane.pb.gz")))
    (run,) = find_runs(tmp_path)
    assert [(file.host, file.path.name) for file in run.files] == [("a", "a.xplane.pb.gz"), ("b", "b.xplane.pb")]


@pytest.mark.parametrize(
    "name",
    ["b.xplane.pb.part", ".b.xplane.pb.Xa3b9Z", ".b.xplane.pb.12-345.tmp", "b.xplane.pb.gz.tmp", "b.xplane.pb.6eF5b5da",
     "b.xplane.pb_.gstmp", "b.xplane.pb.zst"],
)  # fmt: skip
def test_a_host_whose_trace_is_not_finished_is_named(name: str, tmp_path: Path) -> None:
    folder = next(logdir_of(tmp_path, a=b"", c=b"").rglob("a.xplane.pb")).parent
    for file in (name, "c.xplane.pb.tmp", "notes.txt", "d.xplane.pb.bak", "a.op_stats.pb"):
        (folder / file).touch()
    (run,) = find_runs(tmp_path)
    assert [file.host for file in run.files] == ["a", "c"]
    assert [(file.host, file.path.name) for file in run.unfinished] == [("b", name)]
    assert [len(choose_hosts(run, (), (pattern,)).unfinished) for pattern in ("*", "[ac]")] == [1, 0]
    assert choose_hosts(run, ("a",)).unfinished == ()


def test_an_unfinished_copy_is_no_run(tmp_path: Path) -> None:
    folder = next(logdir_of(tmp_path, a=b"").rglob("a.xplane.pb")).parent
    copy = folder.parent / ".tfperf" / "2026_11_21" / "new"
    copy.mkdir(parents=True)
    (copy / "host1.xplane.pb").touch()
    assert [run.folder for run in find_runs(tmp_path)] == [folder]


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("vm.trace.json.gz", "a trace viewer export"),
        ("vm.pt.trace.json", "a PyTorch profile"),
        ("vm.pt.trace.json.gz", "a PyTorch profile"),
        ("vm.overview_page.pb", "a result computed by TensorFlow"),
    ],
)
def test_files_of_other_formats_are_named(file: str, words: str, tmp_path: Path) -> None:
    touch(tmp_path / "run" / file)
    with pytest.raises(TraceNotFoundError, match=f"{file} is {words}"):
        find_runs(tmp_path)


def test_the_size_of_a_file_if_it_can_be_told(tmp_path: Path) -> None:
    (run,) = find_runs(logdir_of(tmp_path, vm=b"12345"))
    assert run.files[0].size_bytes == 5
    Path(str(run.files[0].path)).unlink()
    assert run.files[0].size_bytes is None


# --- runs that lie seconds apart and hold different tasks are said to belong together ---


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
    assert line.startswith("3 runs within 4 s have different tasks (worker-0, worker-1, worker-2, ps-0), possibly")
    assert line.endswith("--run 2026_11_24_12_00_05 --run 2026_11_24_12_00_07 --run 2026_11_24_12_00_09.")


def test_many_are_not_all_named(tmp_path: Path) -> None:
    path = logdir(tmp_path, **{f"s{number:02}": f"vm_rank-{number}" for number in range(10)})
    (line,) = said(path)
    assert "10 runs within 9 s have different tasks (rank-0, rank-1, rank-2, rank-3, ...)" in line
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
    options = words.partition("To read them as one run: ")[2].partition(".")[0].split()
    assert options == ["--run", "2026_11_24_12_00_05", "--run", "2026_11_24_12_00_07"]
    report = run_tfperf("analyze", path, *options, "--format", "json")
    assert report.exit_code == 0, report.stderr
    assert json.loads(report.stdout)["source"]["hosts"] == ["vm_worker-0", "vm_worker-1"]


# --- samples of hosts: some of each role, always the same ---


def run_of(*names: str) -> Run:
    return Run("run", Path(), tuple(HostFile(name, Path(name)) for name in names))


def sampled(run: Run, count: int) -> tuple[list[str], str]:
    drawn, text = sample_hosts(run, count)
    return [file.host for file in drawn.files], text


def test_hosts_are_evenly_spread_over_their_names() -> None:
    hosts, text = sampled(run_of(*(f"worker-{number}" for number in range(12))), 3)
    assert (hosts, text[:21]) == (["worker-2", "worker-6", "worker-10"], "Sample of 3 of 12 hos")


def test_each_role_has_its_share_and_at_least_one_host() -> None:
    run = run_of("chief-0", *(f"ps-{number}" for number in range(3)), *(f"worker-{number}" for number in range(20)))
    hosts, text = sampled(run, 6)
    assert [host.split("-")[0] for host in hosts] == ["chief", "ps", "worker", "worker", "worker", "worker"]
    assert text.endswith("evenly spread over host names: 1 of 1 chief-*, 1 of 3 ps-*, 4 of 20 worker-*.")


def test_there_are_as_many_hosts_as_asked_for() -> None:
    run = run_of("a", "b", "worker-0", "worker-1", "worker-2", "worker-3", "ps-0", "ps-1")
    assert [len(sampled(run, count)[0]) for count in range(1, 9)] == [*range(1, 9)]
    assert sample_hosts(run, 8) == (run, ""), "a sample of all is none"
