"""Rules and transactions of the broker, independent of the wire format and of the database's layout."""
