import pytest

from coalloc.broker_client.depots import _name
from coalloc.depot.protocol.addresses import HostPort

PLACE = HostPort("192.0.2.1", 4000)
KNOWN = {"depot-a": ("Depot-A", PLACE), "depot-b.example": ("depot-b.example", HostPort("192.0.2.66", 4000))}


@pytest.mark.parametrize(
    ("depot", "name"),
    [
        (HostPort("depot-a", 4000), "Depot-A"),
        (PLACE, "Depot-A"),
        (HostPort("192.0.2.1", 5000), None),
        (HostPort("depot-b.example", 4000), None),
        (HostPort("depot-c", 4000), None),
    ],
)
def test_a_depot_is_named_by_its_name_or_its_address(depot: HostPort, name: str | None):
    """A broker's depot that is called like a host is not taken for that host."""
    assert _name(depot, KNOWN) == name
