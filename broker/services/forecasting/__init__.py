"""The history of transfers, forecasts based on it, and decisions compared with their results."""
