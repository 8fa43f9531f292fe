"""Fakes for tests of this project and of projects that build on it: a virtual clock, simulated sources."""
