"""SQL in, models out: nothing above knows of rows, nothing below of rules.

Each class works on one connection, inside a transaction that a service has begun.
"""
