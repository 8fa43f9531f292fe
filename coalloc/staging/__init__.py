"""Carries out collections: many files from many hosts to where they are wanted, over other hosts where that pays.

As in a download, deciding is apart from doing: a method (`methods`, pure) is told what happens (`events`) and says what
is to be done (`actions`); a runner does it over real servers, or a simulator in virtual time.
"""
