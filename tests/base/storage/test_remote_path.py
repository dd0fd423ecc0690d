"""Addresses: what they are taken for, what is shown of them, and what never is."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from tfperf import RemotePath
from tfperf.base.errors import TfperfError
from tfperf.base.storage.remote_path import SCHEMES, Listed, located, without_secrets


def test_a_text_is_an_address_if_its_scheme_is_known(tmp_path: Path) -> None:
    assert located("s3://bucket/logs/") == RemotePath("s3://bucket/logs")
    assert located("GS://bucket/logs") == RemotePath("gs://bucket/logs")
    for text in ("logs", "file:///data", "abc://bucket/logs", "C://logs"):
        assert located(text) == Path(text)
    for path in (tmp_path, RemotePath("s3://a/b")):
        assert located(path) == path


def test_it_has_the_parts_of_a_path() -> None:
    path = RemotePath("s3://bucket/logs", anonymous=True) / "run 1" / "vm.xplane.pb"
    assert (path.url, path.name, path.suffix) == ("s3://bucket/logs/run 1/vm.xplane.pb", "vm.xplane.pb", ".pb")
    assert path.parent == RemotePath("s3://bucket/logs/run 1", anonymous=True)
    assert path.parts == Path(str(path)).parts == ("s3:", "bucket", "logs", "run 1", "vm.xplane.pb")
    assert RemotePath("s3://bucket").parent == RemotePath("s3://bucket")
    assert path.resolve() is path


@pytest.mark.parametrize(
    "key", ["a?b", "a#b", "a%20b", "..", "a//b", "*[x]", "'\"&<>", "é\N{SNOWMAN}", "a\nb", "a@b:c"]
)
def test_keys_of_object_stores_are_taken_as_they_are(key: str) -> None:
    path = RemotePath(f"s3://bucket/{key}/vm.xplane.pb")
    assert str(path) == path.url == f"s3://bucket/{key}/vm.xplane.pb"
    assert path.parent.url == f"s3://bucket/{key}"
    assert path.name == "vm.xplane.pb"


def test_addresses_of_web_servers_are_quoted_and_may_have_a_query() -> None:
    path = RemotePath("https://host/logs/a%20b/vm%2F1.xplane.pb?token=x/y")
    assert path.parts == ("https:", "host", "logs", "a b", "vm%2F1.xplane.pb")
    assert path.parent == RemotePath("https://host/logs/a%20b")
    assert (path / "x").url == "https://host/logs/a%20b/vm%2F1.xplane.pb/x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:hunter2@host/logs", "https://***@host/logs"),
        ("https://hunter2@host/logs", "https://***@host/logs"),
        ("https://me:hun@hunter2 @host/logs?x=hunter2", "https://***@host/logs?..."),
        ("https://host/logs?X-Amz-Signature=hunter2&a=b/hunter2", "https://host/logs?..."),
        ("abfs://container@account.dfs.core.windows.net/logs", "abfs://container@account.dfs.core.windows.net/logs"),
    ],
)
def test_secrets_are_never_shown(url: str, shown: str) -> None:
    path = RemotePath(url)
    assert str(path) == shown
    assert repr(path) == f"RemotePath({shown!r})"
    assert not any("hunter2" in part for part in path.parts)
    assert "hunter2" not in without_secrets(f"404, message='no', url='{url}' at x")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://", "s3:// has no bucket: use s3://BUCKET/LOGDIR"),
        ("https:///", "has no server"),
        ("abc://me:hunter2@x", r"abc://\*\*\*@x is not a supported address; use s3://, "),
        ("logs", "logs is not a supported address"),
        ("s3://key:hunter2@bucket/logs", r"s3://\*\*\*@bucket/logs includes a password, .*: set AWS_ACCESS_KEY_ID"),
        ("hdfs://me:hunter2@host/logs", "includes a password"),
    ],
)
def test_what_cannot_be_an_address_is_refused(url: str, words: str) -> None:
    with pytest.raises(TfperfError, match=words) as caught:
        RemotePath(url)
    assert "hunter2" not in str(caught.value)


def test_an_endpoint_needs_a_service_that_has_several() -> None:
    assert RemotePath("gs://bucket/x", endpoint_url="http://here").endpoint_url == "http://here"
    with pytest.raises(TfperfError, match="https:// does not support an endpoint URL"):
        RemotePath("https://host/x", endpoint_url="http://here")


def test_it_is_small_and_goes_to_other_processes() -> None:
    path = RemotePath("s3://bucket/logs", True, "http://here", Listed(size_bytes=1, version="a", modified=1.5))
    assert pickle.loads(pickle.dumps(path)) == path
    assert len(pickle.dumps(path)) < 400
    assert len({path, RemotePath("s3://bucket/logs")}) == 2


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@pytest.mark.parametrize("name", sorted(SCHEMES))
def test_each_scheme_is_one_of_fsspec_and_on_the_page_and_its_extra_exists(name: str, root: Path) -> None:
    from fsspec.registry import known_implementations

    scheme = SCHEMES[name]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert scheme.protocol in known_implementations
    assert any(requirement.startswith("fsspec") or "tfperf[" in requirement for requirement in extras[scheme.extra])
    assert f"`{name}://" in (root / "docs" / "remote.md").read_text()
