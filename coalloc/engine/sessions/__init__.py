"""Several sessions with one server as one source, and limits of sessions per server and per machine."""
