"""NRAS answers with exactly one fault each: the code that must be found, and the check finding it.

Each is the good answer with one fact changed, signed anew where it is signed, so that no earlier
check can hide the one under test. All are judged at AT under POLICY.
"""

from datetime import timedelta

from tests.attestation.nras.faulty import (
    DRIVER_CHAIN,
    GPU,
    Case,
    device,
    driver_chain,
    edit_part,
    overall,
    policy_with,
    sign_der,
    signed_by_another,
    two_gpus,
    wider,
    with_claims,
    with_header,
    with_jwks,
    with_key,
    with_submods,
    with_text,
)
from tests.attestation.nras.samples import (
    AT,
    KID,
    POLICY,
    Token,
    changed,
    digest,
    encode,
    good_answer,
    jwk,
    set_claims,
)

_NOW = int(AT.timestamp())

GOOD: tuple[Case, ...] = (
    Case("version 2.0", None, None, lambda: good_answer("2.0")),
    Case("with a switch", None, None, lambda: good_answer("3.0", (GPU, "SWITCH-0"))),
    Case("with a switch of 2.0", None, None, lambda: good_answer("2.0", (GPU, "SWITCH-0"))),
    Case("with a typ", None, None, with_header({"alg": "ES384", "kid": KID, "typ": "JWT"})),
    Case("JWKS says alg and use", None, None, with_key(alg="ES384", use="sig")),
    Case(
        "another key of a kind we do not take",
        None,
        None,
        with_jwks(
            lambda jwks: jwks["keys"].append({"kty": "RSA", "kid": "rsa", "n": "AQ", "e": "AQ"})
        ),
    ),
    Case(
        "end of a chain without Z",
        None,
        None,
        lambda: set_claims(GPU, driver_chain(expiration_date="2027-06-01T02:08:29")),
    ),
)

_FORMAT: tuple[Case, ...] = (
    Case("two parts", "format", "token_format", with_text(lambda token: token.rsplit(".", 1)[0])),
    Case("four parts", "format", "token_format", with_text(lambda token: token + ".")),
    Case(
        "space in the token",
        "format",
        "token_format",
        with_text(edit_part(1, lambda part: part + " ")),
    ),
    Case(
        "padded base64", "format", "token_format", with_text(edit_part(2, lambda part: part + "="))
    ),
    Case(
        "base64 of the other alphabet",
        "format",
        "token_format",
        with_text(edit_part(1, lambda part: "+" + part[1:])),
    ),
    Case(
        "stray bits in base64",
        "format",
        "token_format",
        with_text(edit_part(0, lambda part: part[:-1] + "R")),
    ),
    Case("header with crit", "format", "token_format", with_header({"crit": [], "alg": "ES384"})),
    Case(
        "another typ",
        "format",
        "token_format",
        with_header({"alg": "ES384", "kid": KID, "typ": "JWE"}),
    ),
    Case("kid that is no text", "format", "token_format", with_header({"alg": "ES384", "kid": 1})),
    Case(
        "submodule of unknown kind",
        "format",
        "token_format",
        lambda: changed(lambda a: a.devices.update({"CPU-0": a.devices.pop(GPU)})),
    ),
    Case(
        "own key in the header",
        "format",
        "token_signature",
        with_header({"alg": "ES384", "kid": KID, "jwk": {"kty": "EC"}}),
    ),
    Case("claim that occurs twice", "format", "token_signature", with_claims('{"a":1,"a":1}')),
    Case("claim that is a float", "format", "token_signature", with_claims('{"exp":1.5}')),
    Case("claims that are a list", "format", "token_signature", with_claims("[]")),
)

_SIGNATURE: tuple[Case, ...] = (
    Case("alg ES256", "algorithm", "token_format", with_header({"alg": "ES256", "kid": KID})),
    Case("alg none", "algorithm", "token_format", with_header({"alg": "none", "kid": KID})),
    Case("no alg", "algorithm", "token_format", with_header({"kid": KID})),
    Case(
        "device token of alg HS256",
        "algorithm",
        "token_format",
        with_header({"alg": "HS256", "kid": KID}, device=True),
    ),
    Case("no kid", "unknown_kid", "token_format", with_header({"alg": "ES384"})),
    Case(
        "kid of no key",
        "unknown_kid",
        "token_signature",
        with_header({"alg": "ES384", "kid": "other"}),
    ),
    Case(
        "signed by another key",
        "token_signature",
        "token_signature",
        signed_by_another(device=False),
    ),
    Case(
        "signature of zeros",
        "token_signature",
        "token_signature",
        with_text(edit_part(2, lambda _: encode(bytes(96)))),
    ),
    Case(
        "no signature", "token_signature", "token_signature", with_text(edit_part(2, lambda _: ""))
    ),
    Case("signature in DER", "token_signature", "token_signature", with_text(sign_der)),
    Case(
        "JWKS with a key id twice",
        "format",
        "jwks",
        with_jwks(lambda jwks: jwks["keys"].append(jwk())),
    ),
    Case("JWKS without keys", "format", "jwks", with_jwks(lambda jwks: jwks["keys"].clear())),
    Case(
        "JWKS with another member", "format", "jwks", with_jwks(lambda jwks: jwks.update(next="x"))
    ),
    Case("JWK of another curve", "bad_key", "token_signature", with_key(crv="P-256")),
    Case("JWK of another point", "bad_key", "token_signature", with_key(x=encode(bytes(48)))),
    Case(
        "JWK with a coordinate of 49 bytes",
        "bad_key",
        "token_signature",
        with_jwks(lambda jwks: jwks["keys"][0].update(x=wider(jwks["keys"][0]["x"]))),
    ),
    Case(
        "JWK with the certificate of another key",
        "bad_key",
        "token_signature",
        with_key(x5c=jwk(signer="another signer")["x5c"]),
    ),
    Case("JWK without certificate", "format", "token_signature", with_key(x5c=[])),
    Case("JWK for ES256", "algorithm", "token_signature", with_key(alg="ES256")),
    Case("JWK for encryption", "algorithm", "token_signature", with_key(use="enc")),
)

_OVERALL: tuple[Case, ...] = (
    overall("another subject", "token_type", "token_type", sub="NVIDIA-GPU-ATTESTATION"),
    overall(
        "issuer is the staging service",
        "claims",
        "token_type",
        iss="https://nras.attestation-stg.nvidia.com",
    ),
    overall(
        "claims of version 1.0", "unsupported_version", "token_type", **{"x-nvidia-ver": "1.0"}
    ),
    overall("expired", "token_expired", "token_dates", exp=_NOW),
    overall("not before a second from now", "token_not_yet_valid", "token_dates", nbf=_NOW + 1),
    overall("issued a second from now", "token_not_yet_valid", "token_dates", iat=_NOW + 1),
    Case(
        "signing certificate expired",
        "certificate_time",
        "token_dates",
        with_jwks(lambda jwks: jwks.update(keys=[jwk(not_after=AT - timedelta(seconds=1))])),
    ),
    overall("another nonce", "nonce_mismatch", "nonce", eat_nonce="00" * 32),
    overall("nonce with a byte more", "nonce_mismatch", "nonce", eat_nonce=bytes(range(33)).hex()),
    overall("empty nonce", "nonce_mismatch", "nonce", eat_nonce=""),
    Case("no submodules", "submod_set", "submods", lambda: changed(lambda a: a.devices.clear())),
    Case(
        "a device token that is not listed",
        "submod_set",
        "submods",
        with_submods(lambda token: {}),
    ),
    Case(
        "a listed device without a token",
        "submod_set",
        "submods",
        with_submods(lambda token: {GPU: digest(token), "GPU-1": digest(token)}),
    ),
    Case(
        "digest of another token",
        "submod_digest",
        "submods",
        with_submods(lambda token: {GPU: digest(token + "A")}),
    ),
    Case(
        "digest by another algorithm",
        "algorithm",
        "submods",
        with_submods(lambda token: {GPU: ["DIGEST", ["SHA-512", digest(token)[1][1]]]}),
    ),
    Case(
        "submodule that is no digest",
        "format",
        "submods",
        with_submods(lambda token: {GPU: ["JWT", token]}),
    ),
    overall(
        "overall result is false",
        "claims",
        "device_claims",
        **{"x-nvidia-overall-att-result": False},
    ),
    overall(
        "overall error",
        "claims",
        "device_claims",
        **{"x-nvidia-error-details": {"code": 4010}},
    ),
)

_DEVICE: tuple[Case, ...] = (
    Case(
        "device token signed by another key",
        "token_signature",
        "device_signatures",
        signed_by_another(device=True),
    ),
    Case(
        "overall token as device token",
        "token_type",
        "device_tokens",
        lambda: changed(lambda a: a.devices.update({GPU: Token(dict(a.overall.claims))})),
    ),
    Case(
        "device token of another issuer",
        "claims",
        "device_tokens",
        lambda: set_claims(GPU, {"iss": "x"}),
    ),
    Case(
        "device token expired",
        "token_expired",
        "device_tokens",
        lambda: set_claims(GPU, {"exp": _NOW}),
    ),
    Case(
        "device token for another nonce",
        "nonce_mismatch",
        "device_tokens",
        lambda: set_claims(GPU, {"eat_nonce": "00" * 32}),
    ),
    Case(
        "device token without a nonce",
        "claims",
        "device_tokens",
        lambda: set_claims(GPU, {}, drop=("eat_nonce",)),
    ),
    Case(
        "device error",
        "claims",
        "device_tokens",
        lambda: set_claims(GPU, {"x-nvidia-error-details": {"code": 4010}}),
    ),
    device("measurements do not match", {"measres": "fail"}),
    device("no secure boot", {"secboot": False}),
    device("secure boot is a number", {"secboot": 1}),
    device("debug enabled", {"dbgstat": "enabled"}),
    device("device of another maker", {"oemid": "1"}),
    device("report answers another nonce", {"x-nvidia-gpu-attestation-report-nonce-match": False}),
    device("RIM version does not match", {"x-nvidia-gpu-driver-rim-version-match": False}),
    device("unknown claim is false", {"x-nvidia-gpu-something-new": False}),
    device("certificate status is invalid", driver_chain(status="invalid")),
    device("certificate is revoked", driver_chain(ocsp_status="revoked")),
    device("certificate on hold", driver_chain(revocation_reason="certificateHold")),
    device("certificate ended", driver_chain(expiration_date="2026-12-01T12:00:00Z")),
    device("end of a certificate is no time", driver_chain(expiration_date="soon"), "format"),
    device("certificate chain is only true", {DRIVER_CHAIN: True}),
    device("unknown certificate chain is invalid", {"x-nvidia-new-cert-chain": {}}),
    device("device identity of another form", {"ueid": "0x1"}, "format"),
    device("no hardware model", {"hwmodel": None}),
    Case(
        "report signature not told",
        "claims",
        "device_claims",
        lambda: set_claims(GPU, {}, drop=("x-nvidia-gpu-attestation-report-signature-verified",)),
    ),
    Case(
        "one device twice",
        "claims",
        "device_claims",
        lambda: changed(two_gpus),
        policy_with(gpus=2),
    ),
)

_POLICY: tuple[Case, ...] = (
    Case(
        "version that the policy refuses",
        "claims",
        "claims_version",
        lambda: good_answer("2.0"),
        {**POLICY, "versions": ["3.0"]},
    ),
    Case(
        "older than the policy wants",
        "evidence_age",
        "token_age",
        good_answer,
        {**POLICY, "max_age_s": 59},
    ),
    Case(
        "warning",
        "claims",
        "nras_warning",
        lambda: set_claims(GPU, {"x-nvidia-attestation-warning": "CERTIFICATE_HOLD"}),
    ),
    Case("a GPU missing", "gpu_count", "gpu_count", good_answer, policy_with(gpus=8)),
    Case(
        "another hardware model",
        "gpu_arch",
        "hardware_model",
        lambda: set_claims(GPU, {"hwmodel": "GB100 A01 GSP BROM"}),
    ),
    Case(
        "another driver",
        "measurement_mismatch",
        "driver_version",
        lambda: set_claims(GPU, {"x-nvidia-gpu-driver-version": "535.86.09"}),
    ),
    Case(
        "another VBIOS",
        "measurement_mismatch",
        "vbios_version",
        lambda: set_claims(GPU, {"x-nvidia-gpu-vbios-version": "96.00.30.00.01"}),
    ),
    Case(
        "another device",
        "platform_not_allowed",
        "device_identity",
        lambda: set_claims(GPU, {"ueid": "1"}),
    ),
)

CASES = (*GOOD, *_FORMAT, *_SIGNATURE, *_OVERALL, *_DEVICE, *_POLICY)
