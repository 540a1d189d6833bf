"""The same applications as the API's tests use."""

from tests.api.conftest import live, shared

__all__ = ["live", "shared"]
