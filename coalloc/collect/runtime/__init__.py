"""Collect jobs on real servers: a method's actions are carried out, and events are reported back.

A `carrier` transports pieces: kept `channels`, and a `lane` for each ordered pair of hosts.
"""
