"""Authentication and authorization: tokens, logins, issuers, clients, permissions and quotas."""
