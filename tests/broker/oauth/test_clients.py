"""OAuth clients: identities, registration and removal."""

import base64
import time

import pytest

from broker.errors import TooManyRequests
from broker.models.identities import identity
from tests.broker.oauth.conftest import ALL, Program, by_server, userinfo, whoami


@pytest.mark.parametrize("secret", ["cogetb_wrong", "", "x" * 10_000])
async def test_a_client_without_its_secret_is_refused(program, secret):
    program.secret = secret
    answer = await program.ask(grant_type="client_credentials")
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert answer.headers["WWW-Authenticate"].startswith("Basic")


async def test_a_client_that_registered_itself_may_do_nothing_for_itself(broker, program, native):
    for client in (program, native):
        answer = await client.ask(grant_type="client_credentials", scope=ALL)
        assert (answer.status_code, answer.json()["error"]) == (400, "unauthorized_client")


async def test_a_revoked_service_has_nothing_left(broker):
    client, secret = await broker.factory.clients.make("tests", "robot", "curator")
    robot = Program(broker, client.id, secret)
    tokens = by_server((await robot.ask(grant_type="client_credentials")).json())
    access = tokens["transfer.api.globus.org"]["access_token"]
    assert (await whoami(broker, access)).json()["role"] == "curator"
    assert (await userinfo(broker, tokens["auth.globus.org"]["access_token"])).json()["sub"] == str(identity("robot"))
    await broker.factory.clients.revoke("tests", client.id)
    assert (await whoami(broker, access)).status_code == 401
    assert (await robot.ask(grant_type="client_credentials")).json()["error"] == "invalid_client"


async def test_a_service_may_send_its_secret_as_a_refresh_token(broker, program, native, ann):
    client, secret = await broker.factory.clients.make("tests", "rucio", "transfer")

    async def refresh(number, token, **fields):
        form = {"grant_type": "refresh_token", "client_id": number, "refresh_token": token, **fields}
        return await broker.with_headers({}).post("/v2/oauth2/token", data=form)

    for _ in range(2):  # it is no token that is valid once
        answer = (await refresh(client.id, secret)).json()
        assert (answer["resource_server"], answer["other_tokens"]) == ("transfer.api.globus.org", [])
        assert (await whoami(broker, answer["access_token"])).json()["role"] == "transfer"
        assert "refresh_token" not in answer
    wrong = [
        (client.id, "wrong", {}),
        (client.id, "", {}),
        (client.id, secret, {"client_secret": "wrong"}),
        (program.number, program.secret, {}),  # it has no role
        (native.number, secret, {}),
        ("unknown", secret, {}),
    ]
    for number, token, fields in wrong:
        assert (await refresh(number, token, **fields)).status_code in (400, 401)
    login = await program.login(ann)
    own = login["transfer.api.globus.org"]["refresh_token"]
    assert (await refresh(program.number, own)).status_code == 401, "a refresh token does not authenticate its client"
    await broker.factory.clients.revoke("tests", client.id)
    assert (await refresh(client.id, secret)).status_code == 401
    assert (await whoami(broker, answer["access_token"])).status_code == 401


async def test_clients_register_themselves_and_end_themselves(broker, program, ann):
    nobody = broker.with_headers({})
    body = {"client": {"template_id": "95fdeba8-fac2-42bd-a357-e068d82ff78e", "name": "Globus CLI"}}
    made = await nobody.post("/v2/api/clients", json=body)
    assert made.status_code == 201
    credential = made.json()["included"]["client_credential"]
    new = Program(broker, credential["client"], credential["secret"])
    tokens = await new.login(ann)
    who = (new.number, new.secret)
    assert (await nobody.get(f"/v2/api/clients/{new.number}", auth=who)).json()["client"]["name"] == "Globus CLI"
    assert (await nobody.get(f"/v2/api/clients/{program.number}", auth=who)).status_code == 403
    assert (await nobody.delete(f"/v2/api/clients/{new.number}")).status_code == 401
    assert (await nobody.delete(f"/v2/api/clients/{new.number}", auth=who)).status_code == 200
    assert (await nobody.get(f"/v2/api/clients/{new.number}", auth=who)).status_code == 401
    access = tokens["transfer.api.globus.org"]["access_token"]
    assert (await whoami(broker, access)).status_code == 401
    assert (await nobody.post("/v2/api/clients", content=b" " * 100_000)).status_code == 413
    for wrong in ({}, {"client": {}}, {"client": {"name": ""}}, {"client": {"name": "x" * 101}}, [], None):
        answer = await nobody.post("/v2/api/clients", json=wrong)
        assert (answer.status_code, answer.json()["errors"][0]["status"]) == (422, "422")


async def test_one_address_registers_so_many_clients_and_no_more(broker):
    nobody = broker.with_headers({})
    answers = [await nobody.post("/v2/api/clients", json={"client": {"name": "x"}}) for _ in range(61)]
    assert [answer.status_code for answer in answers] == [201] * 60 + [429]
    assert answers[-1].json()["errors"][0]["code"] == "TOO_MANY_REQUESTS"


async def test_a_dual_stack_socket_distinguishes_ipv4_addresses(broker):
    clients = broker.factory.clients
    for _ in range(60):
        await clients.register("x", "::ffff:192.0.2.1")
    for address in ("::ffff:192.0.2.2", "::1"):
        await clients.register("x", address)
    for address in ("::ffff:192.0.2.1", "192.0.2.1"):
        with pytest.raises(TooManyRequests):
            await clients.register("x", address)


async def test_clients_without_a_login_are_forgotten(broker, program, ann, monkeypatch):
    await program.login(ann)
    unused, _ = await broker.factory.clients.register("unused", "192.0.2.1")
    now = time.time()
    monkeypatch.setattr("broker.services.auth.clients.time.time", lambda: now + 86_401)
    await broker.factory.clients.register("later", "192.0.2.1")
    assert await broker.factory.clients.known(unused.id) is None
    assert await broker.factory.clients.known(program.number) is not None


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic " + base64.b64encode(b"nocolon").decode(), "Bearer x"])
async def test_an_invalid_client_header_is_refused(program, header):
    answer = await program.own.post(
        "/v2/oauth2/token", data={"grant_type": "client_credentials"}, headers={"Authorization": header}
    )
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
