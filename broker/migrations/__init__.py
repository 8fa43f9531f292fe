"""Versions of the tables, by alembic; `coget-broker upgrade` runs them."""
