"""Collect jobs on real servers: a method's actions are carried out, and events are reported back.

A `carrier` transports pieces: kept `channels`, and a `hop_queue` for each link.
"""
