"""Tokens of an identity provider: real keys and signatures, documents served by nginx."""

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from broker.config.identity_providers import Issuer, issuers
from broker.config.settings import Settings
from broker.errors import Invalid
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.broker.conftest import Broker, running
from tests.support.nginx import Nginx

US = "https://broker.example"
ROLES = {"storage.read:/": "reader", "/lab/production": "transfer", "coget.admin": "admin"}


class Provider(NamedTuple):
    """An identity provider and its signing key."""

    url: str
    rsa: rsa.RSAPrivateKey
    ec: ec.EllipticCurvePrivateKey

    def token(self, algorithm: str = "RS256", kid: str | None = None, **claims: Any) -> str:
        """Return a valid token with the given changes."""
        usual = {
            "iss": self.url,
            "sub": "ann",
            "aud": US,
            "exp": time.time() + 600,
            "scope": "openid storage.read:/",
        }
        payload = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        key = self.rsa if algorithm == "RS256" else self.ec
        return jwt.encode(payload, key, algorithm, {"kid": kid or algorithm})


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    folder: Path = tmp_path_factory.mktemp("provider")
    known = folder / "root" / ".well-known"
    known.mkdir(parents=True)
    keys: tuple[Any, ...] = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
    algorithms: tuple[Any, ...] = (jwt.algorithms.RSAAlgorithm, jwt.algorithms.ECAlgorithm)
    shown = [
        {**json.loads(algorithm.to_jwk(key.public_key())), "kid": name}
        for algorithm, key, name in zip(algorithms, keys, ("RS256", "ES256"), strict=True)
    ]
    with Nginx(folder / "root", folder / "run") as nginx:
        url = nginx.url("")
        (known / "openid-configuration").write_text(json.dumps({"issuer": url, "jwks_uri": f"{url}jwks"}))
        (folder / "root" / "jwks").write_text(json.dumps({"keys": shown}))
        yield Provider(url, *keys)


@pytest.fixture
async def broker(provider: Provider, tmp_path: Path) -> AsyncIterator[Broker]:
    database = f"sqlite:///{tmp_path / 'b.sqlite'}"
    upgrade(addressed(database))
    async with running(Settings(database, issuers=(Issuer(provider.url, (US,), ROLES),))) as started:
        yield started


async def _asked(broker: Broker, token: str) -> tuple[int, dict]:
    answer = await broker.with_headers({"Authorization": f"Bearer {token}"}).get("/broker/v1/whoami")
    return answer.status_code, answer.json()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({}, "reader"),
        ({"scope": None, "wlcg.groups": ["/lab", "/lab/production"]}, "transfer"),
        ({"scope": "coget.admin storage.read:/"}, "admin"),
        ({"aud": ["other", US]}, "reader"),
        ({"exp": 4e9, "nbf": 1e9}, "reader"),
    ],
)
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_scopes_and_groups_give_roles(broker, provider, claims, role, algorithm):
    status, caller = await _asked(broker, provider.token(algorithm, **claims))
    assert (status, caller["role"], caller["subject"]) == (200, role, f"ann@{provider.url}")


def _of_nobody(provider: Provider) -> dict[str, str]:
    pem = provider.rsa.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    good = provider.token()
    head, body, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    hmac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    hs_head = jwt.utils.base64url_encode(b'{"alg":"HS256","kid":"RS256"}').decode()
    forged = jwt.utils.base64url_encode(hmac.sign(f"{hs_head}.{body}".encode(), pem)).decode()
    other_body = jwt.utils.base64url_encode(json.dumps({**claims, "sub": "root"}).encode()).decode()
    stranger = rsa.generate_private_key(65537, 2048)
    return {
        "expired": provider.token(exp=time.time() - 1),
        "not yet": provider.token(nbf=time.time() + 600),
        "for somebody else": provider.token(aud="https://other.example"),
        "for nobody": provider.token(aud=None),
        "for ever": provider.token(exp=None),
        "without subject": provider.token(sub=None),
        "of another issuer": provider.token(iss="https://evil.example/"),
        "of no issuer": provider.token(iss=None),
        "with an unknown key": provider.token(kid="other"),
        "with a key that it does not name": jwt.encode(claims, provider.rsa, "RS256"),
        "with a key of another kind": provider.token(kid="ES256"),
        "unsigned": jwt.encode(claims, None, "none", {"kid": "RS256"}),
        "signed with the public key as a secret": f"{hs_head}.{body}.{forged}",
        "of a stranger": jwt.encode(claims, stranger, "RS256", {"kid": "RS256"}),
        "with its own key": jwt.encode(
            claims,
            stranger,
            "RS256",
            {"kid": "RS256", "jwk": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(stranger.public_key()))},
        ),
        "changed": f"{head}.{other_body}.{signature}",
        "nonsense": "a.b.c",
        "empty": "..",
    }


async def test_every_invalid_token_is_refused_with_the_same_message(broker, provider):
    for what, token in _of_nobody(provider).items():
        status, answer = await _asked(broker, token)
        assert (status, answer["error"]["message"]) == (401, "the token is not valid here"), what


async def test_an_expired_token_gets_401_while_made_up_ones_are_limited(broker, provider):
    """Failed attempts count per subject, as signed by the issuer."""
    old = provider.token(exp=time.time() - 1)
    head, claims, _ = old.split(".")
    forged = f"{head}.{claims}.{'A' * 342}"
    assert [(await _asked(broker, forged))[0] for _ in range(31)] == [401] * 30 + [429]
    assert (await _asked(broker, old))[0] == 401
    assert [(await _asked(broker, provider.token(exp=time.time() - i)))[0] for i in range(1, 31)][-1] == 429
    assert (await _asked(broker, provider.token(exp=time.time() - 1, sub="another")))[0] == 401
    assert (await _asked(broker, provider.token()))[0] == 200


async def test_a_valid_token_without_a_role_is_refused_with_the_reason(broker, provider):
    status, answer = await _asked(broker, provider.token(scope="openid"))
    assert (status, f"ann@{provider.url} has no role here" in answer["error"]["message"]) == (403, True)


async def test_an_issuer_that_is_down_is_no_refusal(tmp_path, provider, broker):
    away = Issuer("http://127.0.0.1:9/", (US,), ROLES)
    async with running(broker.factory.settings._replace(issuers=(away,))) as other:
        status, answer = await _asked(other, provider.token(iss=away.url))
        assert (status, answer["error"]["code"]) == (503, "unavailable")


def _file(change: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "broker.toml"
        path.write_text(change)
        return path

    return write


GOOD = '[[issuer]]\nurl = "https://iam.example/"\naudience = "us"\nroles = { "a" = "reader" }\n'


def test_issuers_are_read_from_a_file(tmp_path):
    (issuer,) = issuers(_file(GOOD)(tmp_path))
    assert (issuer.url, issuer.audience, issuer.roles) == ("https://iam.example/", ("us",), {"a": "reader"})


@pytest.mark.parametrize(
    "text",
    [
        "[[issuer]]\n",
        GOOD + 'algorithms = ["HS256"]\n',
        GOOD + 'algorithms = ["none"]\n',
        GOOD + "surprise = 1\n",
        GOOD.replace("reader", "king"),
        GOOD.replace("https:", "file:"),
        GOOD.replace("https:", "HTTPS:"),
        GOOD.replace("https://iam.example/", "https:///x"),
        GOOD.replace("https://iam.example/", "https://[x"),
        GOOD.replace("example/", "example/#x"),
        GOOD.replace("example/", f"example/{'x' * 250}"),
        GOOD.replace('"us"', "[]"),
        "colour = 3\n",
        "{",
    ],
)
def test_an_invalid_file_is_refused_by_name(tmp_path, text):
    with pytest.raises(Invalid, match=r"broker\.toml"):
        issuers(_file(text)(tmp_path))
