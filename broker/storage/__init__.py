"""Access to the database: classes that run SQL and return models.

They return no rows, and contain no rules. Each object works on one connection, inside a transaction of a service.
"""
