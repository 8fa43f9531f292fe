"""Credentials of collections: used only where the workers' TOML allows; a user who moves an endpoint gets nothing."""

import asyncio
import time
from uuid import uuid4

import alembic.command
import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from broker.cli import broker as command
from broker.config.credentials import CollectionCredential, at, place
from broker.config.settings import Settings, configured
from broker.errors import Forbidden, Invalid
from broker.factory import Factory
from broker.models.catalogue import Endpoint, Site
from broker.models.collections import NewCollection
from broker.models.tasks import Item
from broker.storage import migration
from broker.storage.collections import CollectionStore
from broker.storage.database import addressed
from broker.storage.migration import differences, upgrade
from coalloc.errors import PermissionRefused
from coalloc.util.addresses import parse_networks
from tests.broker.worlds import World, read, working, write
from tests.support.gsi_server import GreedyServer

LOOPBACK = parse_networks(["127.0.0.0/8", "::1/128"])


@pytest.mark.parametrize(
    ("bound", "shown", "covered"),
    [
        ("gsiftp://h.example/a/", ("gsiftp", "h.example", None, "/a/"), True),
        ("GSIFTP://H.Example.:2811/a", ("gsiftp", "h.example", 2811, "/a/b/c/"), True),
        ("gsiftp://h.example/", ("gsiftp", "h.example", None, "/a/"), True),
        ("gsiftp://h.example", ("gsiftp", "h.example.", None, "/"), True),
        ("gsiftp://h.example/a%20b/", ("gsiftp", "h.example", None, "/a b/c/"), True),
        ("gsiftp://h.example//a/./", ("gsiftp", "h.example", None, "//a//"), True),
        ("gsiftp://[2001:DB8:0::1]/a/", ("gsiftp", "[2001:db8::1]", None, "/a/"), True),
        ("gsiftp://h.example/%C3%A9/", ("gsiftp", "h.example", None, "/\u00e9/"), True),
        ("gsiftp://h.example/a/", ("gsiftp", "h.example", None, "/"), False),
        ("gsiftp://h.example/a/", ("gsiftp", "h.example", None, "/ab/"), False),
        ("gsiftp://h.example/a/", ("gsiftp", "h.example", None, "/A/"), False),
        ("gsiftp://h.example/a/", ("gsiftp", "h.example", None, "/a/../b/"), False),
        ("gsiftp://h.example/a/", ("gsiftp", "h.example", None, "/%61/"), False),
        ("gsiftp://h.example/\u00e9/", ("gsiftp", "h.example", None, "/e\u0301/"), False),
        ("gsiftp://h.example/a/", ("ftp", "h.example", 2811, "/a/"), False),
        ("gsiftp://h.example/a/", ("gsiftp", "h.example", 2812, "/a/"), False),
        ("gsiftp://h.example/a/", ("gsiftp", "h.example.evil", None, "/a/"), False),
        ("gsiftp://h.example/a/", ("gsiftp", "evil.h.example", None, "/a/"), False),
        ("gsiftp://127.0.0.1/a/", ("gsiftp", "127.1", None, "/a/"), False),
        ("gsiftp://127.0.0.1/a/", ("gsiftp", "[::ffff:127.0.0.1]", None, "/a/"), False),
    ],
)
def test_a_place_covers_only_endpoints_in_it(bound, shown, covered):
    scheme, host, port, folder = shown
    endpoint = Endpoint.model_construct(scheme=scheme, host=host, port=port)
    assert place(bound).covers(at(endpoint, folder)) is covered


@pytest.mark.parametrize(
    "toml",
    [
        '[credentials.x]\nproxy = "p"',
        '[credentials.x]\nproxy = "p"\nfor = "gsiftp://h/"',
        '[credentials.x]\nproxy = "p"\nfor = []',
        '[credentials.x]\nproxy = 1\nfor = ["gsiftp://h/"]',
        '[credentials.x]\nproxy = "p"\nfor = ["gsiftp://h/"]\nother = 1',
        "[credentials]\nx = 1",
        "credentials = 1",
        *(
            f'[credentials.x]\nproxy = "p"\nfor = ["{url}"]'
            for url in (
                "http://h/",
                "gsiftp:///a/",
                "h.example:/a/",
                "gsiftp://h/a/../b/",
                "gsiftp://h/%2e%2e/",
                "gsiftp://me@h/",
                "gsiftp://h:x/",
                "gsiftp://h/?a",
                "gsiftp://h/#a",
                "*",
            )
        ),
    ],
)
def test_an_invalid_binding_is_refused(tmp_path, toml):
    (tmp_path / "broker.toml").write_text(toml)
    (tmp_path / "broker.toml").chmod(0o600)
    with pytest.raises(Invalid, match="credentials"):
        configured(Settings(), tmp_path / "broker.toml")


def test_bindings_are_read_with_files_beside_the_config(tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text('[credentials]\nold = "a.pem"\n[credentials.new]\nproxy = "/b.pem"\nfor = ["gsiftp://h/a"]\n')
    file.chmod(0o600)
    known = configured(Settings(), file).credentials
    assert known["old"] == CollectionCredential(tmp_path / "a.pem")
    assert [str(each) for each in known["new"].places] == ["gsiftp://h:2811/a/"]


ENDPOINT = {"name": "dtn", "site": "CERN", "scheme": "gsiftp", "host": "dtn.example", "prefix": "/data"}
MOVES = [
    {"host": "evil.example"},
    {"port": 2812},
    {"prefix": "/"},
    {"prefix": "/other"},
    {"scheme": "ftp"},
    {"scheme": "ftp", "port": 2811},
]


@pytest.fixture
async def curator(broker, admin):
    await admin.put("/broker/v1/sites/CERN", json={"name": "CERN"})
    assert (await admin.put("/broker/v1/endpoints/dtn", json=ENDPOINT)).status_code == 200
    return await broker.client("curator")


async def put(client, **changes):
    return (await client.put("/broker/v1/endpoints/dtn", json={**ENDPOINT, **changes})).status_code


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", MOVES)
@pytest.mark.parametrize("credential", ["robot", ""])
async def test_only_admins_move_an_endpoint_with_a_credential(admin, curator, change, credential):
    collection = {"name": "tape", "endpoint": "dtn", "credential": credential}
    assert (await admin.put("/broker/v1/collections/tape", json=collection)).status_code == 200
    assert await put(curator, **change) == 403
    assert (await admin.get("/broker/v1/endpoints/dtn")).json()["host"] == "dtn.example"
    assert (await curator.delete("/broker/v1/endpoints/dtn")).status_code == 409
    assert await put(curator) == await put(curator, port=2811, read_priority=7, capacity=1e6) == 200
    assert await put(admin, **change) == 200


async def test_curators_move_endpoints_without_a_credential(admin, curator):
    assert await put(curator, host="new.example") == 200
    assert await put(curator, scheme="ftp") == 200
    await admin.put("/broker/v1/collections/open", json={"name": "open", "endpoint": "dtn"})
    assert await put(curator, scheme="ftp", prefix="/other") == 200
    assert await put(curator, scheme="gsiftp", prefix="/other") == 403


async def test_only_admins_allow_delegation(broker, admin, curator):
    assert await put(curator, delegate=True) == 403
    other = {**ENDPOINT, "name": "mine", "delegate": True}
    assert (await curator.put("/broker/v1/endpoints/mine", json=other)).status_code == 403
    assert await put(admin, delegate=True) == 200
    assert (await broker.factory.places.allowed())["delegate"] == {"dtn.example"}
    assert await put(curator, read_priority=3) == 200
    assert (await curator.get("/broker/v1/endpoints/dtn")).json()["delegate"] is True
    for change in ({"delegate": False}, *MOVES):
        assert await put(curator, **change) == 403
    assert await put(admin) == 200
    assert (await broker.factory.places.allowed())["delegate"] == frozenset()


async def test_only_admins_set_data_hosts(broker, admin, curator):
    assert await put(curator, data_hosts=["pool.example"]) == 403
    other = {**ENDPOINT, "name": "mine", "data_hosts": ["pool.example"]}
    assert (await curator.put("/broker/v1/endpoints/mine", json=other)).status_code == 403
    assert await put(admin, data_hosts=["Pool.example", "[2001:db8::1]"]) == 200
    policy = await broker.factory.places.policy()
    assert policy.data_hosts_of(("dtn.example", 2811)) == {"pool.example", "[2001:db8::1]"}
    for other in (("dtn.example", 2812), ("evil.example", 2811), ("pool.example", 2811)):
        assert not policy.data_hosts_of(other)
    assert await put(curator, read_priority=3) == 200
    known = ["pool.example", "[2001:db8::1]"]
    assert (await curator.get("/broker/v1/endpoints/dtn")).json()["data_hosts"] == known
    for change in ({"data_hosts": []}, {"data_hosts": [*known, "evil.example"]}, *MOVES):
        assert await put(curator, **change) == 403
    for wrong in ("a b", "-x", "a/b", "", "x\n"):
        assert await put(admin, data_hosts=[wrong]) == 422
    assert await put(admin) == 200
    assert (await broker.factory.places.policy()).data_hosts == frozenset()


def test_an_upgrade_binds_credentials_to_the_places_of_their_collections(empty_database):
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0009")
        run = connection.execute
        run(sa.text("INSERT INTO sites (id, name) VALUES (1, 'x')"))
        for number, scheme, host, port in ((1, "gsiftp", "a.example", None), (2, "gsiftp", "[::1]", 99)):
            values = {"i": number, "n": f"e{number}", "s": scheme, "h": host, "p": port}
            run(
                sa.text(
                    "INSERT INTO endpoints (id, name, site_id, scheme, host, port, prefix, read_priority,"
                    " write_priority) VALUES (:i, :n, 1, :s, :h, :p, '/my data/', 1, 0)"
                ),
                values,
            )
        for name, endpoint, credential in (
            ("one", 1, "robot"),
            ("two", 2, "robot"),
            ("again", 1, "robot"),
            ("no", 1, ""),
        ):
            run(
                sa.text(
                    "INSERT INTO collections (id, name, kind, endpoint_id, base, site, owner, description, credential,"
                    " rate_until, created_at) VALUES (:i, :n, 'gridftp', :e, '/tape/', '', 'ann', '', :c, 0, 0)"
                ),
                {"i": str(uuid4()), "n": name, "e": endpoint, "c": credential},
            )
        connection.commit()
    done = CliRunner().invoke(command, ["upgrade", "--database", empty_database], catch_exceptions=False)
    differences(address)
    assert done.exit_code == 0
    assert "[credentials.robot]\n" in done.output
    assert 'for = ["gsiftp://[::1]:99/my%20data/tape/", "gsiftp://a.example:2811/my%20data/tape/"]' in done.output
    again = CliRunner().invoke(command, ["upgrade", "--database", empty_database], catch_exceptions=False)
    assert "[credentials.robot]\n" in again.output


def test_an_upgrade_that_binds_nothing_lists_nothing(empty_database):
    upgrade(addressed(empty_database))
    done = CliRunner().invoke(command, ["upgrade", "--database", empty_database], catch_exceptions=False)
    assert "credential" not in done.output


@pytest.fixture
async def world(database, tmp_path, start_gridftp, grid, alice, alice_proxy, no_usual_proxy):
    """Two GSI servers, each with a collection and its own required credential; no credential is bound yet."""
    servers = [
        start_gridftp(tmp_path / name, env=grid.server_env(grid.localhost), anonymous=False) for name in ("from", "to")
    ]
    settings = Settings(database, site="here", network=LOOPBACK)
    factory = Factory.of(settings, compiled=False)
    numbers = {name: uuid4() for name in ("source", "sink")}
    await factory.places.put_site("root", Site(name="here"))
    for name, server in zip(numbers, servers, strict=True):
        await factory.places.put_endpoint("root", endpoint_of(name, server.port, f"{server.root}"))
    async with factory.database.write() as connection:
        kept = CollectionStore(connection)
        for name in numbers:
            new = NewCollection(name=name, endpoint=name, credential="robot")
            await kept.put(numbers[name], "ann", new, time.time())
        numbers["local"] = uuid4()
        folder = NewCollection(name="local", kind="local", base=f"{tmp_path / 'local'}/", site="here")
        await kept.put(numbers["local"], "ann", folder, time.time())
    (tmp_path / "local").mkdir()
    yield World(factory, servers[0], servers[1], tmp_path / "local", numbers)
    factory.trees.close()
    await factory.database.close()


@pytest.fixture
def no_usual_proxy(monkeypatch, tmp_path, grid):
    monkeypatch.setenv("X509_CERT_DIR", str(grid.trusted))
    for name in ("X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


def endpoint_of(name, port, prefix, **more):
    where = {"scheme": "gsiftp", "host": "localhost", "port": port, "prefix": prefix}
    return Endpoint(name=name, site="here", write_priority=1, **where, **more)


def bind(world, proxy, *urls):
    """Write into the settings of broker and worker where the credential may be used; without a URL, nowhere."""
    places = tuple(map(place, urls)) if urls else None
    known = {"robot": CollectionCredential(proxy.certificate, places)}
    world.factory.trees._settings = world.factory.settings._replace(credentials=known)


def places_of(world):
    return [f"gsiftp://localhost:{server.port}{server.root}/" for server in (world.source, world.sink)]


async def tried(world):
    """Return the last error of a task, and its code."""
    number = await world.submit("TRANSFER", [Item(source="/a", destination="/a")])
    async with working(world):
        return await world.over(number)


async def faults_of(world, number):
    """Return codes and messages of a task's errors."""
    async with world.factory.database.read() as connection:
        rows = await connection.execute(
            sa.text("SELECT error_code, error FROM work WHERE task_id = :task AND error IS NOT NULL"), {"task": number}
        )
        return list(rows)


async def test_a_credential_is_shown_where_it_is_bound(world, alice_proxy):
    written = write(world.source.root, {"a": 3000})
    bind(world, alice_proxy, *places_of(world))
    assert (await tried(world)).status == "SUCCEEDED"
    assert read(world.sink.root) == written


async def test_a_credential_is_shown_for_files_that_workers_fetch(world, alice_proxy):
    written = write(world.source.root, {"a": 300_000})
    bind(world, alice_proxy, *places_of(world))
    async with working(world):
        task = await world.done("TRANSFER", [Item(source="/a", destination="/a")], "local")
    assert task.status == "SUCCEEDED"
    assert read(world.local) == written


@pytest.mark.parametrize("end", ["source", "sink"])
async def test_moving_an_endpoint_does_not_obtain_the_credential(world, grid, alice_proxy, end):
    """The credential is not used for either end of a copy between servers, nor for a listing."""
    write(world.source.root, {"a": 3000})
    bind(world, alice_proxy, *places_of(world))
    async with GreedyServer(grid, grid.localhost) as thief:
        server = world.source if end == "source" else world.sink
        await world.factory.places.put_endpoint("root", endpoint_of(end, thief.port, f"{server.root}", delegate=True))
        world.factory.places._until = 0.0
        task = await tried(world)
        assert task.status == "FAILED"
        faults = await faults_of(world, task.id)
        assert {code for code, _ in faults} == {"PERMISSION_DENIED"}
        assert all("ask an admin to put the endpoint back" in message for _, message in faults)
        collection = await world.factory.collections.called(end)
        with pytest.raises(PermissionRefused, match=f"the credential of {end} may not be used") as caught:
            await world.factory.trees.of(collection)
        assert "[credentials]" in caught.value.remedy
        assert "robot" not in str(caught.value)
        await asyncio.sleep(0)
    assert not thief.logins
    assert not thief.delegated


@pytest.mark.parametrize(
    "change",
    [
        {"prefix": "/"},
        {"base": "/../"},
        {"scheme": "ftp"},
        {"host": "127.0.0.1"},
    ],
)
async def test_a_wider_folder_or_another_name_gets_nothing(world, alice_proxy, change):
    if "base" in change:
        with pytest.raises(ValueError, match="component"):
            NewCollection(name="source", endpoint="source", **change)
        return
    bind(world, alice_proxy, *places_of(world))
    moved = endpoint_of("source", world.source.port, f"{world.source.root}").model_copy(update=change)
    await world.factory.places.put_endpoint("root", moved)
    with pytest.raises(PermissionRefused, match="may not be used"):
        await world.factory.trees.of(await world.factory.collections.called("source"))


async def test_a_plain_entry_is_shown_where_an_upgrade_found_it_and_nowhere_else(world, alice_proxy):
    bind(world, alice_proxy)
    collection = await world.factory.collections.called("source")
    with pytest.raises(PermissionRefused, match="may not be used"):
        await world.factory.trees.of(collection)
    async with world.factory.database.write() as connection:
        await connection.execute(
            sa.text("INSERT INTO credential_places VALUES ('robot', :url), ('other', :elsewhere)"),
            {"url": places_of(world)[0], "elsewhere": places_of(world)[1]},
        )
    write(world.source.root, {"a": 3})
    tree = await world.factory.trees.of(collection)
    assert (await tree.stat("/a")).size == 3
    with pytest.raises(PermissionRefused, match="may not be used"):
        await world.factory.trees.of(await world.factory.collections.called("sink"))


async def test_a_credential_that_is_not_known_here(world):
    with pytest.raises(PermissionRefused, match="the credential of source is not in the configuration"):
        await world.factory.trees.of(await world.factory.collections.called("source"))


@pytest.mark.parametrize("allowed", [True, False])
async def test_workers_delegate_only_where_an_admin_allowed_it(world, grid, alice_proxy, allowed):
    async with GreedyServer(grid, grid.localhost) as server:
        bind(world, alice_proxy, f"gsiftp://localhost:{server.port}/")
        await world.factory.places.put_endpoint("root", endpoint_of("source", server.port, "/", delegate=allowed))
        tree = await world.factory.trees.of(await world.factory.collections.called("source"))
        if allowed:
            await tree.stat("/file")
        else:
            with pytest.raises(Exception, match="may insist on a proxy"):
                await tree.stat("/file")
        assert len(server.delegated) == allowed
        world.factory.trees.close()


async def test_a_curator_moves_nothing_by_the_service_either(world):
    moved = endpoint_of("source", 9, "/")
    with pytest.raises(Forbidden):
        await world.factory.places.put_endpoint("eve", moved, "curator")
