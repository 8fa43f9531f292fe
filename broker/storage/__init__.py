"""Access to the database: SQL goes in, models come out.

Callers never see rows; nothing here decides rules.
Each class works on one connection, inside a transaction that a service has begun.
"""
