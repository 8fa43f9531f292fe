"""The user's own tasks at Globus, or at a broker with the same interface, read through Globus's own SDK.

The SDK logs in the user through the application GLOBUS_CLIENT_ID, or, if GLOBUS_CLIENT_SECRET is set, the application
itself. It stores its tokens in its usual place. GLOBUS_SDK_ENVIRONMENT and GLOBUS_SDK_SERVICE_URL_TRANSFER direct it to
a broker.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from coalloc.errors import NoAnswer, NotAllowed, UsageError
from coalloc.util.secret_files import secret_variable
from predictors.observation import Observation

if TYPE_CHECKING:
    from globus_sdk import GlobusApp, TransferClient

__all__ = ["GlobusTasks", "tasks"]

NAME = "coget"
SUCCEEDED = "type:TRANSFER/status:SUCCEEDED/completion_time:{},{}"
MOST = 1000
"""Maximum number of tasks, or of a task's events, in one answer of Globus, however many are requested."""
BEGINNING = int(datetime(2010, 1, 1, tzinfo=UTC).timestamp())
"""A time before the first task of Globus."""
DAY = 86_400


class GlobusTasks(NamedTuple):
    """The number of successful transfers, and the observations of transfers with a known rate, by task id."""

    found: int
    observations: Mapping[str, Observation]


def tasks() -> GlobusTasks:
    """Return all successful transfers of this user, or of the application.

    May ask the user, on standard error, to log in.

    :raises UsageError: when the SDK, or a setting that it needs, is missing
    :raises NotAllowed: when Globus refuses the login
    :raises NoAnswer: when Globus does not answer
    """
    try:
        from globus_sdk import TransferClient
    except ImportError:
        raise UsageError("globus-sdk is not installed", "run: pip install 'coget[globus]'") from None
    from coalloc.history.formats import globus

    with _translated(), redirect_stdout(sys.stderr), _app() as app, TransferClient(app=app) as client:
        found = {str(task["task_id"]): task for task in _succeeded(client)}
        return GlobusTasks(len(found), globus.read(found.values(), lambda number: _events(client, number)))


def _app() -> "GlobusApp":
    from globus_sdk import ClientApp, GlobusAppConfig, UserApp

    number, secret = os.environ.get("GLOBUS_CLIENT_ID"), secret_variable("GLOBUS_CLIENT_SECRET")
    if not number:
        raise UsageError(
            "GLOBUS_CLIENT_ID is not set",
            "register an application with Globus, or at your broker, and set the variable to its id",
        )
    if secret:
        return ClientApp(NAME, client_id=number, client_secret=secret)
    return UserApp(NAME, client_id=number, config=GlobusAppConfig(request_refresh_tokens=True))


def _succeeded(client: "TransferClient") -> Iterator[Mapping[str, Any]]:
    """Yield each task at least once; halve a period that has more tasks than fit into one answer."""
    spans = [(BEGINNING, int(time.time()) + DAY)]
    while spans:
        since, until = spans.pop()
        page = client.task_list(limit=MOST, filter=SUCCEEDED.format(_stamp(since), _stamp(until)))["DATA"]
        if len(page) < MOST or until - since <= 1:
            yield from page
        else:
            middle = (since + until) // 2
            spans += [(middle, until), (since, middle)]


def _events(client: "TransferClient", number: str) -> list[Mapping[str, Any]]:
    """Return a task's events; an empty list if one answer cannot have them all, as the oldest would be missing."""
    page: list[Mapping[str, Any]] = client.task_event_list(number, limit=MOST)["DATA"]
    return page if len(page) < MOST else []


def _stamp(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@contextmanager
def _translated() -> Iterator[None]:
    """Convert exceptions of the SDK to coget's errors."""
    from globus_sdk import GlobusAPIError, GlobusError, NetworkError

    try:
        yield
    except NetworkError as error:
        raise NoAnswer(f"Globus does not answer: {error}", "try again") from None
    except GlobusAPIError as error:
        if error.http_status in (400, 401, 403):
            raise NotAllowed(
                f"Globus refuses the login: {error.message or error.code}",
                "check that GLOBUS_CLIENT_ID and GLOBUS_CLIENT_SECRET are from this service",
            ) from None
        raise NoAnswer(f"Globus sent an unexpected answer: {error.http_status} {error.message}", "try again") from None
    except (GlobusError, ValueError) as error:
        raise UsageError(
            f"Globus sent an unexpected answer: {error}",
            "check GLOBUS_CLIENT_ID and the variables that begin with GLOBUS_SDK_",
        ) from None
