"""Public fakes for tests of this project and of what is built on it: a virtual clock, simulated sources."""
