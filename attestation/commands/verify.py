"""`starshade attest verify`: is this Evidence good?  Words first, then every check."""

import json
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click

from attestation.anchors import TrustAnchors, load_anchors
from attestation.appraise import reject_unread
from attestation.certificate import KEY_KINDS, MAX_CERTIFICATE_BYTES, parse_certificate, read_pem
from attestation.commands.asking import EvidenceSource, ask, require_askable
from attestation.commands.common import (
    EXIT_INTERNAL,
    EXIT_UNAVAILABLE,
    FILE,
    UtcTime,
    exit_code,
    kind_option,
    policy_option,
    read_bounded,
    read_opened,
)
from attestation.commands.fetching import FetchOptions, client_certificate_options, fetch_options
from attestation.commands.next_steps import INCOMPLETE, after_refusal, tell_next, tell_no_verdict
from attestation.commands.render import show_verdict, tell, tell_internal
from attestation.endorsement_files import MAX_ENDORSEMENT_BYTES, sort_endorsements
from attestation.errors import (
    AttestationError,
    EvidenceUnavailable,
    MalformedEvidence,
    UntrustedEndorsement,
)
from attestation.fetch.errors import FetchConfigError
from attestation.judging import NONCE_NEEDED, Request, judge
from attestation.kinds import Kind, guess_kind, unpacked
from attestation.model import (
    MAX_BUNDLE_BYTES,
    NONCE_BYTES,
    AttestationResult,
    Nonce,
    parse_nonce,
)
from attestation.nras.eat import MAX_EAT_BYTES
from attestation.nras.jwks import MAX_JWKS_BYTES, parse_jwks
from attestation.policy import AppraisalPolicy
from attestation.snp.azure import TpmAnswer
from attestation.snp.tpm import MAX_ATTEST_BYTES

_NAMING_KEYS: frozenset[Kind] = frozenset({"bundle", "tinfoil"})
_SHA256 = re.compile(r"[0-9a-f]{64}")


@click.command(
    short_help="Judge EVIDENCE, or that of the gateway at URL.",
    epilog="\b\nExample:\n  starshade attest verify https://127.0.0.1:8443/v1 --ca-file ca.pem",
)
@click.argument("evidence", metavar="EVIDENCE|URL", type=EvidenceSource())
@kind_option
@click.option(
    "--collateral",
    "endorsement_paths",
    type=FILE,
    multiple=True,
    help="Intel's collateral JSON; AMD's certificate, chain and CRL; a GPU's chain, RIMs and OCSP "
    "answers. Repeat it; each file is told by what it is, and wins over what a bundle carries.",
)
@click.option("--jwks", "jwks_path", type=FILE, help="Keys of NVIDIA's service, fetched by you.")
@click.option(
    "--nras", "nras_path", type=FILE, help="An NRAS token that came beside a tinfoil document."
)
@click.option("--tpm-quote", type=FILE, help="An Azure guest's answer to --nonce: TPMS_ATTEST.")
@click.option("--tpm-signature", type=FILE, help="Its signature: TPMT_SIGNATURE.")
@policy_option
@click.option(
    "--nonce",
    help="The nonce you asked with: 64 lower-case hex digits; anything else is malformed, exit 30.",
)
@click.option("--node", help="Ask URL for the Evidence of this worker behind it.")
@click.option("--tls-key", help="SHA-256 of your connection's public key (SPKI), in hex.")
@click.option(
    "--trust-anchor",
    "anchor_paths",
    type=FILE,
    multiple=True,
    help="One more root to trust, one certificate a file; the verdict is a warning at best.",
)
@click.option("--at", type=UtcTime(), help="Judge as of this ISO 8601 time.  [default: now]")
@fetch_options
@client_certificate_options
@click.option("--json", "as_json", is_flag=True, help="Print the AttestationResult as JSON.")
@click.pass_context
def verify(
    ctx: click.Context,
    evidence: BinaryIO | str,
    kind: Kind | None,
    endorsement_paths: tuple[Path, ...],
    jwks_path: Path | None,
    nras_path: Path | None,
    tpm_quote: Path | None,
    tpm_signature: Path | None,
    policy: AppraisalPolicy,
    nonce: str | None,
    node: str | None,
    tls_key: str | None,
    anchor_paths: tuple[Path, ...],
    at: datetime | None,
    as_json: bool,
    fetching: FetchOptions,
) -> None:
    """Judge EVIDENCE, '-' for standard input, in binary or hex.

    It is a bundle or tinfoil document (JSON), an Intel quote, an SNP report or Azure blob, a GPU
    report, an NRAS token or a Nitro document.

    URL, https://host[:port][/v1], is a gateway. It is asked with --nonce, else with a fresh one,
    over TLS 1.3 under the system's CAs, or under those of --ca-file alone, and must attest the TLS
    key of that connection. A worker, --node, has no such key: then no connection is bound.

    Bundles, documents, GPU reports and tokens are judged only against the nonce you chose: checked
    against its own nonce it could be a recording.  A bare quote or report must hold the nonce and
    zeros as its report data; without --nonce freshness is not judged and the result says so. An
    Azure blob never holds a nonce: its TPM answers one, by --tpm-quote and --tpm-signature.

    Without --collateral, what is needed comes from the bundle, else from the cache, else from the
    vendors' services; --offline stops at the cache. A GPU's chain has to be given.

    Exit codes: 0 accepted, 2 usage, 10 rejected, 20 unsupported, 30 malformed, 40 collateral or
    gateway not available, 70 internal error.
    """
    moment = at or datetime.now(UTC)  # noqa: TID251 - the process edge
    anchors = _with_foreign(load_anchors(), anchor_paths)
    data, tls_key_sha256 = b"", _digest(tls_key)
    found: Kind
    try:
        own_nonce = None if nonce is None else parse_nonce(nonce)
        if isinstance(evidence, str):
            require_askable(fetching, kind=kind, tls_key=tls_key)
            own_nonce = own_nonce or Nonce(secrets.token_bytes(NONCE_BYTES))
            delivery = ask(evidence, fetching, nonce=own_nonce, node=node)
            moment = at or datetime.now(UTC)  # noqa: TID251 - what was just made is no older
            data, found = delivery.evidence, "bundle"
            tls_key_sha256 = delivery.tls_key_sha256 if node is None else None
        else:
            if node is not None:
                raise click.UsageError("--node is for a URL")
            data = unpacked(read_opened(evidence, MAX_BUNDLE_BYTES))
            found = kind or guess_kind(data)
        if found in NONCE_NEEDED and own_nonce is None:
            raise click.UsageError(f"{found} is judged against the nonce you chose: give --nonce")
        if tls_key is not None and found not in _NAMING_KEYS:
            raise click.UsageError(f"--tls-key is for what names keys, and {found} names none")
        if nras_path is not None and found != "tinfoil":
            raise click.UsageError(f"--nras is for a tinfoil document, not for {found}")
        tpm = _tpm_answer(found, tpm_quote, tpm_signature, own_nonce)
        files = [_read(path) for path in endorsement_paths]
        request = Request(
            evidence=data,
            nonce=own_nonce,
            files=sort_endorsements(files),
            jwks=None
            if jwks_path is None
            else parse_jwks(read_bounded(jwks_path, MAX_JWKS_BYTES, option="--jwks")),
            nras=None
            if nras_path is None
            else read_bounded(nras_path, MAX_EAT_BYTES, option="--nras"),
            tls_key_sha256=tls_key_sha256,
            policy=policy,
            anchors=anchors,
            at=moment,
            tpm=tpm,
        )
        if not endorsement_paths or found == "gpu":
            request = completed_request(found, request, fetching)
        result = judge(found, request)
    except EvidenceUnavailable as err:
        result = reject_unread(err, data, policy=policy, at=moment)
        if not as_json:
            tell_no_verdict(err)
            ctx.exit(exit_code(result))
    except AttestationError as err:
        result = reject_unread(err, data, policy=policy, at=moment)
    except FetchConfigError as err:
        raise click.UsageError(str(err)) from err
    except click.ClickException:
        raise
    except Exception as err:
        tell_internal(err, as_json=as_json, accepted=False)
        ctx.exit(EXIT_INTERNAL)
    _print(result, as_json=as_json)
    if isinstance(evidence, str) and not result.is_accepted and not as_json:
        tell_next(after_refusal(result.code, policy=result.policy_name))
    elif exit_code(result) == EXIT_UNAVAILABLE and not as_json:
        tell_next(INCOMPLETE)
    ctx.exit(exit_code(result))


def completed_request(kind: Kind, request: Request, fetching: FetchOptions) -> Request:
    """With what vouches for the Evidence, from the cache or the vendors; gaps go to stderr."""
    from attestation.fetch.complete import completed  # brings an HTTP client

    with fetching.endorser(request.at) as endorser:
        request = completed(kind, request, endorser, token_bytes=secrets.token_bytes)
    for failure in endorser.failures:
        tell(failure)
    return request


def _print(result: AttestationResult, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2))
    else:
        show_verdict(result)


def _read(path: Path) -> bytes:
    """Endorsements that are not there are what exit code 40 is for."""
    try:
        return read_bounded(path, MAX_ENDORSEMENT_BYTES, option="--collateral")
    except click.BadParameter as err:
        raise UntrustedEndorsement("endorsement_missing", f"collateral: {err.message}") from err


def _tpm_answer(
    kind: Kind, quote: Path | None, signature: Path | None, nonce: Nonce | None
) -> TpmAnswer | None:
    if quote is None and signature is None:
        return None
    if kind != "azure-snp" or quote is None or signature is None or nonce is None:
        raise click.UsageError(
            "--tpm-quote and --tpm-signature go together, with --nonce and an Azure blob"
        )
    return TpmAnswer(
        attest=read_bounded(quote, MAX_ATTEST_BYTES, option="--tpm-quote"),
        signature=read_bounded(signature, MAX_ATTEST_BYTES, option="--tpm-signature"),
        nonce=nonce,
    )


def _with_foreign(anchors: TrustAnchors, paths: tuple[Path, ...]) -> TrustAnchors:
    for path in paths:
        data = read_bounded(path, MAX_CERTIFICATE_BYTES, option="--trust-anchor")
        try:
            der = _one_certificate(data)
        except AttestationError as err:
            raise click.BadParameter(
                f"{path} is not one certificate: {err}", param_hint="--trust-anchor"
            ) from err
        anchors = anchors.with_foreign(der, source=str(path))
    return anchors


def _one_certificate(data: bytes) -> bytes:
    """Its DER; PEM may have white space around it.  Raises: AttestationError."""
    what = "trust anchor"
    ders = read_pem(data, what=what) if data.lstrip().startswith(b"-----BEGIN") else (data,)
    if len(ders) != 1:
        raise MalformedEvidence("format", f"{what}: {len(ders)} certificates, want 1")
    return parse_certificate(ders[0], what=what, key_kinds=KEY_KINDS).der


def _digest(value: str | None) -> bytes | None:
    if value is None:
        return None
    if _SHA256.fullmatch(value) is None:
        raise click.BadParameter("want 64 lower-case hex digits", param_hint="--tls-key")
    return bytes.fromhex(value)
