"""Pure functions that decide what a worker does: selection, deletion, order of tasks, retries, number of lanes."""
