"""The broker's rules and transactions, independent of the wire format and the database layout."""
