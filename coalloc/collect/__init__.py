"""Collect jobs: many files from many hosts to their destinations, through relays where that is faster.

As in a download, decisions are separate from their execution: a method (`methods`, pure) receives events and returns
actions; a runner (`runtime`) executes them on real servers, or a simulator (`simulation`, pure) in virtual time.
"""
