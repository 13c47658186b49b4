"""The resources of the REST API: what each request does, by operations of administration."""
