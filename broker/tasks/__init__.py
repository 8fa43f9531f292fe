"""Carries tasks out: workers lease work, do it over kept sessions, and record what came of it."""
