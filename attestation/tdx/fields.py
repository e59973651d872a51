"""Which byte of an Intel quote is what?  All of them, in order.  [Intel TDX DCAP Quoting Library]

For looking at quotes, also at those that would not verify: only lengths are held to the format.
"""

from attestation.errors import MalformedEvidence
from attestation.fields import Field, FieldWalk, Layout
from attestation.tdx.quote import MAX_QUOTE_BYTES

_TD10: Layout = (
    ("tee_tcb_svn", 16),
    ("mrseam", 48),
    ("mrsignerseam", 48),
    ("seam_attributes", 8),
    ("td_attributes", 8),
    ("xfam", 8),
    ("mrtd", 48),
    ("mrconfigid", 48),
    ("mrowner", 48),
    ("mrownerconfig", 48),
    ("rtmr0", 48),
    ("rtmr1", 48),
    ("rtmr2", 48),
    ("rtmr3", 48),
    ("report_data", 64),
)
_TD15: Layout = (*_TD10, ("tee_tcb_svn_2", 16), ("mrservicetd", 48))
_TD15_EX: Layout = (
    *_TD15,
    ("vmid", 1),
    ("td_id", 32),
    ("devinfo_hash", 48),
    ("init_servtd_hash", 48),
    ("init_servtd_attributes", 8),
    ("init_cpu_svn", 16),
    ("init_tee_tcb_svn", 16),
    ("init_fmspc", 12),
    ("cur_servtd_hash", 48),
    ("cur_servtd_attributes", 8),
)
_SGX: Layout = (
    ("cpu_svn", 16),
    ("miscselect", 4),
    ("reserved_1", 12),
    ("isv_ext_prod_id", 16),
    ("attributes", 16),
    ("mrenclave", 32),
    ("reserved_2", 32),
    ("mrsigner", 32),
    ("reserved_3", 32),
    ("config_id", 64),
    ("isv_prod_id", 2),
    ("isv_svn", 2),
    ("config_svn", 2),
    ("reserved_4", 42),
    ("isv_family_id", 16),
    ("report_data", 64),
)
_V5_BODIES = {1: _SGX, 2: _TD10, 3: _TD15, 4: _TD15_EX}
_TDX = 0x81


def quote_fields(data: bytes) -> tuple[Field, ...]:
    """Every byte of a quote of version 3 to 5, its padding included.

    Raises: MalformedEvidence("format"): too large, another version, or it ends too early.
    """
    if len(data) > MAX_QUOTE_BYTES:
        raise MalformedEvidence("format", f"quote: {len(data)} bytes, at most {MAX_QUOTE_BYTES}")
    walk = FieldWalk(data, "quote")
    version = walk.uint("header.version", 2)
    if version not in (3, 4, 5):
        raise MalformedEvidence("format", f"quote: version {version}, want 3 to 5")
    walk.uint("header.attestation_key_type", 2)
    tee_type = walk.uint("header.tee_type", 4)
    if version == 3:
        walk.uint("header.qe_svn", 2)
        walk.uint("header.pce_svn", 2)
    else:
        walk.take("header.reserved", 4)
    walk.take("header.qe_vendor_id", 16)
    walk.take("header.user_data", 20)
    body, name = (_TD10, "td_report") if tee_type == _TDX else (_SGX, "enclave_report")
    if version == 5:
        body_type = walk.uint("body.type", 2)
        walk.uint("body.size", 4)
        if body_type not in _V5_BODIES:
            raise MalformedEvidence("format", f"quote: body type {body_type}, want 1 to 4")
        body = _V5_BODIES[body_type]
    walk.layout(name, body)
    _signature_data(walk, version)
    walk.rest("after_the_end")
    return tuple(walk.fields)


def _signature_data(walk: FieldWalk, version: int) -> None:
    end = walk.uint("signature_data.size", 4) + walk.offset
    walk.take("signature", 64)
    walk.take("attestation_key", 64)
    if version > 3:
        walk.uint("qe_report_data.type", 2)
        walk.uint("qe_report_data.size", 4)
    walk.layout("qe_report", _SGX)
    walk.take("qe_report_signature", 64)
    walk.take("qe_auth_data", walk.uint("qe_auth_data.size", 2))
    walk.uint("certification_data.type", 2)
    walk.take("certification_data", walk.uint("certification_data.size", 4))
    if walk.offset < end:
        walk.take("signature_data.undeclared", end - walk.offset)
