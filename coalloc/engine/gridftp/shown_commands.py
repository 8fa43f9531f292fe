"""Commands and replies of a control connection as users may see them: without secrets."""

import re
from urllib.parse import quote

from coalloc.engine.gridftp.replies import Reply
from coalloc.safe_text import hide

__all__ = ["command_shown", "reply_shown", "without_password"]

SECRET = ("PASS", "ACCT", "ADAT", "MIC", "CONF", "ENC", "DCSC")
"""Commands whose arguments are passwords, tokens or credentials."""
TOKEN = re.compile(r"ADAT=\S*")


def command_shown(command: str) -> str:
    """Return a command without the secrets in it.

    >>> command_shown("PASS hush"), command_shown("SIZE /data/x")
    ('PASS ...', 'SIZE /data/x')
    """
    verb = command.partition(" ")[0]
    return f"{verb} ..." if verb.upper() in SECRET else command


def without_password(reply: Reply, password: str) -> Reply:
    """Return a reply without the password of the session, which the server may repeat in any encoding.

    >>> without_password(Reply(530, ("not with hush!", )), "hush!").text
    'not with ...'
    """
    url = f"ftp://user:{quote(password, safe='')}@host/"
    return reply._replace(lines=tuple(hide(line, url) for line in reply.lines)) if password else reply


def reply_shown(reply: Reply, password: str) -> str:
    """Return a reply without tokens and the password of the session.

    >>> reply_shown(Reply(235, ("ADAT=c2VjcmV0",)), "")
    '235 ADAT=...'
    """
    return f"{reply.code} {TOKEN.sub('ADAT=...', without_password(reply, password).text)}"
