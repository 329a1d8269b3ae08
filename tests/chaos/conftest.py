"""The outside systems of the integration tests, for tests that kill them."""

from tests.integration.conftest import kafka, postgres, postgres_url

__all__ = ["kafka", "postgres", "postgres_url"]
