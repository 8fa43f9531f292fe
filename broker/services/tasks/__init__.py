"""Tasks as users see them: submission, state, progress, and notices of their end."""
