"""Every client over TLS with SCRAM and over TLS with certificates, and Kafka's own commands for users, ACLs and quotas."""
