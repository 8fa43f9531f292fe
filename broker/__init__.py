"""The broker: where replicas are, what transfers achieved, and what to expect of the next one, over REST.

A service beside `coget`, which meets it only over HTTP. Folder names are the path of a request: `handlers` declare
routes, `services` have the rules and the transactions, `storage` speaks SQL, `schema` has the tables.
"""
