"""Decisions of workers: what a task may write or delete, turns, retries and numbers of lanes. Pure."""
