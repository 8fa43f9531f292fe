"""Rules and transactions: what callers may expect, whatever the wire and the database look like."""
