"""The daemon `coget-depot`: it accepts sessions, checks permissions, and carries bytes both ways."""
