"""Backends: what answers with any model of the family θ_0 + F + Σ c ε."""
