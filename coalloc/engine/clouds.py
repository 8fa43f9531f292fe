"""Objects of Google Cloud Storage (`gs://BUCKET/KEY`) and Azure (`az://CONTAINER/BLOB`), as files for `BridgeSource`.

obstore finds the credentials in the environment, renews tokens and signs. Without credentials, requests are not signed,
as for public buckets: obstore would ask the metadata service of a cloud, which most machines do not have. Every range
is read under the condition that the object is still the one that `info` saw. As some servers ignore the condition, the
tag of each answer is compared, too.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from coalloc.errors import NoSuchFile, PermissionRefused, ReplicaChanged, ServerSays, Unsupported, UsageError
from coalloc.safe_text import hide, redact

__all__ = ["CLOUDS", "CloudObjects"]


class _Cloud(NamedTuple):
    """One service.

    :param credentials: environment variables with credentials
    :param files: files below the home directory that have credentials
    :param endpoint: environment variable with the address of another server, such as an emulator
    :param needed: environment variables that must be set
    :param refused: environment variables that must not be set: obstore makes them a part of the URL, which it names to
        servers that redirects lead to (Referer)
    """

    credentials: Sequence[str]
    files: Sequence[str]
    endpoint: str
    needed: Sequence[str] = ()
    refused: Sequence[str] = ()


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
    ),
    "az": _Cloud(
        (
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_CLIENT_ID",
            "AZURE_CLIENT_SECRET",
            "AZURE_FEDERATED_TOKEN_FILE",
            "AZURE_STORAGE_ACCESS_KEY",
            "AZURE_STORAGE_CLIENT_ID",
            "AZURE_STORAGE_CLIENT_SECRET",
            "AZURE_STORAGE_MASTER_KEY",
            "AZURE_STORAGE_TOKEN",
            "AZURE_USE_AZURE_CLI",
        ),
        (),
        "AZURE_ENDPOINT",
        ("AZURE_STORAGE_ACCOUNT_NAME",),
        ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    ),
}
"""Services by scheme."""
TRIES = 2
"""Further attempts of one request, before coget's own."""


class CloudObjects:
    """The objects of one bucket; its two methods are those of fsspec's file systems that `BridgeSource` calls.

    :param url: URL of an object
    :param seconds: seconds to connect
    :raises UsageError: when the URL names no object
    :raises Unsupported: when obstore is not installed, or a variable of the environment is missing or invalid
    """

    def __init__(self, url: str, seconds: float) -> None:
        scheme, _, rest = url.partition("://")
        bucket, _, self.key = rest.partition("/")
        self._shown = redact(url)
        self._cloud = CLOUDS[scheme.lower()]
        self._seen: tuple[int, str | None] | None = None
        """Size and tag of the object."""
        if not (bucket and self.key) or "@" in bucket:
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
                **({} if self._has_credentials else {"skip_signature": True}),
            )
        except (BaseError, ValueError) as error:
            raise Unsupported(f"{self._shown}: {self._hidden(error)}", "correct the environment variables") from None

    @property
    def _has_credentials(self) -> bool:
        named = any(os.environ.get(name) for name in self._cloud.credentials)
        return named or any((Path.home() / file).exists() for file in self._cloud.files)

    def _hidden(self, error: Exception) -> str:
        """Return the first line of an error, without secrets."""
        values = (os.environ.get(name, "") for name in self._cloud.credentials)
        return hide((str(error).splitlines() or [""])[0], secrets=filter(None, values))[:300]

    def info(self, key: str) -> dict[str, object]:
        """Return size and version of an object."""
        meta = self._asked("head", key)
        self._seen = meta["size"], meta["e_tag"]
        return {"type": "file", "size": meta["size"], "etag": meta["e_tag"], "updated": meta["last_modified"]}

    def cat_file(self, key: str, start: int, end: int) -> bytes:
        """Return a range of the object that `info` saw."""
        tag = self._seen and self._seen[1]
        options = {"range": (start, end), **({"if_match": tag} if tag else {})}
        block: bytes = self._asked("get", key, options)[: end - start]
        return block

    def _changed(self) -> ReplicaChanged:
        return ReplicaChanged(f"{self._shown} changed while it was fetched", "start again")

    def _asked(self, verb: str, key: str, options: Mapping[str, object] | None = None) -> Any:
        import obstore
        from obstore import exceptions

        try:
            if verb == "head":
                return obstore.head(self._store, key)
            answer = obstore.get(self._store, key, options=options)
            if self._seen and (answer.meta["size"], answer.meta["e_tag"]) != self._seen:
                raise self._changed()
            return bytes(answer.bytes())
        except FileNotFoundError:
            raise NoSuchFile(f"{self._shown}: there is no such object", "check bucket and key in the URL") from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError):
            remedy = f"give valid credentials, such as in {self._cloud.credentials[0]}"
            raise PermissionRefused(f"{self._shown}: the server refuses access", remedy) from None
        except exceptions.PreconditionError:
            raise self._changed() from None
        except exceptions.BaseError as error:
            raise ServerSays(f"{self._shown}: {self._hidden(error)}", "try again later") from None
