"""The history of transfers, forecasts based on it, and decisions with their results."""
