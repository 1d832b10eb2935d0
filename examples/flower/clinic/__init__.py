"""A small federated app: every client trains on one image."""
