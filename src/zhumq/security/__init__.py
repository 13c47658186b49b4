"""Who may do what: ACLs, credentials, quotas. Pure decisions."""
