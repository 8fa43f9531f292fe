"""Several identity providers at one web server, like Keycloak's realms, with real keys and signatures."""

import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.nginx import Nginx

__all__ = ["AUDIENCE", "Realms"]

AUDIENCE = "https://broker.example"


class Realms:
    """The identity providers (realms) of a running web server, each with its own key."""

    def __init__(self, nginx: Nginx, *names: str) -> None:
        self._nginx = nginx
        self._keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in names}
        for name, key in self._keys.items():
            folder = Path(nginx.root) / "realms" / name
            (folder / ".well-known").mkdir(parents=True)
            url = f"{self.url(name)}/jwks"
            (folder / ".well-known" / "openid-configuration").write_text(json.dumps({"jwks_uri": url}))
            public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
            (folder / "jwks").write_text(json.dumps({"keys": [{**public, "kid": "1"}]}))

    def url(self, name: str, host: str = "127.0.0.1") -> str:
        """Return the issuer URL of a realm.

        :param host: another host name of this machine gives another issuer
        """
        return f"http://{host}:{self._nginx.port}/realms/{name}"

    def token(self, name: str, sub: Any, host: str = "127.0.0.1") -> str:
        """Return a token that a realm has signed."""
        claims = {"iss": self.url(name, host), "sub": sub, "aud": AUDIENCE, "exp": time.time() + 600, "scope": "use"}
        return jwt.encode(claims, self._keys[name], "ES256", {"kid": "1"})
