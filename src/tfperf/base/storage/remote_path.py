"""The address of a remote file or folder, with the part of pathlib's interface that tfperf uses.

`SCHEMES` declares the requirements and error advice of each kind of address once.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from tfperf.base.errors import TfperfError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)
_LOGIN = r"(?<=://)[^/]*:[^/]*@|(?<=http://)[^/]*@|(?<=https://)[^/]*@"
"""Everything up to the last `@`, since a password may contain one. On the web, a name alone may be a token."""
_QUERY = r"(https?://[^\s?]*)\?[^\s'\")]*"


class Listed(Struct, frozen=True, kw_only=True):
    """Metadata of a file, from its storage service."""

    size_bytes: int | None = None
    version: str = ""
    """Changes with each write: an ETag, a generation, or a time; empty if the service reports none."""
    modified: float | None = None
    """Seconds since 1970."""
    has_ranges: bool = True
    """Whether the server supports range requests; False only if it reports that it does not."""


class RemotePath(Struct, frozen=True):
    """A file or folder in an object store, in HDFS or on a web server.

    `url` is its address: `s3://`, `gs://`, `az://`, `hdfs://`, `https://`, `http://` or `memory://`. `anonymous` reads
    without credentials; `endpoint_url` uses another server with the same protocol (S3 and Google Cloud Storage only).
    tfperf accepts it wherever it accepts the path of a profile. Credentials are those that the service's library finds.
    Raise TfperfError for an unsupported address.
    """

    url: str
    anonymous: bool = False
    endpoint_url: str | None = None
    listed: Listed | None = None
    """Metadata from the listing that returned it."""

    def __post_init__(self) -> None:
        address = _ADDRESS.fullmatch(self.url)
        if not address or address[1].lower() not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise TfperfError(f"{without_secrets(self.url)} is not a supported address; use {known}")
        name, rest = address[1].lower(), address[2]
        force_setattr(self, "url", f"{name}://{rest}" if "?" in rest else f"{name}://{rest.rstrip('/')}")
        scheme = self.scheme
        if not rest.strip("/") and scheme.protocol != "memory":
            raise TfperfError(f"{name}:// has no {scheme.place}: use {name}://{scheme.place.upper()}/LOGDIR")
        if not scheme.is_public and str(self) != self.url:
            raise TfperfError(f"{self} includes a password, which is ignored: {scheme.identify}")
        if self.endpoint_url and not scheme.endpoint:
            raise TfperfError(f"{name}:// does not support an endpoint URL: omit it, or use s3:// or gs://")

    @property
    def scheme(self) -> Scheme:
        """Return the declaration of this kind of address."""
        return SCHEMES[self.url.partition(":")[0]]

    @property
    def is_web(self) -> bool:
        """Return whether it is on a web server, where names are quoted and `?` ends the path."""
        return self.scheme.protocol == "http"

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.parts[-1]

    @property
    def suffix(self) -> str:
        """Return the end of the name, including its last dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the scheme, the bucket or server, and each part of the path, like `Path(str(path)).parts`."""
        start, _, rest = str(self).removesuffix("?...").partition("://")
        parts = tuple(part for part in rest.split("/") if part not in ("", "."))
        return (f"{start}:", *(map(_unquoted, parts) if self.is_web else parts))

    @property
    def parent(self) -> RemotePath:
        """Return the containing folder; a bucket is its own parent."""
        start, _, rest = self._path.partition("://")
        folder = rest.rpartition("/")[0] or rest
        return replace(self, url=f"{start}://{folder}", listed=None)

    def __truediv__(self, name: str) -> RemotePath:
        return replace(self, url=f"{self._path.rstrip('/')}/{name}", listed=None)

    @property
    def _path(self) -> str:
        return self.url.partition("?")[0] if self.is_web else self.url

    def __str__(self) -> str:
        path, mark, _ = self.url.partition("?") if self.is_web else (self.url, "", "")
        return without_secrets(path) + (mark and "?...")

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def resolve(self) -> RemotePath:
        """Return itself, because remote paths have no symbolic links."""
        return self


Location = Path | RemotePath


def located(path: str | Location) -> Location:
    """Convert text to a supported address or a local path; return other values unchanged."""
    if not isinstance(path, str):
        return path
    address = _ADDRESS.match(path)
    return RemotePath(path) if address and address[1].lower() in SCHEMES else Path(path)


def _unquoted(part: str) -> str:
    """Unquote a part of a path, unless the result would be two parts or unprintable."""
    from urllib.parse import unquote  # imported only for web servers

    plain = unquote(part)
    return plain if plain.isprintable() and "/" not in plain else part


def without_secrets(text: str) -> str:
    """Remove logins and queries from addresses in a text; a query often contains a signature."""
    return re.sub(_QUERY, r"\1?...", re.sub(_LOGIN, "***@", text))


CONNECT_S, READ_S = 10, 60
"""Timeouts in seconds: to connect, and between two pieces of a response."""


class Scheme(Struct, frozen=True, kw_only=True):
    """One kind of address."""

    protocol: str
    """The protocol name in fsspec."""
    extra: str
    """The tfperf extra that installs its requirements."""
    place: str = "bucket"
    """The term for its top-level container."""
    identify: str = ""
    """How a user authenticates."""
    anonymous: Mapping[str, Any] = {}
    """Options for access without credentials; empty if the storage has none."""
    endpoint: str = ""
    """The option for another server with the same protocol; empty if there is none."""
    is_writable: bool = True
    is_public: bool = False
    """Whether no login is needed unless the server requires one."""
    setup: str = ""
    """Further requirements on this machine."""
    needs_folders: bool = False
    """Whether a folder must exist before a file is written into it."""


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
    setup="it requires Java and Hadoop: set JAVA_HOME, HADOOP_HOME and CLASSPATH (hadoop classpath --glob)",
    needs_folders=True,
)
_HTTP = Scheme(
    protocol="http",
    extra="http",
    place="server",
    identify="use a signed address, or add the login to ~/.netrc",
    is_writable=False,
    is_public=True,
)
_MEMORY = Scheme(protocol="memory", extra="remote", place="memory", is_public=True)

SCHEMES = {
    "s3": _S3, "s3a": _S3, "gs": _GCS, "gcs": _GCS, "az": _AZURE, "abfs": _AZURE, "abfss": _AZURE, "hdfs": _HDFS,
    "http": _HTTP, "https": _HTTP, "memory": _MEMORY,
}  # fmt: skip
"""Scheme (the part before `://`) -> its declaration."""


def client_options(scheme: Scheme) -> dict[str, Any]:
    """Return client options: no listing cache, few retries (`call` retries), timeouts."""
    if scheme is _S3:
        limits = {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"max_attempts": 0}}
        return {"use_listings_cache": False, "config_kwargs": limits}
    if scheme is _GCS:
        return {"use_listings_cache": False}
    if scheme is _HTTP:
        from aiohttp import ClientTimeout

        # aiohttp's limit of five minutes is too short for a whole file; a proxy or ~/.netrc may be needed.
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
        identity = {"Accept-Encoding": "identity"}
        return {"client_kwargs": {"timeout": timeout, "trust_env": True, "headers": identity}}
    return {}


def prepare(scheme: Scheme, endpoint_url: str | None) -> None:
    """Set environment variables that a library reads on import."""
    if scheme is _GCS and (endpoint_url or os.environ.get("STORAGE_EMULATOR_HOST")):
        # gcsfs requests the kind of each bucket from Google, which takes a minute to fail for an emulator's bucket.
        os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
