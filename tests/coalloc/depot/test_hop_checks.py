import socket

from coalloc.depot import hop_checks
from coalloc.depot.hop_checks import check_hops
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute


async def test_the_time_to_the_server_includes_depots_that_others_chose(monkeypatch):
    async def relay(route: DepotRoute, to: HostPort, connect) -> tuple[socket.socket, tuple[float, ...]]:
        return await connect(route.depots[0]), (1.0, 2.0, 4.0)

    monkeypatch.setattr(hop_checks, "relay", relay)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = HostPort(*listener.getsockname())
        checks = await check_hops(DepotRoute((first, HostPort("b", 4000)), loose=True), HostPort("ftp.example", 21))
    assert [check.place.host for check in checks] == ["127.0.0.1", "b", "ftp.example"]
    assert [check.seconds for check in checks[1:]] == [1.0, 6.0]
