"""Solvers for max-flow and linear programs, with optional libraries."""
