"""Is the machine at the other end what it claims to be?  Evidence in, AttestationResult out.

RFC 9334's roles and words. Values in, values out: time, policy, anchors and collateral are
arguments; files are read only by ``collateral``, ``load_policy``, ``load_anchors`` and ``cli``.
"""

from attestation.anchors import TrustAnchors as TrustAnchors
from attestation.anchors import load_anchors as load_anchors
from attestation.appraise import appraise as appraise
from attestation.appraise import appraise_quote as appraise_quote
from attestation.errors import AttestationError as AttestationError
from attestation.errors import PolicyError as PolicyError
from attestation.evidence import make_bundle as make_bundle
from attestation.keyset import Keyset as Keyset
from attestation.keyset import OhttpKey as OhttpKey
from attestation.keyset import TlsKey as TlsKey
from attestation.keyset import build_keyset as build_keyset
from attestation.keyset import parse_keyset as parse_keyset
from attestation.model import AttestationResult as AttestationResult
from attestation.model import Check as Check
from attestation.model import EvidenceBundle as EvidenceBundle
from attestation.model import Nonce as Nonce
from attestation.model import parse_bundle as parse_bundle
from attestation.model import parse_nonce as parse_nonce
from attestation.policy import AppraisalPolicy as AppraisalPolicy
from attestation.policy import load_policy as load_policy
from attestation.tdx.endorsements import TdxCollateral as TdxCollateral
