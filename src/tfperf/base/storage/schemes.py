"""The kinds of addresses that tfperf reads, each declared once: what it needs, and what its errors advise."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_S, READ_S = 10, 60
"""How long a server may take to be reached, and between two pieces of what it sends, in seconds."""


class Scheme(Struct, frozen=True, kw_only=True):
    """One kind of address."""

    protocol: str
    """What fsspec calls it."""
    extra: str
    """The extra of tfperf that installs what it needs."""
    place: str = "bucket"
    """What holds the files."""
    identify: str = ""
    """How a user says who they are."""
    anonymous: Mapping[str, Any] = {}
    """Options for access without credentials; empty if there is no such access to choose."""
    endpoint: str = ""
    """The option that takes another server of the same protocol; empty if there is none."""
    is_writable: bool = True
    is_public: bool = False
    """Whether there is nothing to log in to, unless the server asks."""
    setup: str = ""
    """What else must be on this machine."""
    needs_folders: bool = False
    """Whether a folder must be made before a file is put there."""


_S3 = Scheme(
    protocol="s3",
    extra="s3",
    identify="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or run aws configure",
    anonymous={"anon": True},
    endpoint="endpoint_url",
)
_GCS = Scheme(
    protocol="gs",
    extra="gcs",
    identify="run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
    anonymous={"token": "anon"},
    endpoint="endpoint_url",
)
_AZURE = Scheme(
    protocol="abfs",
    extra="azure",
    place="container",
    identify="set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (or AZURE_STORAGE_SAS_TOKEN)",
    anonymous={"anon": True},
)
_HDFS = Scheme(
    protocol="hdfs",
    extra="hdfs",
    place="file system",
    identify="run kinit, or set HADOOP_USER_NAME",
    setup="it needs Java and Hadoop: set JAVA_HOME, HADOOP_HOME and CLASSPATH (hadoop classpath --glob)",
    needs_folders=True,
)
_HTTP = Scheme(
    protocol="http",
    extra="http",
    place="server",
    identify="give an address that is signed, or put the login into ~/.netrc",
    is_writable=False,
    is_public=True,
)
_MEMORY = Scheme(protocol="memory", extra="remote", place="memory", is_public=True)

SCHEMES = {
    "s3": _S3, "s3a": _S3, "gs": _GCS, "gcs": _GCS, "az": _AZURE, "abfs": _AZURE, "abfss": _AZURE, "hdfs": _HDFS,
    "http": _HTTP, "https": _HTTP, "memory": _MEMORY,
}  # fmt: skip
"""How an address begins, before `://`."""


def client_options(scheme: Scheme) -> dict[str, Any]:
    """Return how the library of a scheme is set up: no memory of listings, few retries (ours count), time limits."""
    if scheme is _S3:
        limits = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"max_attempts": 0}}
        return {"use_listings_cache": False, "config_kwargs": limits}
    if scheme is _GCS:
        return {"use_listings_cache": False}
    if scheme is _HTTP:
        from aiohttp import ClientTimeout

        # A whole file may take longer than the five minutes that aiohttp allows; a proxy or ~/.netrc may be needed.
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
        identity = {"Accept-Encoding": "identity"}
        return {"client_kwargs": {"timeout": timeout, "trust_env": True, "headers": identity}}
    return {}


def prepare(scheme: Scheme, endpoint_url: str | None) -> None:
    """Set what a library reads from the environment when it is imported."""
    if scheme is _GCS and (endpoint_url or os.environ.get("STORAGE_EMULATOR_HOST")):
        # gcsfs asks Google for the kind of each bucket; for a bucket of an emulator, it waits a minute for an answer.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
