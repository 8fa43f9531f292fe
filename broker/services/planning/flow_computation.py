"""The computation of a plan for moving files through a network, which runs in a subprocess."""

from typing import NamedTuple

from broker.errors import Invalid, TooLarge, Unavailable
from broker.models.plans import FlowsPlanned, FlowsRequest
from coalloc.errors import TooMuch, UsageError
from coalloc.planner import plan
from coalloc.planner.documents.plan import answer
from coalloc.planner.documents.scenario import Scenario, document, scenario
from coalloc.planner.network import Network, joined

__all__ = ["HostNames", "ends_of", "planned"]

ENDS = 50_000
"""Most ISPs of hosts, and holders and destinations of files, in total."""


class HostNames(NamedTuple):
    """The names of hosts, the URLs of hosts with a server, and the pairs of hosts with a link."""

    hosts: frozenset[str]
    urls: dict[str, str]
    linked: frozenset[tuple[str, str]]


def ends_of(request: FlowsRequest) -> HostNames:
    """Return the hosts and links of a request.

    :raises Invalid: when the request is inconsistent
    :raises TooLarge: when the request exceeds a limit
    """
    content = _read(request)
    linked = frozenset((key.source, key.sink) for key in content.network.links)
    return HostNames(frozenset(content.network.hosts), dict(content.urls), linked)


def planned(request: FlowsRequest, known: Network) -> bytes:
    """Return the plan as JSON.

    :param known: network from the broker's data, which completes the network of the request
    :raises Invalid: when a file has no route
    :raises TooLarge: when the plan cannot be computed
    :raises Unavailable: when a library for planning is not installed
    """
    content = _read(request)
    network = joined(content.network, known)
    try:
        made = answer(network, plan(network, content.demand))
    except TooMuch as error:
        raise TooLarge(error.message, error.remedy) from None
    except UsageError as error:
        if isinstance(error.__cause__ or error.__context__, ModuleNotFoundError):
            raise Unavailable(f"{error.message} on the broker", error.remedy) from None
        raise Invalid(error.message, error.remedy) from None
    described = document(Scenario(network, urls=content.urls))
    return FlowsPlanned.model_validate({**made, "network": described}).model_dump_json().encode()


def _read(request: FlowsRequest) -> Scenario:
    try:
        content = scenario({name: value for name, value in request.model_dump().items() if value not in (None, {})})
    except UsageError as error:
        raise Invalid(error.message, error.remedy) from None
    ends = sum(len(host.isps) for host in content.network.hosts.values())
    ends += sum(len(file.holders) + len(file.destinations) for file in content.demand.files)
    if ends > ENDS:
        raise TooLarge(f"the hosts and files name {ends} places", f"give at most {ENDS}, or plan in parts")
    return content
