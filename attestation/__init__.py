"""Is the machine at the other end what it claims to be?  Evidence in, AttestationResult out.

RFC 9334's roles and words. Values in, values out: time, policy, anchors and collateral are
arguments; files are read only by ``load_policy``, ``load_anchors``, ``commands``, ``fetch`` and the
runners of published cases.
"""

from attestation.anchors import TrustAnchors as TrustAnchors
from attestation.anchors import load_anchors as load_anchors
from attestation.appraise import appraise as appraise
from attestation.appraise import appraise_quote as appraise_quote
from attestation.appraise import appraise_report as appraise_report
from attestation.composite import Session as Session
from attestation.composite import SessionEndorsements as SessionEndorsements
from attestation.composite import appraise_session as appraise_session
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
from attestation.model import GpuEndorsements as GpuEndorsements
from attestation.model import GpuEntry as GpuEntry
from attestation.model import Nonce as Nonce
from attestation.model import parse_bundle as parse_bundle
from attestation.model import parse_nonce as parse_nonce
from attestation.policy import AppraisalPolicy as AppraisalPolicy
from attestation.policy import load_policy as load_policy
from attestation.profiles import SessionFacts as SessionFacts
from attestation.snp.endorsements import SnpEndorsements as SnpEndorsements
from attestation.tdx.endorsements import TdxCollateral as TdxCollateral
