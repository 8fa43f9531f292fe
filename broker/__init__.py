"""The broker: replica locations, measured transfers, and forecasts of the next ones, over REST.

The broker is a separate service, which `coget` uses only over HTTP. Directory names follow the path of a request:
`handlers` declare routes, `services` have the rules and the transactions, `storage` has the SQL, `schema` has the
tables.
"""
