"""Addresses to which the broker and its workers connect: allowed networks, and endpoints that an admin registered."""

import asyncio
import socket
from functools import partial

import alembic.command
import pytest
import structlog.testing
from sqlalchemy import text

from broker.config.identity_providers import Issuer
from broker.config.settings import Settings, configured
from broker.errors import Invalid
from broker.factory import Factory
from broker.models.catalogue import CatalogueReplica, Dataset, Endpoint, Site
from broker.models.tasks import Item
from broker.services.addresses import issuer_policy
from broker.services.auth.issuers import Issuers, document
from broker.storage import migration
from broker.storage.database import addressed
from coalloc.util.addresses import parse_networks
from tests.broker.conftest import running
from tests.broker.worlds import ANN, working, world_at, write
from tests.support.waiting import until

INNER = ("10.0.0.1", "127.0.0.1", "fd00::1", "::ffff:10.0.0.1")
LINK_LOCAL = (
    "169.254.169.254",
    "fe80::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "0.0.0.0",
    "::",
    "224.0.0.1",
)


def endpoint(name, host="dtn.example", **changes):
    return Endpoint(name=name, site="here", scheme="ftp", host=host, **changes)


async def allowed(factory, host="dtn.example", port=21):
    """Private addresses that a server may have."""
    policy = await factory.places.policy()
    assert not any(policy.allows(each, (host, port)) for each in LINK_LOCAL)
    assert policy.allows("203.0.113.1", (host, port))
    return [each for each in INNER if policy.allows(each, (host, port))]


@pytest.mark.parametrize(
    ("puts", "opened"),
    [
        ([("curator", endpoint("e"))], False),
        ([("admin", endpoint("e"))], True),
        ([("admin", endpoint("e", "DTN.example"))], True),
        ([("admin", endpoint("e", port=21))], True),
        ([("admin", endpoint("e", port=2121))], False),
        ([("admin", endpoint("other", "other.example")), ("curator", endpoint("e"))], False),
        ([("curator", endpoint("e")), ("admin", endpoint("e"))], True),
        ([("admin", endpoint("e")), ("curator", endpoint("e", prefix="/data", write_priority=1))], True),
        ([("admin", endpoint("e", "inner.example")), ("curator", endpoint("e"))], False),
        ([("admin", endpoint("e", port=2121)), ("curator", endpoint("e"))], False),
        ([("admin", endpoint("e", "inner.example")), ("curator", endpoint("e")), ("admin", endpoint("e"))], True),
    ],
)
async def test_an_endpoint_has_inner_addresses_where_an_admin_put_it(broker, puts, opened):
    await broker.factory.places.put_site("root", Site(name="here"))
    for role, each in puts:
        client = await broker.client(role)
        answer = await client.put(f"/broker/v1/endpoints/{each.name}", json=each.model_dump())
        assert answer.status_code == 200
    assert await allowed(broker.factory) == (list(INNER) if opened else [])


async def test_networks_that_are_listed_are_open_to_all(database):
    networks = parse_networks(["10.0.0.0/8", "fd00::/16"])
    async with running(Settings(database, network=networks)) as broker:
        assert await allowed(broker.factory) == ["10.0.0.1", "fd00::1", "::ffff:10.0.0.1"]


async def refusals(world, number):
    """Return the errors of a task."""
    return (await world.factory.tasks.events(ANN, number, True, 10, 0))[0]


async def test_a_replica_registered_by_a_curator_at_this_machine_is_not_read(servers, database, tmp_path):
    content = b"secret"
    async with world_at(servers, database, tmp_path, network=()) as world, working(world):
        write(world.source.root, {"x": 10})
        (world.source.root / "x").write_bytes(content)
        task = await world.done("TRANSFER", [Item(source="/x", destination="/x")], "local")
        assert (world.local / "x").read_bytes() == content  # set by root, an admin
        places, catalogue = world.factory.places, world.factory.catalogue
        where = {"scheme": "ftp", "host": "localhost", "port": world.source.port, "prefix": f"{world.source.root}/"}
        await places.put_endpoint("eve", Endpoint(name="evil", site="here", **where), "curator")
        await catalogue.put("eve", Dataset(name="eve:x", size=len(content)))
        await catalogue.put_replica("eve", CatalogueReplica(dataset="eve:x", endpoint="evil"))
        for to in ("local", "sink"):
            item = Item(source="/eve/x", destination="/stolen")
            number = await world.submit("TRANSFER", [item], to, origin="catalogue")
            message = (await until(partial(refusals, world, number)))[0].details
            assert "localhost has the address 127.0.0.1" in message or "localhost has the address ::1" in message
            assert "list its network in [network]" in message
            assert "have an admin register the endpoint" in message
        assert not (world.local / "stolen").exists()
    assert task.status == "SUCCEEDED"


def test_endpoints_from_before_the_upgrade_stay_open(empty_database):
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0006")
    with migration._connected(address) as connection:
        connection.execute(text("INSERT INTO sites (name) VALUES ('here')"))
        connection.execute(
            text(
                "INSERT INTO endpoints (name, site_id, scheme, host, prefix, read_priority, write_priority) "
                "SELECT 'old', id, 'ftp', 'dtn.example', '/', 1, 0 FROM sites"
            )
        )
        connection.commit()
    migration.upgrade(address)

    async def look():
        factory = Factory.of(Settings(empty_database), compiled=False)
        assert await allowed(factory) == list(INNER)
        with structlog.testing.capture_logs() as logs:
            await factory.places.log_opened()
        assert [(log["endpoint"], log["address"]) for log in logs] == [("old", "ftp://dtn.example")]
        await factory.places.put_endpoint("root", endpoint("old"), "admin")
        with structlog.testing.capture_logs() as logs:
            await factory.places.log_opened()
        assert not logs
        await factory.database.close()

    asyncio.run(look())


@pytest.mark.parametrize(
    ("setting", "networks"),
    [
        ('allow = ["10.0.0.0/8", "127.0.0.1", "fd00::/8"]', ["10.0.0.0/8", "127.0.0.1", "fd00::/8"]),
        ("allow = []", []),
        ("", None),
        ('allow = "10.0.0.0/8"', None),
        ('allow = ["169.254.0.0/16"]', None),
        ('allow = ["10.0.0.1/8"]', None),
        ('allow = ["host"]', None),
        ("allow = [10]", None),
        ('allow = ["10.0.0.0/8"]\ndeny = []', None),
    ],
)
def test_the_table_of_networks(tmp_path, setting, networks):
    path = tmp_path / "broker.toml"
    path.write_text(f"[network]\n{setting}\n")
    if networks is None:
        with pytest.raises(Invalid, match=r"\[network\]"):
            configured(Settings(), path)
    else:
        assert configured(Settings(), path).network == parse_networks(networks)


async def test_the_keys_of_an_issuer_are_not_fetched_from_inner_addresses():
    """The issuer itself may have any address, as the configuration names it; the URLs in its document may not."""
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.setblocking(False)
        port = inner.getsockname()[1]
        for url in (f"http://localhost:{port}/keys", f"http://127.0.0.1:{port}/keys"):
            with pytest.raises(Exception, match=r"such addresses are refused"):
                await document(url, issuer_policy((), "https://issuer.example"))
        with pytest.raises(BlockingIOError):
            inner.accept()
    assert Issuers((Issuer("https://issuer.example", ("us",), {}),))
    assert issuer_policy((), "https://issuer.example").allows("10.0.0.1", ("issuer.example", 443))
