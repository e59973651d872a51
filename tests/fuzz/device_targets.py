"""Parsers of NVIDIA's and Amazon's Evidence, of tokens, and of the sealed channel."""

import base64
import hashlib
import json
from functools import cache

from cryptography.hazmat.primitives.serialization import Encoding
from lxml import etree  # type: ignore[import-untyped]

from attestation.certificate import Certificate, parse_certificate
from attestation.channel import PlainClientRequest, PlainServerRequest, ServerRequest, ehbp
from attestation.channel.bhttp import parse_request, parse_response
from attestation.channel.keyconfig import parse_key_config, parse_key_configs, serialize_key_configs
from attestation.nitro import cbor
from attestation.nitro.cose import parse_sign1
from attestation.nitro.document import parse_document
from attestation.nras.eat import parse_eat
from attestation.nras.jwks import parse_jwks
from attestation.nras.jws import parse_claims, parse_jws
from attestation.nvidia.chain import verify_device_chain
from attestation.nvidia.ocsp import verify_ocsp
from attestation.nvidia.opaque import parse_opaque
from attestation.nvidia.reader import Reader
from attestation.nvidia.report import parse_report, report_fields
from attestation.nvidia.rim import verify_rim
from attestation.nvidia.rim_service import parse_rim_answer
from attestation.nvidia.xmldsig import parse_enveloped
from tests.attestation.channel import exchange, keys, test_bhttp
from tests.attestation.nitro.samples import Indefinite, good_document
from tests.attestation.nitro.samples import cbor as encode_cbor
from tests.attestation.nras.samples import KID, good_answer, to_json
from tests.attestation.nvidia import device
from tests.fuzz import damage
from tests.fuzz.driver import Target
from tests.fuzz.seeds import with_published
from tests.vectors.nvidia_refs import pki, rim_documents


def gpu_report() -> Target:
    def parse(data: bytes) -> None:
        report_fields(data, "gpu")
        parse_report(data, "gpu")

    own = [device.hopper().report(), device.blackwell().report()]
    seeds = with_published(own, "nvidia/gpu/*.report.bin")
    return Target(name="gpu-report", parse=parse, seeds=seeds, mutate=damage.raw)


def switch_report() -> Target:
    seeds = with_published([device.switch().report()], "nvidia/switch/*.report.bin")
    return Target(
        name="switch-report",
        parse=lambda data: parse_report(data, "switch"),
        seeds=seeds,
        mutate=damage.raw,
    )


def opaque() -> Target:
    def parse(data: bytes) -> None:
        parse_opaque(Reader(data, what="opaque"), "gpu")

    gpus = (device.hopper(), device.blackwell())
    seeds = [gpu.report()[gpu.opaque_at + 2 : -96] for gpu in gpus]
    return Target(name="opaque", parse=parse, seeds=seeds, mutate=damage.raw)


def device_chain() -> Target:
    gpus = (device.hopper(), device.blackwell(), device.switch())
    own = [device.pem(gpu.certificates()) for gpu in gpus]
    trusted = gpus[0].pki.anchors
    return Target(
        name="device-chain",
        parse=lambda data: verify_device_chain(data, anchors=trusted, at=device.AT),
        seeds=with_published(own, "nvidia/gpu/hopper*.chain.pem"),
        mutate=damage.pem,
    )


def rim() -> Target:
    """The whole of a RIM is verified: what is not signed is not read."""
    own = [rim_documents.GOOD.encode()]
    trusted = pki.anchors()
    return Target(
        name="rim",
        parse=lambda data: verify_rim(data, anchors=trusted, at=pki.AT),
        seeds=with_published(own, "nvidia/rim/*.xml", "nvidia/rim/*.swidtag"),
        mutate=damage.XML,
    )


def rim_content() -> Target:
    """A RIM signed after it was damaged, so that its content is read."""
    trusted = pki.anchors()

    def parse(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        try:
            signed = pki.sign(text).encode()
        except (etree.LxmlError, ValueError, AssertionError):
            signed = data  # the signer refuses it; as it is, then
        verify_rim(signed, anchors=trusted, at=pki.AT)

    seeds = [rim_documents.document().encode(), rim_documents.document(edition="VBIOS").encode()]
    return Target(name="rim-content", parse=parse, seeds=seeds, mutate=damage.XML)


def xmldsig() -> Target:
    own = [rim_documents.GOOD.encode()]
    return Target(
        name="xmldsig",
        parse=lambda data: parse_enveloped(data, what="document"),
        seeds=own,
        mutate=damage.XML,
    )


def rim_answer() -> Target:
    text = rim_documents.GOOD.encode()
    answer = {
        "id": "NV_X",
        "rim": base64.b64encode(text).decode(),
        "sha256": hashlib.sha256(text).hexdigest(),
        "rim_format": "TCG",
    }
    return Target(
        name="rim-answer",
        parse=lambda data: parse_rim_answer(data, rim_id="NV_X"),
        seeds=[json.dumps(answer).encode()],
        mutate=damage.json_text,
    )


@cache
def _rim_chain() -> tuple[Certificate, ...]:
    return tuple(
        parse_certificate(one.public_bytes(Encoding.DER), what="rim", key_kinds=frozenset({"p384"}))
        for one in pki.chain()
    )


def ocsp() -> Target:
    subject, issuer = _rim_chain()[:2]
    own = [pki.Ocsp().make(), pki.Ocsp(nonce=bytes(32)).make()]
    return Target(
        name="ocsp",
        parse=lambda data: verify_ocsp(data, subject=subject, issuer=issuer, at=pki.AT, nonce=None),
        seeds=with_published(own, "nvidia/ocsp/*.der"),
        mutate=damage.der,
    )


def jws() -> Target:
    answer = good_answer()
    tokens = (answer.overall, *answer.devices.values())
    return Target(
        name="jws",
        parse=lambda data: parse_claims(parse_jws(data.decode("latin-1"), what="token")),
        seeds=[token.compact().encode() for token in tokens],
        mutate=damage.compact_jws,
    )


def eat() -> Target:
    own = [to_json(good_answer(version).bundle()) for version in ("2.0", "3.0")]
    return Target(
        name="eat",
        parse=lambda data: parse_eat(data).fields(),
        seeds=with_published(own, "jwt/nras/*.eat.json"),
        mutate=damage.json_text,
    )


def jwks() -> Target:
    own = [to_json(good_answer().jwks)]
    return Target(
        name="jwks",
        parse=lambda data: parse_jwks(data).find(KID),
        seeds=with_published(own, "jwt/nras/*.jwks.json"),
        mutate=damage.json_text,
    )


def cbor_value() -> Target:
    return Target(
        name="cbor",
        parse=lambda data: cbor.decode(data, what="value", are_maps_indefinite=True),
        seeds=[encode_cbor(Indefinite(good_document().members))],
        mutate=damage.CBOR,
    )


def cose() -> Target:
    own = [good_document().to_bytes()]
    return Target(
        name="cose",
        parse=lambda data: parse_document(parse_sign1(data, what="document").payload),
        seeds=with_published(own, "nitro/*.cose"),
        mutate=damage.CBOR,
    )


def nitro_document() -> Target:
    return Target(
        name="nitro-document",
        parse=parse_document,
        seeds=[encode_cbor(Indefinite(good_document().members))],
        mutate=damage.CBOR,
    )


def key_config() -> Target:
    def parse(data: bytes) -> None:
        parse_key_configs(data)
        parse_key_config(data)

    config = keys.SERVER_KEY.config
    seeds = [config.serialize(), serialize_key_configs([config, config])]
    return Target(name="key-config", parse=parse, seeds=seeds, mutate=damage.raw)


def bhttp_request() -> Target:
    seeds = [test_bhttp.KNOWN]
    return Target(name="bhttp-request", parse=parse_request, seeds=seeds, mutate=damage.raw)


def bhttp_response() -> Target:
    seeds = [test_bhttp.STREAMED]
    return Target(name="bhttp-response", parse=parse_response, seeds=seeds, mutate=damage.raw)


def ohttp_request() -> Target:
    return Target(
        name="ohttp-request",
        parse=lambda data: ServerRequest(keys.SERVER_KEYS).open_message(data),
        seeds=[exchange.REQUEST],
        mutate=damage.raw,
    )


def ohttp_response() -> Target:
    return Target(
        name="ohttp-response",
        parse=lambda data: exchange.CLIENT.response_opener().open_message(data),
        seeds=[exchange.RESPONSE],
        mutate=damage.raw,
    )


def ohttp_plain() -> Target:
    client = PlainClientRequest(keys.SERVER_KEY.config, rng=keys.fixed_rng("plain"))
    return Target(
        name="ohttp-plain",
        parse=lambda data: PlainServerRequest(keys.SERVER_KEYS, data),
        seeds=[client.seal_message(test_bhttp.KNOWN)],
        mutate=damage.raw,
    )


def ehbp_request() -> Target:
    client = ehbp.EhbpClientRequest(keys.SERVER_KEY.config, rng=keys.fixed_rng("ehbp"))
    body = b"".join(map(client.seal_chunk, exchange.CHUNKS))
    return Target(
        name="ehbp-request",
        parse=lambda data: ehbp.EhbpServerRequest([keys.SERVER_KEY], client.enc).open_message(data),
        seeds=[body],
        mutate=damage.raw,
    )
