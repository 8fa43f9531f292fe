"""The bucket's service and the user's keys for it, from where the AWS tools find them, and signatures of requests.

botocore reads the AWS environment variables and ~/.aws, renews temporary keys, and signs. Rules in config.toml name
further services, such as MinIO or Ceph. The secret key itself is never sent.
"""

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from coalloc.config import S3Rule, s3_rule
from coalloc.engine.s3.objects import S3Object, S3Place, object_url
from coalloc.errors import LoginRefused, Unsupported, UsageError

__all__ = ["S3Account"]

DEFAULT_REGION = "us-east-1"
FRESH_SECONDS = 60.0
"""Seconds for which keys are used before botocore is asked whether they must be renewed."""
T = TypeVar("T")
_reading = threading.Lock()
"""botocore's sessions must not be used by two threads at once."""


class S3Account:
    """The place of a bucket, and the keys for it. Implements `coalloc.engine.http.exchange.Signer`."""

    names: Sequence[str] = (
        "authorization",
        "x-amz-date",
        "x-amz-content-sha256",
        "x-amz-security-token",
        "x-amz-checksum-mode",
    )

    def __init__(self, wanted: S3Object, own: bool = True) -> None:
        self._wanted = wanted
        self._own = own
        self._rule = s3_rule(wanted.name) or S3Rule()
        self._keys: Any = None
        self.secrets = deque[str](maxlen=24)
        self._asked_at = time.monotonic()
        session = _session(self._rule)
        self.place = self._find_place(session)
        self._keys = self._find_keys(session)

    @classmethod
    async def find(cls, wanted: S3Object, own: bool = True) -> "S3Account":
        """Return the account for an object; the files and services are read in a thread.

        :raises Unsupported: when botocore is not installed, for an invalid rule, or invalid settings of the AWS tools
        :raises LoginRefused: when temporary keys cannot be renewed
        """
        return await asyncio.to_thread(cls._found, wanted, own)

    @classmethod
    def _found(cls, wanted: S3Object, own: bool) -> "S3Account":
        with _reading:
            try:
                return _converted(lambda: cls(wanted, own))
            except UsageError as error:  # other replicas can still be used
                raise Unsupported(error.message, error.remedy) from None

    @property
    def url(self) -> str:
        """The HTTP URL of the object."""
        return object_url(self.place, self._wanted.key)

    @property
    def anonymous(self) -> bool:
        """Return whether requests are not signed."""
        return self._keys is None

    def _find_place(self, session: Any) -> S3Place:
        rule, settings = self._rule, session.get_scoped_config().get("s3")
        region = rule.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        style = settings.get("addressing_style") if isinstance(settings, dict) else None
        endpoint = rule.endpoint or _endpoint(session)
        if endpoint:
            _check_endpoint(endpoint)
        return S3Place(rule.bucket or self._wanted.name, region or DEFAULT_REGION, endpoint, style == "virtual")

    def _find_keys(self, session: Any) -> Any:
        if self._rule.anonymous or not self._own:
            return None
        found = session.get_credentials()
        return found and found.get_frozen_credentials()

    def move(self, region: str) -> None:
        """Use another region: the one that the bucket is in."""
        self.place = self.place._replace(region=region)

    def sign(self, method: str, url: str | None = None) -> Mapping[str, str]:
        """Return the headers that authenticate a request of this method; its range is not signed.

        :param url: the URL that is requested; None for the object's
        """
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest

        headers = {"x-amz-checksum-mode": "ENABLED"} if method == "HEAD" else {}
        if self._keys is None:
            return headers
        request = AWSRequest(method, url or self.url, headers=headers)
        S3SigV4Auth(self._keys, "s3", self.place.region).add_auth(request)
        signed = dict(request.headers.items())
        signature = signed.get("Authorization", "")
        secrets = signed.get("X-Amz-Security-Token", ""), signature, signature.rpartition("=")[2]
        self.secrets.extend(filter(None, secrets))
        return signed

    async def renew(self) -> None:
        """Renew temporary keys that are about to expire.

        :raises LoginRefused: when that fails
        """
        if self._keys is not None and time.monotonic() > self._asked_at + FRESH_SECONDS:
            self._asked_at = time.monotonic()
            await self._ask_again()

    async def reload(self) -> bool:
        """Read the keys again, which have expired; return whether there are new ones."""
        before = self._keys
        _session_of.cache_clear()
        await self._ask_again()
        return bool(self._keys != before)

    async def _ask_again(self) -> None:
        def ask() -> Any:
            with _reading:
                return _converted(lambda: self._find_keys(_session(self._rule)))

        self._keys = await asyncio.to_thread(ask)


def _session(rule: S3Rule) -> Any:
    """Return botocore's session for a rule and the current environment."""
    environment = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    return _session_of(rule.profile, environment)


@lru_cache(maxsize=16)  # reading the files takes 15 ms, too long for each of many objects
def _session_of(profile: str | None, _environment: tuple[tuple[str, str], ...]) -> Any:
    import botocore.session

    logging.getLogger("botocore").setLevel(logging.WARNING)  # at DEBUG, it logs session tokens
    return botocore.session.Session(profile=profile)


def _endpoint(session: Any) -> str | None:
    from botocore.configprovider import ConfiguredEndpointProvider

    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    known = ConfiguredEndpointProvider(session.full_config, session.get_scoped_config(), "s3", os.environ)
    endpoint: str | None = known.provide()
    return endpoint


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        valid = False
    if not valid or parts.query or parts.fragment:
        raise UsageError("the endpoint of the S3 server is not a valid URL", "write it as https://HOST[:PORT]")


def _converted(work: Callable[[], T]) -> T:
    """Return the result of `work`, whose errors of botocore become coget's.

    :raises Unsupported: when botocore is not installed, or for invalid settings of the AWS tools
    :raises LoginRefused: when keys cannot be had
    """
    try:
        import botocore.session  # noqa: F401 - fails here if it is not installed
        from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError, UnauthorizedSSOTokenError
    except ImportError:
        raise Unsupported("s3:// URLs need one more package", "install it: pip install 'coget[s3]'") from None
    try:
        return work()
    except (ClientError, CredentialRetrievalError, UnauthorizedSSOTokenError) as error:
        raise LoginRefused(f"cannot get the keys for S3: {error}", "log in again, such as with aws sso login") from None
    except BotoCoreError as error:
        raise Unsupported(f"the settings for S3 are invalid: {error}", "correct AWS_PROFILE, or ~/.aws") from None
