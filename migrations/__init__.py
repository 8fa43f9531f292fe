"""Alembic versions of the tables; `coget-broker upgrade` runs them."""
