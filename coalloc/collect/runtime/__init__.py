"""Collect jobs on real servers: execution of a method's actions, and reports of events to it.

The `carrier` transports pieces, with a `hop_queue` for each link, which keeps `channels` open.
"""
