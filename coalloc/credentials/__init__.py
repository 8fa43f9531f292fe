"""The user's credentials for web servers, and the decision which of them a server gets.

A credential goes to the server that it is for, and to no other. `presenter` finds the credentials of a request;
`decision` has the rules, which docs/explanation/trust.md explains. Nothing is read before a server may get it.
"""

from coalloc.credentials.known import Credentials
from coalloc.credentials.presenter import Presenter

__all__ = ["Credentials", "Presenter"]
