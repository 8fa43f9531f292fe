"""Promised finish times and rates: how likely they are, and what is needed to keep them. Pure."""
