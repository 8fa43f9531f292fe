"""Max-flow and linear programs, by the optional libraries that are installed."""
