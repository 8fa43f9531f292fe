"""Forecasts of transfers from their history. No network, no clock, no database."""
