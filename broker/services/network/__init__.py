"""Sites, endpoints, measured links, and the addresses that may be connected to."""
