"""Who somebody is, and what the broker signs."""

import time
from typing import Any

import jwt

from broker.models.identities import identity
from tests.broker.conftest import HERE


async def test_an_id_token_says_who_has_logged_in(broker, program, ann):
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
    monkeypatch.setattr("broker.services.keys.time.time", lambda: now + 8 * 86_400)
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
    for query in ({}, {"ids": "x"}, {"ids": ",".join([own["id"]] * 501)}, {"ids": own["id"], "usernames": "a@b"}):
        answer = await client.get("/v2/api/identities", params=query)
        assert (answer.status_code, answer.json()["errors"][0]["status"]) == (422, "422")
    nobody = await broker.with_headers({}).get("/v2/api/identities", params={"ids": own["id"]})
    assert (nobody.status_code, nobody.json()["errors"][0]["code"]) == (401, "UNAUTHORIZED")
