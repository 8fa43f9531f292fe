"""Limits of connections to one server, and of processes, over all transfers of this machine."""
