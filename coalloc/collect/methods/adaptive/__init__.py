"""The adaptive method of collecting (Confluence, 3.3, 3.4, 4.1): plans, dispatch, measured rates. Pure."""
