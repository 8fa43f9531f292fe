"""Periodic jobs: probing of links, posting of reports, scoring of forecasts, and traffic sums."""
