"""OpenID Connect: the user's identity, and the documents that the broker signs."""

import time
from typing import Any

import httpx
import jwt

from broker.models.callers import NewToken
from broker.models.identities import identity
from broker.models.oauth import VIEW_CONSENTS
from tests.broker.conftest import HERE
from tests.broker.oauth.conftest import ALL, Program


async def test_an_id_token_names_the_user(broker, program, ann):
    answer = (await program.redeem(await program.code(ann, nonce="n1", scope="openid"))).json()
    keys = (await program.own.get("/jwk.json")).json()
    key = jwt.PyJWKSet.from_dict(keys).keys[0]
    claims = jwt.decode(answer["id_token"], key, ["RS256"], audience=program.number, issuer=HERE)
    assert (claims["sub"], claims["nonce"]) == (str(identity("ann")), "n1")
    assert claims["preferred_username"] == "ann@localhost"
    assert "email" not in claims
    assert not {"d", "p", "q"} & set(keys["keys"][0])


async def test_keys_are_rotated_and_the_old_one_is_shown_for_a_while(broker, program, ann, monkeypatch):
    answer = (await program.redeem(await program.code(ann))).json()
    await broker.factory.keys.rotate()
    keys = {each["kid"]: each for each in (await program.own.get("/jwk.json")).json()["keys"]}
    old = jwt.get_unverified_header(answer["id_token"])["kid"]
    assert (len(keys), list(keys)[1]) == (2, old)
    jwt.decode(answer["id_token"], jwt.PyJWK(keys[old]), ["RS256"], audience=program.number)
    fresh = (await program.redeem(await program.code(ann))).json()
    assert jwt.get_unverified_header(fresh["id_token"])["kid"] == next(iter(keys))
    now = time.time()
    monkeypatch.setattr("broker.services.auth.keys.time.time", lambda: now + 8 * 86_400)
    await broker.factory.keys.rotate()
    assert old not in {each["kid"] for each in (await program.own.get("/jwk.json")).json()["keys"]}


async def test_identities_are_found_by_name_and_by_number(broker, program, ann):
    token = (await program.login(ann))["auth.globus.org"]["access_token"]
    await broker.factory.identities.seen("bob@iam.example", "Bob", "bob@iam.example")
    client = broker.with_headers({"Authorization": f"Bearer {token}"})

    async def found(**query: str) -> list[dict[str, Any]]:
        return (await client.get("/v2/api/identities", params=query)).json()["identities"]

    (own,) = await found(usernames="ann@localhost,nobody@localhost")
    assert (own["id"], own["username"], own["status"]) == (str(identity("ann")), "ann@localhost", "used")
    (bob,) = await found(ids=str(identity("bob@iam.example")))
    assert (bob["username"], bob["name"], bob["email"]) == ("bob@iam.example", "Bob", None)
    both = {"ids": own["id"], "usernames": "a@b"}
    for query in ({}, both, {"usernames": "ann\0"}, {"ids": "x"}, {"ids": ",".join([own["id"]] * 501)}):
        answer = await client.get("/v2/api/identities", params=query)
        assert (answer.status_code, answer.json()["errors"][0]["status"]) == (422, "422")
    nobody = await broker.with_headers({}).get("/v2/api/identities", params={"ids": own["id"]})
    assert (nobody.status_code, nobody.json()["errors"][0]["code"]) == (401, "UNAUTHORIZED")


async def test_consents_list_the_granted_scopes_of_the_users_own_programs(broker, program, native, ann):
    one, other = await program.login(ann), await native.login(ann, scope=f"{ALL} {VIEW_CONSENTS}", access_type=None)
    bob = (await broker.factory.tokens.issue("tests", NewToken(subject="bob", role="transfer"))).token
    await Program(broker, program.number, program.secret).login(bob)
    mine = f"/v2/api/identities/{identity('ann')}/consents"

    async def asked(token: str, path: str = mine, **query: str) -> httpx.Response:
        return await broker.with_headers({"Authorization": f"Bearer {token}"}).get(path, params=query)

    async def given(token: str, **query: str) -> dict[tuple[str, str], dict[str, Any]]:
        consents = (await asked(token, **query)).json()["consents"]
        assert len({each["id"] for each in consents}) == len(consents)
        return {(each["client"], each["scope_name"]): each for each in consents}

    own = {(program.number, scope) for scope in ("openid", "email", ALL)}
    others = {(native.number, scope) for scope in (ALL, VIEW_CONSENTS)}
    first, second = (each["auth.globus.org"]["access_token"] for each in (one, other))
    shown = await given(first, all="False")
    assert shown.keys() == own
    assert {each["effective_identity"] for each in shown.values()} == {str(identity("ann"))}
    assert all(each["allows_refresh"] and not each["auto_approved"] for each in shown.values())
    assert (await given(second)).keys() == others
    every = await given(second, all="True")
    assert every.keys() == own | others
    assert not every[native.number, ALL]["allows_refresh"]
    for answer in (
        await asked(first, all="True"),
        await asked(first, f"/v2/api/identities/{identity('bob')}/consents"),
        await asked(first, "/v2/api/identities/x/consents"),
    ):
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (403, "FORBIDDEN")
    await program.ask("token/revoke", token=one["transfer.api.globus.org"]["refresh_token"])
    assert (await given(second, all="True")).keys() == (own | others) - {(program.number, ALL)}
