"""Sites, endpoints, requests to measure links, and the policy for addresses."""
