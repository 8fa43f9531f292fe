"""Tasks for users: submission, state, progress, and notices of their end."""
