"""The families of forecasters, one a file."""
