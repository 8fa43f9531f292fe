"""A demonstration: an invented world with eight weeks of history, so that each report has data to show.

The world and its events are pure functions of a seed and of the moment at which the history ends; `filling` takes them
in as real data come in. The same seed makes the same world, whenever it ends.
"""
