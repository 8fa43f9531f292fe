"""Several sessions with one server as one source."""
