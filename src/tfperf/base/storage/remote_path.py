"""The address of a file or folder on another machine, with the part of pathlib's interface that tfperf uses.

`SCHEMES` declares each kind of address once: what it needs, and what its errors advise.
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
"""All up to the last `@`: a password may hold one. A name alone is a secret on the web, where it may be a token."""
_QUERY = r"(https?://[^\s?]*)\?[^\s'\")]*"


class Listed(Struct, frozen=True, kw_only=True):
    """What a storage service says of a file without sending it."""

    size_bytes: int | None = None
    version: str = ""
    """Another one after each change: an ETag, a generation, or a time; empty if the service tells none."""
    modified: float | None = None
    """Seconds since 1970."""
    has_ranges: bool = True
    """Whether parts of the file may be asked for; False only if the server says that it sends whole files."""


class RemotePath(Struct, frozen=True):
    """A file or folder in an object store, in HDFS or on a web server.

    `url` is its address: `s3://`, `gs://`, `az://`, `hdfs://`, `https://`, `http://` or `memory://`. `anonymous` reads
    without credentials, `endpoint_url` asks another server of the same protocol (S3 and Google Cloud Storage only).
    tfperf takes it wherever it takes the path of a profile. Credentials are those that the library of the service
    finds. Raises TfperfError for an address that cannot be used.
    """

    url: str
    anonymous: bool = False
    endpoint_url: str | None = None
    listed: Listed | None = None
    """What the listing that it comes from says of it."""

    def __post_init__(self) -> None:
        address = _ADDRESS.fullmatch(self.url)
        if not address or address[1].lower() not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise TfperfError(f"{without_secrets(self.url)} is not an address that tfperf reads; it reads {known}")
        name, rest = address[1].lower(), address[2]
        force_setattr(self, "url", f"{name}://{rest}" if "?" in rest else f"{name}://{rest.rstrip('/')}")
        scheme = self.scheme
        if not rest.strip("/") and scheme.protocol != "memory":
            raise TfperfError(f"{name}:// names no {scheme.place}: write {name}://{scheme.place.upper()}/LOGDIR")
        if not scheme.is_public and str(self) != self.url:
            raise TfperfError(f"{self} has a password in it, which is not used: {scheme.identify}")
        if self.endpoint_url and not scheme.endpoint:
            raise TfperfError(f"{name}:// has no other endpoints: omit the endpoint URL, or read s3:// or gs://")

    @property
    def scheme(self) -> Scheme:
        """Return what is declared for addresses of this kind."""
        return SCHEMES[self.url.partition(":")[0]]

    @property
    def is_web(self) -> bool:
        """Tell whether it is on a web server, where names are quoted and a `?` ends the path."""
        return self.scheme.protocol == "http"

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.parts[-1]

    @property
    def suffix(self) -> str:
        """Return the end of the name, from its last dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the kind of address, the bucket or server, and each part of the path; as `Path(str(path)).parts`."""
        start, _, rest = str(self).removesuffix("?...").partition("://")
        parts = tuple(part for part in rest.split("/") if part not in ("", "."))
        return (f"{start}:", *(map(_unquoted, parts) if self.is_web else parts))

    @property
    def parent(self) -> RemotePath:
        """Return what holds it; a bucket is in itself."""
        start, _, rest = self._path.partition("://")
        folder = rest.rpartition("/")[0] or rest
        return replace(self, url=f"{start}://{folder}", listed=None)

    def __truediv__(self, name: str) -> RemotePath:
        return replace(self, url=f"{self._path.rstrip('/')}/{name}", listed=None)

    @property
    def _path(self) -> str:
        """Return the address without a query."""
        return self.url.partition("?")[0] if self.is_web else self.url

    def __str__(self) -> str:
        path, mark, _ = self.url.partition("?") if self.is_web else (self.url, "", "")
        return without_secrets(path) + (mark and "?...")

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    def resolve(self) -> RemotePath:
        """Return it: nothing leads elsewhere."""
        return self


Location = Path | RemotePath
"""Where a file or folder is: on this machine, or at an address."""


def located(path: str | Location) -> Location:
    """Return a path as it is, or what a text names: an address that tfperf reads, or a path of this machine."""
    if not isinstance(path, str):
        return path
    address = _ADDRESS.match(path)
    return RemotePath(path) if address and address[1].lower() in SCHEMES else Path(path)


def _unquoted(part: str) -> str:
    """Return a part of a path as people write it, unless it would be two parts then, or could not be shown."""
    from urllib.parse import unquote  # only addresses of web servers need it

    plain = unquote(part)
    return plain if plain.isprintable() and "/" not in plain else part


def without_secrets(text: str) -> str:
    """Return a text whose addresses have neither a login nor a query, which often holds a signature."""
    return re.sub(_QUERY, r"\1?...", re.sub(_LOGIN, "***@", text))


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
