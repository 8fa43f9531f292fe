"""Periodic work beside requests and tasks: probing, posting, scoring, and sums of traffic."""
