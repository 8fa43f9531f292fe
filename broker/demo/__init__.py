"""A demonstration: a made-up world with eight weeks behind it, so that each report has something to say.

What there is, and what happened, are pure functions of a seed and of the moment at which it all ends; `filling` takes
it in as real data come in. The same seed makes the same world, however late it ends.
"""
