"""What is written at an address: whole or not at all, and nothing that is there is replaced without being asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from storage_servers import Fault, WebServer

from tfperf import OutputError, RemotePath
from tfperf.base.files import new_file, refuse_existing, write_files


def test_a_file_is_sent_in_one_request_when_all_is_written(s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    path = RemotePath(f"s3://{name}/a/report.json", endpoint_url=s3.url)
    with new_file(path) as file:
        file.write(b"1" * 100_000)
        file.flush()
        assert not s3.answered
    assert [each.method for each in s3.answered] == ["PUT"]
    assert files.cat_file(f"{name}/a/report.json") == b"1" * 100_000


def test_nothing_is_sent_if_the_work_fails(s3: WebServer, bucket: tuple[str, Any]) -> None:
    path = RemotePath(f"s3://{bucket[0]}/report.json", endpoint_url=s3.url)

    def write_half() -> None:
        with new_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert not s3.answered


def test_what_is_there_is_replaced_only_if_asked(
    s3: WebServer, bucket: tuple[str, Any], samples: Path, run_tfperf: Callable[..., Result]
) -> None:
    name, files = bucket
    output = f"s3://{name}/report.json"
    command = ["analyze", samples / "input_bound", "-s", "environment", "-o", output, "--endpoint-url", s3.url]
    written = run_tfperf(*command)
    assert (written.exit_code, written.stderr) == (0, f"wrote {output}: report (json)\n")
    first = files.cat_file(f"{name}/report.json")
    refused = run_tfperf(*command)
    assert (refused.exit_code, refused.stderr) == (1, f"Error: {output} exists; pass --force to replace it\n")
    files.pipe_file(f"{name}/report.json", b"old")
    assert run_tfperf(*command, "--force").exit_code == 0
    assert files.cat_file(f"{name}/report.json") == first


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("folder", "folder is a folder; pass a file"),
        ("folder/vm.xplane.pb", "is a profile, and profiles are never overwritten"),
        ("folder/x", "folder/x exists; pass --force"),
    ],
)
def test_what_may_not_be_replaced(key: str, words: str, s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    files.pipe({f"{name}/folder/vm.xplane.pb": b"1", f"{name}/folder/x": b"1"})
    with pytest.raises(OutputError, match=words):
        refuse_existing([RemotePath(f"s3://{name}/{key}", endpoint_url=s3.url)], force=key != "folder/x")


def test_of_several_files_all_are_written_or_none(s3: WebServer, bucket: tuple[str, Any]) -> None:
    name, files = bucket
    files.pipe_file(f"{name}/tables/a.csv", b"old")
    folder = RemotePath(f"s3://{name}/tables", endpoint_url=s3.url)
    targets = [folder / each for each in ("a.csv", "b.csv", "c.csv")]
    with pytest.raises(OutputError, match=f"^a.csv exist in s3://{name}/tables|a.csv exists; pass --force"):
        refuse_existing(targets, force=False)
    s3.faults.append(Fault(status=403, method="PUT", part="c.csv"))
    with pytest.raises(OutputError, match=r"cannot write s3://.*/c\.csv: permission denied; set AWS_ACCESS_KEY_ID"):
        write_files(dict.fromkeys(targets, b"new"))
    assert files.find(f"{name}/tables") == [f"{name}/tables/a.csv"]
    write_files(dict.fromkeys(targets, b"new"))
    assert files.find(f"{name}/tables") == [f"{name}/tables/{each}.csv" for each in "abc"]


def test_tables_and_timelines_are_written_there(samples: Path, run_tfperf: Callable[..., Result]) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    assert run_tfperf("export-csv", samples / "input_bound", "-o", "memory://out/tables").exit_code == 0
    assert "/out/tables/steps.csv" in files.find("/out")
    result = run_tfperf("timeline", samples / "input_bound", "-o", "memory://out/trace.json.gz")
    assert result.exit_code == 0, result.output
    assert files.cat_file("/out/trace.json.gz")[:2] == b"\x1f\x8b"
    saved = ["analyze", samples / "input_bound", "-o", "-", "--save-baseline", "memory://out/baseline.json"]
    assert run_tfperf(*saved).exit_code == 0
    checked = ["check", samples / "input_bound", "--baseline", "memory://out/baseline.json", "--no-config"]
    assert run_tfperf(*checked).exit_code == 0
    diff = run_tfperf("diff", "memory://out/baseline.json", samples / "input_bound")
    assert (diff.exit_code, "baseline.json" in diff.output) == (0, True)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["analyze", "-o", "https://host/x.html"], "cannot write https://host/x.html: web servers are read-only"),
        (["analyze", "--open", "-o", "memory://x.html"], "--open requires a local file"),
        (["timeline", "--open", "-o", "memory://x.json"], "--open requires a local file"),
    ],
)
def test_where_nothing_can_be_written(
    command: list[str], words: str, samples: Path, run_tfperf: Callable[..., Result]
) -> None:
    result = run_tfperf(command[0], samples / "input_bound", *command[1:])
    assert result.exit_code in (1, 2)
    assert words in result.stderr
