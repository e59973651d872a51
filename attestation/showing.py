"""What does Evidence of each kind say, field by field?  For looking: nothing here is verified."""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from attestation.errors import MalformedEvidence
from attestation.fields import Field, FieldWalk
from attestation.kinds import Kind
from attestation.model import parse_bundle
from attestation.nitro.cose import parse_sign1
from attestation.nitro.document import parse_document
from attestation.nras.eat import parse_eat
from attestation.nvidia.report import report_fields
from attestation.snp.azure import parse_hcl
from attestation.snp.report import REPORT_BYTES
from attestation.snp.report import fields as snp_fields
from attestation.strict_json import JsonValue
from attestation.tdx.fields import quote_fields
from attestation.tinfoil import parse_tinfoil

MAX_KEYSET_FIELDS = 4096  # three lists of 255 keys have 2040
_HCL_HEADER_BYTES = 32
_HCL_RUNTIME_HEADER_BYTES = 20


class AnyField(Protocol):
    """What every family's fields have in common."""

    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def value(self) -> str: ...


def show_fields(kind: Kind, data: bytes) -> list[Field]:
    """Every field; of binary kinds every byte is in exactly one.  JSON and CBOR have no offsets.

    Raises: AttestationError: it does not follow its format far enough.
    """
    return _SHOWERS[kind](data)


def _copied(fields: Iterable[AnyField], prefix: str = "", base: int = 0) -> list[Field]:
    return [
        Field(
            name=prefix + field.name,
            offset=base + field.offset,
            size_bytes=field.size_bytes,
            value=field.value,
        )
        for field in fields
    ]


def _named(pairs: Iterable[tuple[str, str]], prefix: str = "") -> list[Field]:
    return [Field(name=prefix + name, offset=0, size_bytes=0, value=value) for name, value in pairs]


def _snp(data: bytes) -> list[Field]:
    shown = _copied(snp_fields(data[:REPORT_BYTES]))
    walk = FieldWalk(data, "report", offset=REPORT_BYTES)
    walk.rest("after_the_report")
    return shown + walk.fields


def _azure(data: bytes) -> list[Field]:
    hcl = parse_hcl(data)
    walk = FieldWalk(data, "HCL blob")
    walk.take("hcl.header", _HCL_HEADER_BYTES)
    walk.fields += _copied(snp_fields(hcl.report), "report.", walk.offset)
    walk.offset += REPORT_BYTES
    walk.take("hcl.runtime_header", _HCL_RUNTIME_HEADER_BYTES)
    text = hcl.runtime_json.decode("utf-8", "replace")
    walk.take("hcl.runtime_json", len(hcl.runtime_json), value=text)
    walk.rest("after_the_runtime_data")
    return walk.fields


def _gpu(data: bytes) -> list[Field]:
    try:
        return _copied(report_fields(data, "gpu"))
    except MalformedEvidence:
        return _copied(report_fields(data, "switch"))


def _nitro(data: bytes) -> list[Field]:
    message = parse_sign1(data, what="Nitro document")
    return _named(
        (
            *parse_document(message.payload).fields(),
            ("signature", message.signature.hex()),
        )
    )


def _bundle(data: bytes) -> list[Field]:
    bundle = parse_bundle(data)
    evidence: Kind = "snp" if bundle.tee == "snp" else "quote"
    shown = _named((("tee", bundle.tee), ("statement", bundle.statement)))
    shown += _named(_flat("keyset", bundle.keyset))
    shown += _copied(_SHOWERS[evidence](bundle.quote), f"{evidence}.")
    for index, entry in enumerate(bundle.gpu):
        shown += _copied(_gpu(entry.report), f"gpu-{index}.")
    if bundle.nras is not None:
        shown += _named(parse_eat(bundle.nras).fields(), "nras.")
    return shown


def _tinfoil(data: bytes) -> list[Field]:
    session = parse_tinfoil(data)
    stated = session.stated
    facts = {
        "nonce": stated.nonce,
        "tls_key_sha256": stated.tls_key_sha256,
        "hpke_key": stated.hpke_key,
        "gpu_sha256": stated.gpu_sha256,
    }
    shown = _named(
        (f"stated.{name}", "absent" if value is None else value.hex())
        for name, value in facts.items()
    )
    evidence: Kind = "snp" if session.label == "snp" else "quote"
    shown += _copied(_SHOWERS[evidence](session.cpu), f"{evidence}.")
    for index, entry in enumerate(session.gpu):
        shown += _copied(_gpu(entry.report), f"gpu-{index}.")
    return shown


def _flat(name: str, value: JsonValue) -> Iterable[tuple[str, str]]:
    """One field a value.  Raises: MalformedEvidence("format"): more than any keyset has."""
    for number, field in enumerate(_leaves(name, value)):
        if number == MAX_KEYSET_FIELDS:
            raise MalformedEvidence("format", f"{name}: more than {MAX_KEYSET_FIELDS} values")
        yield field


def _leaves(name: str, value: JsonValue) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _leaves(f"{name}.{key}", member)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}.{index}", item)
    else:
        yield name, str(value)


_SHOWERS: Mapping[Kind, Callable[[bytes], list[Field]]] = {
    "bundle": _bundle,
    "tinfoil": _tinfoil,
    "quote": lambda data: list(quote_fields(data)),
    "snp": _snp,
    "azure-snp": _azure,
    "gpu": _gpu,
    "nras": lambda data: _named(parse_eat(data).fields()),
    "nitro": _nitro,
}
