"""Which parsers read bytes from outside?  One line each; a target is made when it is asked for."""

from collections.abc import Callable

from tests.fuzz import attestation_targets as attestation
from tests.fuzz import device_targets as devices
from tests.fuzz import gateway_targets as gateway
from tests.fuzz import model_targets as models
from tests.fuzz.driver import Target

TARGETS: dict[str, Callable[[], Target]] = {
    "tdx-quote": attestation.tdx_quote,
    "pck-extension": attestation.pck_extension,
    "tcb-info": attestation.tcb_info,
    "qe-identity": attestation.qe_identity,
    "collateral": attestation.collateral,
    "crl": attestation.crl,
    "certificate": attestation.certificate,
    "certificate-chain": attestation.certificate_chain,
    "bundle": attestation.bundle,
    "keyset": attestation.keyset,
    "strict-json": attestation.strict_json_text,
    "policy": attestation.policy,
    "snp-report": attestation.snp_report,
    "vcek": attestation.vcek,
    "hcl": attestation.hcl,
    "hcl-runtime": attestation.hcl_runtime,
    "tpm-quote": attestation.tpm_quote,
    "tpm-signature": attestation.tpm_signature,
    "tinfoil": attestation.tinfoil,
    "endorsement-files": attestation.endorsement_files,
    "ccel": attestation.ccel_log,
    "dstack-log": attestation.dstack_log,
    "der": attestation.der_value,
    "gpu-report": devices.gpu_report,
    "switch-report": devices.switch_report,
    "opaque": devices.opaque,
    "device-chain": devices.device_chain,
    "rim": devices.rim,
    "rim-content": devices.rim_content,
    "rim-answer": devices.rim_answer,
    "xmldsig": devices.xmldsig,
    "ocsp": devices.ocsp,
    "jws": devices.jws,
    "eat": devices.eat,
    "jwks": devices.jwks,
    "cbor": devices.cbor_value,
    "cose": devices.cose,
    "nitro-document": devices.nitro_document,
    "key-config": devices.key_config,
    "bhttp-request": devices.bhttp_request,
    "bhttp-response": devices.bhttp_response,
    "ohttp-request": devices.ohttp_request,
    "ohttp-response": devices.ohttp_response,
    "ohttp-plain": devices.ohttp_plain,
    "ehbp-request": devices.ehbp_request,
    "gguf": models.gguf,
    "safetensors": models.safetensors,
    "model-config": models.model_config,
    "chat-request": gateway.chat_request,
    "response-request": gateway.response_request,
    "completion-request": gateway.completion_request,
    "embedding-request": gateway.embedding_request,
    "http1": gateway.http1,
}


def load_target(name: str) -> Target:
    """Raises: KeyError: no parser of that name."""
    return TARGETS[name]()
