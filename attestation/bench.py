"""`starshade bench attest`: what does a verdict cost, beside its signatures and beside dcap-qvl?

Every subject is run once a round, in turn, so that whatever else the machine does falls on all of
them alike. "cold" verifies everything; "cached" reuses chains and signed collateral, and verifies
quote and report signatures, dates, revocation and policy anew. dcap-qvl does what "cold" does
without policy. Times are the process's own, on one thread unless a name says otherwise.
"""

import gc
import importlib
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import click
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from attestation.anchors import load_anchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.nras.jwks import parse_jwks
from attestation.nras.token import verify_nras
from attestation.nvidia.verifier import verify_device
from attestation.policy import load_policy
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.verifier import SnpVerifier
from attestation.tdx.endorsements import TdxCollateral, parse_collateral
from attestation.tdx.verifier import TdxVerifier

SCHEMA_VERSION = 1
WARM_UP_ROUNDS = 5
NUM_PARALLEL = 8
_MESSAGE = bytes(640)
_TDX_COLD = {"p256": 9}  # 2 in the PCK chain, 2 CRLs, 1 of the signer, 2 of it, QE report, quote
_TDX_CACHED = {"p256": 2}
_DCAP = "tdx dcap-qvl"
_TDX_SHARE = {"tdx cold": 1.5, "tdx cached": 0.30}  # aims, of dcap-qvl's median


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Something to time; ``signatures`` counts its verifications by kind of key."""

    name: str
    run: Callable[[], object]
    signatures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Microseconds."""

    name: str
    n: int
    median_us: float
    p10_us: float
    p90_us: float
    signatures_us: float | None = None


@click.command()
@click.option(
    "--vectors",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="STARSHADE_VECTORS",
    required=True,
    help="Folder of published vectors; its attestation cases are what is judged.",
)
@click.option("--repeat", type=click.IntRange(min=10), default=200, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the numbers as JSON.")
def attest(vectors: Path, repeat: int, as_json: bool) -> None:
    """Time verdicts on real Evidence, beside dcap-qvl on the same quotes if it is installed."""
    root = vectors / "attestation"
    subjects = [*_units(root), *_tdx(root), *_snp(root), *_gpu(root), *_nras(root)]
    timings = measure(subjects, repeat=repeat)
    document = describe(timings, repeat=repeat)
    if as_json:
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(
        f"{document['machine']}; {document['versions']}; {repeat} rounds, interleaved; microseconds"
    )
    click.echo(f"{'subject':24}{'median':>9}{'p10':>9}{'p90':>9}{'n':>6}{'signatures':>12}")
    for timing in timings:
        signatures = "" if timing.signatures_us is None else f"{timing.signatures_us:.0f}"
        click.echo(
            f"{timing.name:24}{timing.median_us:9.0f}{timing.p10_us:9.0f}{timing.p90_us:9.0f}"
            f"{timing.n:6}{signatures:>12}"
        )
    for name, share in cast("Mapping[str, float]", document["of_dcap_qvl"]).items():
        click.echo(f"{name}: {share:.2f} x dcap-qvl, aim {_TDX_SHARE[name]:.2f}")


def measure(subjects: list[Subject], *, repeat: int) -> list[Timing]:
    """Each subject once a round, in turn; garbage of the setup is out of the collector's way."""
    samples: dict[str, list[float]] = {subject.name: [] for subject in subjects}
    gc.collect()
    gc.freeze()
    try:
        for number in range(WARM_UP_ROUNDS + repeat):
            for subject in subjects:
                started = time.perf_counter()
                subject.run()
                elapsed = time.perf_counter() - started
                if number >= WARM_UP_ROUNDS:
                    samples[subject.name].append(elapsed * 1e6)
    finally:
        gc.unfreeze()
    medians = {name: statistics.median(times) for name, times in samples.items()}
    return [_timing(subject, samples[subject.name], medians) for subject in subjects]


def describe(timings: list[Timing], *, repeat: int) -> Mapping[str, object]:
    """JSON-ready, with what is needed to judge the numbers."""
    medians = {timing.name: timing.median_us for timing in timings}
    return {
        "schema": SCHEMA_VERSION,
        "machine": f"{_cpu_name()}, Python {platform.python_version()}",
        "versions": ", ".join(_versions(("cryptography", "dcap-qvl"))),
        "repeat": repeat,
        "results": [
            {
                "name": timing.name,
                "n": timing.n,
                "median_us": round(timing.median_us, 1),
                "p10_us": round(timing.p10_us, 1),
                "p90_us": round(timing.p90_us, 1),
                "signatures_us": None
                if timing.signatures_us is None
                else round(timing.signatures_us, 1),
            }
            for timing in timings
        ],
        "of_dcap_qvl": {
            name: round(medians[name] / medians[_DCAP], 3)
            for name in _TDX_SHARE
            if _DCAP in medians
        },
    }


def _timing(subject: Subject, times: list[float], medians: Mapping[str, float]) -> Timing:
    deciles = statistics.quantiles(times, n=10)
    signatures = None
    if subject.signatures:
        signatures = sum(
            count * medians[f"signature {kind}"] for kind, count in subject.signatures.items()
        )
    return Timing(
        name=subject.name,
        n=len(times),
        median_us=medians[subject.name],
        p10_us=deciles[0],
        p90_us=deciles[-1],
        signatures_us=signatures,
    )


def _units(root: Path) -> Iterator[Subject]:
    """One signature of each kind that the families use."""
    curves: tuple[tuple[str, ec.EllipticCurve, hashes.HashAlgorithm], ...] = (
        ("p256", ec.SECP256R1(), hashes.SHA256()),
        ("p384", ec.SECP384R1(), hashes.SHA384()),
    )
    for name, curve, algorithm in curves:
        key, how = ec.generate_private_key(curve), ec.ECDSA(algorithm)
        yield Subject(name=f"signature {name}", run=_ec_check(key, how))
    _, ask, ark = _snp_chain(root)
    pss = padding.PSS(mgf=padding.MGF1(hashes.SHA384()), salt_length=48)
    ark_key = cast("rsa.RSAPublicKey", ark.public_key)
    yield Subject(
        name="signature rsa4096",
        run=lambda: ark_key.verify(ask.inner.signature, ask.signed_bytes, pss, hashes.SHA384()),
    )


def _ec_check(key: ec.EllipticCurvePrivateKey, how: ec.ECDSA) -> Callable[[], object]:
    signature, public_key = key.sign(_MESSAGE, how), key.public_key()
    return lambda: public_key.verify(signature, _MESSAGE, how)


def _tdx(root: Path) -> Iterator[Subject]:
    """All accepted TDX quotes, the next one each round."""
    folder = root / "tdx"
    cases = [
        (
            (folder / case["inputs"]["quote"]).read_bytes(),
            parse_collateral((folder / case["inputs"]["collateral"]).read_bytes()),
            datetime.fromisoformat(case["verify_at"]),
        )
        for case in _accepted(folder)
        if case["inputs"]["collateral"].startswith("collateral/tdx-")
    ]
    rules, anchors = load_policy("production").rules["tdx"], load_anchors()
    warm = TdxVerifier(anchors=anchors, cache=VerifiedCache(max_entries=8 * len(cases)))

    def run(verifier: TdxVerifier) -> Callable[[], object]:
        turn = cycle(cases)

        def judge() -> None:
            quote, collateral, at = next(turn)
            claims = verifier.verify(quote, collateral, at=at, log=CheckLog())
            for rule in rules:
                rule.require(claims)

        return judge

    for quote, collateral, at in cases:
        warm.verify(quote, collateral, at=at, log=CheckLog())
    yield Subject(name="tdx cold", run=run(TdxVerifier(anchors=anchors)), signatures=_TDX_COLD)
    yield Subject(name="tdx cached", run=run(warm), signatures=_TDX_CACHED)
    theirs = _dcap_qvl(cases)
    if theirs is not None:
        yield Subject(name=_DCAP, run=theirs, signatures=_TDX_COLD)


def _dcap_qvl(cases: list[tuple[bytes, TdxCollateral, datetime]]) -> Callable[[], object] | None:
    try:
        module = importlib.import_module("dcap_qvl")
    except ImportError:
        return None
    prepared = [
        (
            quote,
            module.QuoteCollateralV3(
                collateral.pck_crl_issuer_chain,
                collateral.root_ca_crl,
                collateral.pck_crl,
                collateral.tcb_info_issuer_chain,
                collateral.tcb_info,
                collateral.tcb_info_signature,
                collateral.qe_identity_issuer_chain,
                collateral.qe_identity,
                collateral.qe_identity_signature,
            ),
            int(at.timestamp()),
        )
        for quote, collateral, at in cases
    ]
    turn = cycle(prepared)
    return lambda: module.verify(*next(turn))


def _snp(root: Path) -> Iterator[Subject]:
    case, endorsements, at = _snp_case(root)
    report = (root / "snp" / case["inputs"]["report"]).read_bytes()
    cold = SnpVerifier(anchors=load_anchors())
    cached = SnpVerifier(anchors=load_anchors(), cache=VerifiedCache())
    yield Subject(
        name="snp cold",
        run=lambda: cold.verify(report, endorsements, at=at, log=CheckLog()),
        signatures={"rsa4096": 2, "p384": 1},
    )
    yield Subject(
        name="snp cached",
        run=lambda: cached.verify(report, endorsements, at=at, log=CheckLog()),
        signatures={"p384": 1},
    )


def _gpu(root: Path) -> Iterator[Subject]:
    """Report, chain and nonce of one device; eight of them on as many threads."""
    folder = root / "nvidia"
    case = next(c for c in _accepted(folder) if c["expected"].get("stage") == "report")
    inputs, at, anchors = case["inputs"], datetime.fromisoformat(case["verify_at"]), load_anchors()
    report, chain = ((folder / inputs[name]).read_bytes() for name in ("report", "chain"))
    nonce = bytes.fromhex(inputs["nonce"])
    pool, warm = ThreadPoolExecutor(NUM_PARALLEL), VerifiedCache()

    def judge(cache: VerifiedCache | None) -> object:
        return verify_device(
            report,
            chain,
            anchors=anchors,
            nonce=nonce,
            at=at,
            log=CheckLog(),
            arch=inputs["arch"],
            cache=cache,
        )

    for name, known, num_signatures in (("cold", None, 5), ("cached", warm, 1)):
        yield Subject(
            name=f"gpu {name}",
            run=partial(judge, known),
            signatures={"p384": num_signatures},
        )
        yield Subject(
            name=f"gpu {name}, {NUM_PARALLEL} threads",
            run=partial(_on_threads, pool, judge, known),
            signatures={"p384": num_signatures * NUM_PARALLEL},
        )


def _on_threads(
    pool: ThreadPoolExecutor,
    judge: Callable[[VerifiedCache | None], object],
    cache: VerifiedCache | None,
) -> object:
    return list(pool.map(judge, [cache] * NUM_PARALLEL))


def _nras(root: Path) -> Iterator[Subject]:
    folder = root / "jwt"
    case = _accepted(folder)[0]
    inputs, at = case["inputs"], datetime.fromisoformat(case["verify_at"])
    eat = (folder / inputs["eat"]).read_bytes()
    jwks = parse_jwks((folder / inputs["jwks"]).read_bytes())
    nonce = bytes.fromhex(inputs["nonce"])
    num_tokens = 1 + len(json.loads(eat)[1])
    yield Subject(
        name=f"nras, {num_tokens} tokens",
        run=lambda: verify_nras(eat, jwks, nonce=nonce, at=at, log=CheckLog()),
        signatures={"p384": num_tokens},
    )


def _snp_case(root: Path) -> tuple[Mapping[str, Any], SnpEndorsements, datetime]:
    folder = root / "snp"
    case = next(c for c in _accepted(folder) if c["inputs"].get("product") == "genoa")
    endorsements = SnpEndorsements(
        vek=(folder / case["inputs"]["endorsement"]).read_bytes(),
        chain=(folder / case["inputs"]["chain"]).read_bytes(),
        crl=None,
    )
    return case, endorsements, datetime.fromisoformat(case["verify_at"])


def _snp_chain(root: Path) -> Any:
    _, endorsements, _ = _snp_case(root)
    verifier = SnpVerifier(anchors=load_anchors())
    return verifier.verify_endorsements(endorsements, log=CheckLog()).chain.certificates


def _accepted(folder: Path) -> list[Mapping[str, Any]]:
    cases = json.loads((folder / "manifest.json").read_bytes())["cases"]
    return [case for case in cases if case["expected"]["verdict"] == "accept"]


def _versions(names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} not installed"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    found = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.machine())
