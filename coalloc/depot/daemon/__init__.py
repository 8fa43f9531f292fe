"""The daemon `coget-depot`: it accepts sessions, checks who may go where, and carries bytes both ways."""
