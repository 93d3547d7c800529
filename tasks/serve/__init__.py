"""Serve the publication over HTTP: `app` has the endpoints, `reloader` loads each new publication."""
