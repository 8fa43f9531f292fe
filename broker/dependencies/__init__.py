"""What handlers are given: who asks, and the services."""
