"""Objects of Google Cloud Storage (`gs://BUCKET/KEY`) and Azure (`az://CONTAINER/BLOB`), as files for `BridgeSource`.

obstore finds the credentials in the environment, renews tokens and signs. Without credentials, requests are not signed,
as for public buckets: obstore would ask the metadata service of a cloud, which most machines do not have. Every range
is read under the condition that the object is still the one that `info` saw. As some servers ignore the condition, the
tag of each answer is compared, too.
"""

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from coalloc.errors import NoSuchFile, PermissionRefused, ReplicaChanged, ServerSays, Unsupported, UsageError
from coalloc.safe_text import hide, redact

__all__ = ["CLOUDS", "CloudObjects", "HeadRequest"]


class _Cloud(NamedTuple):
    """One service.

    :param credentials: environment variables with credentials, each of which suffices
    :param files: files below the home directory that have credentials
    :param endpoint: environment variable with the address of another server, such as an emulator
    :param elsewhere: environment variables that may make obstore use another server than `endpoint` says
    :param server: URL of the service; it may contain an environment variable in braces
    :param token: environment variable with a token
    :param method: method for which a signed URL also permits HEAD
    :param needed: environment variables that must be set
    :param refused: environment variables that must not be set: obstore makes them a part of the URL, which it names to
        servers that redirects lead to (Referer)
    :param joint: environment variables that are credentials only together, one of each group; obstore would take an
        incomplete set for the role of the machine. The last group is no credential by itself.
    """

    credentials: Sequence[str]
    files: Sequence[str]
    endpoint: str
    elsewhere: Sequence[str]
    server: str
    token: str
    method: Literal["GET", "HEAD"]
    needed: Sequence[str] = ()
    refused: Sequence[str] = ()
    joint: Sequence[Sequence[str]] = ()

    @property
    def all_credentials(self) -> Sequence[str]:
        """All environment variables that can be a part of credentials."""
        return [*self.credentials, *(name for names in self.joint for name in names)]


CLOUDS: Mapping[str, _Cloud] = {
    "gs": _Cloud(
        (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_BEARER_TOKEN",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
        ),
        (".config/gcloud/application_default_credentials.json",),
        "GOOGLE_BASE_URL",
        ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_SERVICE_ACCOUNT_PATH", "SERVICE_ACCOUNT"),
        "https://storage.googleapis.com",
        "GOOGLE_BEARER_TOKEN",
        "HEAD",
    ),
    "az": _Cloud(
        (
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_MASTER_KEY",
            "AZURE_STORAGE_TOKEN",
            "AZURE_USE_AZURE_CLI",
        ),
        (),
        "AZURE_ENDPOINT",
        ("AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR", "AZURE_USE_FABRIC_ENDPOINT"),
        "https://{AZURE_STORAGE_ACCOUNT_NAME}.blob.core.windows.net",
        "AZURE_STORAGE_TOKEN",
        "GET",
        ("AZURE_STORAGE_ACCOUNT_NAME",),
        ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
        (
            ("AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"),
            ("AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"),
            ("AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID", "AZURE_AUTHORITY_ID", "AZURE_STORAGE_AUTHORITY_ID"),
        ),
    ),
}
"""Services by scheme."""
VERSION = {"x-ms-version": "2023-11-03"}
"""A header that Azure wants; it means nothing to others."""
SIGNED = timedelta(minutes=10)
"""Time for which a signed URL is valid."""
UNSET = ("", "false", "0")
"""Values of a variable that name no credential."""
TRIES = 2
"""Further attempts of one request, before coget's own."""
BLOCK_SECONDS = 5.0
"""Seconds after which the part of a range that has come is returned, so that a slow server is not taken for silent."""


class HeadRequest(NamedTuple):
    """A request for the properties of an object.

    :param shown: URL of the object without secrets
    :param secrets: secret values in the headers
    """

    url: str
    headers: Mapping[str, str]
    shown: str
    secrets: Sequence[str] = ()


class CloudObjects:
    """The objects of one bucket; `info` and `cat_file` are those of fsspec's file systems that `BridgeSource` calls.

    :param url: URL of an object, or of a directory
    :param seconds: seconds to connect
    :param directory: whether the URL is that of a directory, or of a whole bucket, with a slash at its end
    :param own: whether the credentials of the environment may be used
    :raises UsageError: when the URL names no object
    :raises Unsupported: when obstore is not installed, or a variable of the environment is missing or invalid
    """

    def __init__(self, url: str, seconds: float, *, directory: bool = False, own: bool = True) -> None:
        scheme, _, rest = url.partition("://")
        bucket, _, self.key = rest.partition("/")
        self._path = quote(rest, safe="/~")
        self._shown = redact(url)
        self._cloud = CLOUDS[scheme.lower()]
        self._own = own
        self._seen: Mapping[str, Any] | None = None
        """Properties of the object."""
        if not (bucket and (self.key or directory)) or "@" in bucket:
            raise UsageError(f"{self._shown} names no object", f"write {scheme}://BUCKET/KEY")
        for name in self._cloud.needed:
            if not os.environ.get(name):
                raise Unsupported(f"{self._shown}: {name} is not set", f"set {name}")
        if used := [name for name in os.environ if name in self._cloud.refused and os.environ[name]]:
            raise Unsupported(
                f"{self._shown}: the signature in {used[0]} is not used, as a redirect would pass it on",
                "unset it, and append the signature to the blob's https:// URL, after a question mark",
            )
        self._store = self._opened(f"{scheme.lower()}://{bucket}", seconds)

    def _opened(self, bucket: str, seconds: float) -> Any:
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ImportError:
            raise Unsupported(
                f"{self._shown} needs one more package", "install it: pip install 'coget[clouds]'"
            ) from None
        plain = os.environ.get(self._cloud.endpoint, "").startswith("http://")
        try:
            return from_url(
                bucket,
                client_options={"allow_http": plain, "connect_timeout": f"{seconds:g}s", "timeout": "120s"},
                retry_config={"max_retries": TRIES},
                **({} if self._has_credentials() else {"skip_signature": True}),
            )
        except (BaseError, ValueError) as error:
            raise Unsupported(f"{self._shown}: {self._hidden(error)}", "correct the environment variables") from None

    def _has_credentials(self) -> bool:
        if not self._own:
            return False
        named = any(os.environ.get(name, "false").lower() not in UNSET for name in self._cloud.credentials)
        return named or any((Path.home() / file).exists() for file in self._cloud.files) or self._has_joint()

    def _has_joint(self) -> bool:
        """Return whether there are credentials that consist of several variables.

        :raises Unsupported: when one of these is missing
        """
        given = [next((name for name in names if os.environ.get(name)), None) for names in self._cloud.joint]
        if not any(given[:-1]):
            return False
        for name, names in zip(given, self._cloud.joint, strict=True):
            if name is None:
                others = " and ".join(filter(None, given))
                raise Unsupported(f"{self._shown}: {names[0]} is not set", f"set it, or unset {others}")
        return True

    def _hidden(self, error: Exception) -> str:
        """Return the first line of an error, without secrets."""
        values = (os.environ.get(name, "") for name in self._cloud.all_credentials)
        return hide((str(error).splitlines() or [""])[0], secrets=filter(None, values))[:300]

    def info(self, key: str) -> dict[str, object]:
        """Return size and version of an object."""
        import obstore

        with self._border():
            meta = obstore.head(self._store, key)
        self._seen = meta
        return {"type": "file", "size": meta["size"], "etag": meta["e_tag"], "updated": meta["last_modified"]}

    def head_request(self) -> HeadRequest | None:
        """Return a request for the headers of the object; None if the credentials do not allow one."""
        signs, token = self._has_credentials(), os.environ.get(self._cloud.token, "")
        if signs and (self._is_elsewhere() or not token):
            return self._signed_request()
        if self._is_elsewhere():
            return None
        endpoint = os.environ.get(self._cloud.endpoint) or self._cloud.server.format_map(os.environ)
        url = f"{endpoint.rstrip('/')}/{self._path}"
        if not signs:
            return HeadRequest(url, VERSION, self._shown)
        return HeadRequest(url, {**VERSION, "Authorization": f"Bearer {token}"}, self._shown, (token,))

    def _is_elsewhere(self) -> bool:
        """Return whether obstore may use a server that only obstore knows: it ignores the case of variables."""
        others = (self._cloud.endpoint, *self._cloud.elsewhere)
        given = (name for name, value in os.environ.items() if value.lower() not in UNSET)
        return any(name != others[0] and name.upper() in others for name in given)

    def _signed_request(self) -> HeadRequest | None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            return HeadRequest(obstore.sign(self._store, self._cloud.method, self.key, SIGNED), {}, self._shown)
        except (BaseError, NotImplementedError, OSError, ValueError):
            return None

    def is_version(self, tag: str | None, size: str | None) -> bool:
        """Return whether the headers of an answer are of the object that `info` saw."""
        return self._seen is not None and (tag, size) == (self._seen["e_tag"], str(self._seen["size"]))

    def cat_file(self, key: str, start: int, end: int) -> bytes:
        """Return a range of the object that `info` saw; only its beginning if the rest takes long.

        :raises Unsupported: when the server sends more
        """
        import obstore

        seen, began, block = self._seen, monotonic(), bytearray()
        condition = {"if_match": seen["e_tag"]} if seen and seen["e_tag"] else {}
        with self._border():
            answer = obstore.get(self._store, key, options={"range": (start, end), **condition})
            if seen and _version(answer.meta) != _version(seen):
                raise self._changed()
            for chunk in answer.stream(min_chunk_size=1):
                block += chunk
                if len(block) > end - start:
                    what = f"the server sends more than the requested bytes {start}-{end - 1}"
                    raise Unsupported(f"{self._shown}: {what}", "use another replica")
                if monotonic() - began > BLOCK_SECONDS:
                    break
        return bytes(block)

    async def below(self) -> AsyncGenerator[Sequence[tuple[str, int]], None]:
        """Yield the paths and sizes of all objects whose keys begin with the directory's, in groups as they arrive."""
        import obstore

        pages = aiter(obstore.list(self._store, self.key.rstrip("/") or None))
        while True:
            with self._border():
                page = await anext(pages, None)
            if page is None:
                return
            yield [(meta["path"], meta["size"]) for meta in page]

    def _changed(self) -> ReplicaChanged:
        return ReplicaChanged(f"{self._shown} changed while it was fetched", "start again")

    @contextmanager
    def _border(self) -> Iterator[None]:
        """Convert the exceptions of obstore to coget's errors."""
        from obstore import exceptions

        try:
            yield
        except FileNotFoundError:
            raise NoSuchFile(f"{self._shown}: there is no such object", "check bucket and key in the URL") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
            given = f"give valid credentials, such as in {self._cloud.credentials[0]}"
            remedy = given if self._own else "use another replica: it is asked without credentials"
            raise PermissionRefused(f"{self._shown}: the server refuses access", remedy) from None
        except exceptions.PreconditionError:
            raise self._changed() from None
        except exceptions.InvalidPathError as error:
            what = f"obstore cannot name a key: {self._hidden(error)}"
            raise Unsupported(f"{self._shown}: {what}", "give the https:// URLs of objects") from None
        except exceptions.BaseError as error:
            raise ServerSays(f"{self._shown}: {self._hidden(error)}", "try again later") from None


def _version(meta: Mapping[str, Any]) -> tuple[int, object]:
    return meta["size"], meta["e_tag"] or meta["last_modified"]
