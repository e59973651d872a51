"""What does a model that only writes say to a request for embeddings?  That it cannot.

An adapter in front of a server with an embedding model answers them itself.
"""

from gateway.problems import GatewayError
from gateway.schemas.embeddings import parse_embedding_request
from gateway.worker.inner import InnerRequest
from gateway.worker.job import Job, ServedModel


async def embedding_job(model: ServedModel, request: InnerRequest) -> Job:
    """Raises: GatewayError, always."""
    asked = parse_embedding_request(request.body)
    model.require_name(asked.model)
    raise GatewayError("model_not_capable", "This model makes no embeddings.", param="model")
