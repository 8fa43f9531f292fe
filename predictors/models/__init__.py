"""The families of forecasters, one per module."""
