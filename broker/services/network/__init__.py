"""Sites, endpoints, measured links, and plans of transfers over them."""
