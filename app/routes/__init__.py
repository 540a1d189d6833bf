"""One module a resource; a route holds no SQL."""
