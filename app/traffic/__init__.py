"""Simulated users inside the server: what they ask, how they are judged, and the run that they belong to."""
