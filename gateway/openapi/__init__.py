"""The description of the HTTP API that the gateway publishes; made from what it enforces."""

from gateway.openapi.document import openapi_document

__all__ = ["openapi_document"]
