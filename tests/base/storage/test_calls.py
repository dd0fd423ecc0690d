"""How services are asked: again if that may help, at once if it does not."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import pytest

from tfperf import RemotePath, TfperfError
from tfperf.base.storage.calls import PAUSES_S, call, file_system

PATH = RemotePath("memory://x")


class Answers:
    """Raises each of some errors, then returns 5."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)

    def __call__(self) -> int:
        if self.errors:
            raise self.errors.pop(0)
        return 5


def test_a_busy_server_is_asked_again() -> None:
    assert call(PATH, Answers(TimeoutError(), ConnectionResetError(), TimeoutError())) == 5
    assert len(PAUSES_S) == 3


@pytest.mark.parametrize(
    ("errors", "left"), [([TimeoutError()] * 9, 5), ([ConnectionRefusedError()] * 9, 7), ([PermissionError()] * 9, 8)]
)
def test_it_is_asked_a_few_times_only(errors: list[Exception], left: int) -> None:
    answers = Answers(*errors)
    with pytest.raises(TfperfError, match="cannot read memory://x"):
        call(PATH, answers)
    assert len(answers.errors) == left


def test_an_interruption_and_errors_of_ours_pass() -> None:
    answers = Answers(KeyboardInterrupt(), TfperfError("ours"))
    with pytest.raises(KeyboardInterrupt):
        call(PATH, answers)
    with pytest.raises(TfperfError, match="ours"):
        call(PATH, answers)


@pytest.mark.parametrize(
    ("url", "module", "extra"),
    [
        ("s3://bucket/x", "s3fs", "s3"),
        ("gs://bucket/x", "gcsfs", "gcs"),
        ("az://container/x", "adlfs", "azure"),
        ("https://host/x", "aiohttp", "http"),
        ("memory://x", "fsspec", "remote"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_extra(
    url: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What was imported before is known to fsspec.
    known = import_module("fsspec.registry")._registry
    for protocol in list(known):
        monkeypatch.delitem(known, protocol)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    words = rf"{url.partition(':')[0]}:// needs a package that is not installed \(.*\): pip install 'tfperf\[{extra}\]'"
    with pytest.raises(TfperfError, match=words):
        file_system(RemotePath(url))


def test_an_emulator_of_google_is_not_asked_what_only_google_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", raising=False)
    monkeypatch.setenv("TFPERF_TEST", "1")  # whatever is set below is taken back
    file_system(RemotePath("gs://bucket/x", anonymous=True, endpoint_url="http://127.0.0.1:1"))
    assert os.environ.pop("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT") == "false"
