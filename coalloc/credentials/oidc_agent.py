"""Tokens from the user's oidc-agent, which refreshes them by OAuth 2."""

import asyncio
import re

from coalloc.errors import PermissionRefused
from coalloc.safe_text import one_line

__all__ = ["token_of"]

ACCOUNT = re.compile(r"[\w.@:/+][\w.@:/+-]*")
"""Syntax of an account's name; it must not look like an option."""
LEAST_SECONDS = 120
"""Seconds for which a token must be valid at least."""
PATIENCE = 20.0
"""Time limit in seconds for the agent, which may have to ask the provider."""


async def token_of(account: str) -> str:
    """Return a token of an account of the agent.

    :raises PermissionRefused: when the agent gives none
    """
    remedy = f"start oidc-agent, and load the account: oidc-add {account}"
    if not ACCOUNT.fullmatch(account):
        raise PermissionRefused(f"{account!r} is no name of an account of oidc-agent", "correct it in config.toml")
    try:
        program = await asyncio.create_subprocess_exec(
            "oidc-token",
            f"--time={LEAST_SECONDS}",
            account,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        what = f"cannot start oidc-token for the account {account}: {error.strerror}"
        raise PermissionRefused(what, "install oidc-agent") from None
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await program.communicate()
    except TimeoutError:
        raise PermissionRefused(f"oidc-agent gave no token for {account} within {PATIENCE:g} s", remedy) from None
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()
    token = out.decode(errors="replace").strip()
    if program.returncode or not re.fullmatch("[!-~]+", token):
        said = one_line(err.decode(errors="replace").strip(), 200)
        raise PermissionRefused(f"oidc-agent gave no token for {account}: {said}", remedy)
    return token
