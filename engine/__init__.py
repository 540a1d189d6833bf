"""The learning engine: a language model served as a population that learns from its ratings.

Nothing in here knows of the web. The application talks to it through :mod:`engine.interface`.
"""
