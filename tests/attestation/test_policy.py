"""A policy is complete, closed and non-empty, or it is no policy."""

from pathlib import Path

import pytest

from attestation.errors import PolicyError
from attestation.policy import SHIPPED, load_policy, parse_policy

GOOD = """
name = "test"
anchors = ["vendor"]
[evidence]
cpu = ["tdx"]
gpu = "refused"
nras = "refused"
[binding]
profiles = ["starshade"]
[tdx.tcb]
statuses = ["UpToDate"]
advisories = []
min_evaluation_data_number = 17
max_collateral_age_days = 31
min_tee_tcb_svn = "00000000000000000000000000000000"
[tdx.td]
debug = "refused"
service_td = "refused"
septve_disable = "required"
[tdx.measurements]
mode = "not_checked"
[tdx.platforms]
mode = "any"
"""


def _problems(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text.encode())
    assert caught.value.code == "policy_invalid"
    return str(caught.value)


def test_development_accepts_more_and_checks_no_less_of_the_same() -> None:
    production, development = (load_policy(name) for name in SHIPPED)

    assert (production.allows_simulated, development.allows_simulated) == (False, True)
    assert (production.allows_foreign, development.allows_foreign) == (False, True)
    assert production.anchor_kinds == {"vendor"}
    assert production.cpu == {"tdx", "snp"}
    assert production.profiles == {"starshade"}
    assert production.rules.keys() == {"tdx", "snp", "nvidia", "nras"}
    for section in ("tdx", "nvidia", "nras"):
        assert production.rules[section] == development.rules[section]
    names = [[rule.name for rule in policy.rules["snp"]] for policy in (production, development)]
    assert names[0] == names[1]


def test_what_a_policy_accepts_with_a_warning() -> None:
    """Each is one that a verdict warns of: `policy check` tells it before."""
    everything = load_policy(Path(__file__).with_name("everything.toml"))

    assert [load_policy(name).warned for name in SHIPPED] == [
        (),
        ("product line Milan", "a root of kind fake", "a root of kind foreign"),
    ]
    assert parse_policy(GOOD.encode()).warned == ()
    assert everything.warned == (
        "TCB status SWHardeningNeeded",
        "TCB status TDRelaunchAdvised",
        "TCB status TDRelaunchAdvisedConfigurationNeeded",
        "product line Milan",
        "an OCSP answer that ended less than 3600 s ago",
        "a root of kind fake",
        "a root of kind foreign",
    )


def test_the_digest_ignores_comments_and_sees_values() -> None:
    digest = parse_policy(GOOD.encode()).sha256

    assert parse_policy(f"# a comment\n{GOOD}".encode()).sha256 == digest
    assert parse_policy(GOOD.replace("17", "18").encode()).sha256 != digest


def test_a_file_is_a_policy_too(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(GOOD)

    assert load_policy(path).name == "test"
    assert load_policy(str(path)) == load_policy(path)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        load_policy(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (GOOD, "", "anchors: missing"),
        ('name = "test"', 'name = "test"\nnonce = "skip"', "nonce: unknown key"),
        ('name = "test"', 'name = ""', "name: want a short lower-case name"),
        ('["vendor"]', "[]", "anchors: empty"),
        ('["vendor"]', '["mine"]', "anchors: 'mine'"),
        ('["vendor"]', '"vendor"', "anchors: want a list"),
        ('["tdx"]', "[]", "evidence.cpu: empty"),
        ('["UpToDate"]', "[]", "tdx.tcb.statuses: empty"),
        ('["UpToDate"]', '["Revoked"]', "tdx.tcb.statuses: 'Revoked'"),
        ("advisories = []", 'advisories = ["*"]', "tdx.tcb.advisories: '*'"),
        ("advisories = []", "", "tdx.tcb.advisories: missing"),
        ("= 17", "= 0", "tdx.tcb.min_evaluation_data_number: want"),
        ("= 17", "= true", "tdx.tcb.min_evaluation_data_number: want"),
        (
            "= 31",
            f"= {2**53 - 1}",
            "max_collateral_age_days: want a number of at least 1 and at most",
        ),
        ("= 17", f"= {2**53}", "a value of a kind that no key takes"),
        ('["UpToDate"]', '["uptodate"]', "tdx.tcb.statuses: 'uptodate'"),
        ('["UpToDate"]', '["UpToDate "]', "tdx.tcb.statuses: 'UpToDate '"),
        ('name = "test"', 'name = "test"\n"\\u001b[2J" = 1', r"'\x1b[2J': unknown key"),
        ('["UpToDate"]', '["\\u001b[2J"]', r"tdx.tcb.statuses: '\x1b[2J'"),
        ("= 17", "= 17.5", "a value of a kind that no key takes"),
        ('"000000', '"00', "tdx.tcb.min_tee_tcb_svn: want 16 bytes"),
        ('"000000', '"0000AA', "tdx.tcb.min_tee_tcb_svn: want 16 bytes"),
        ("= 17", "= 17\nskip = true", "tdx.tcb.skip: unknown key"),
        ('debug = "refused"', 'debug = "allowed"', "tdx.td.debug: want one of refused"),
        ('"not_checked"', '"off"', "tdx.measurements.mode: want one of"),
        ('"not_checked"', '"required"', "no register has reference values"),
        ('"not_checked"', '"required"\nmrtd = []', "tdx.measurements.mrtd: empty"),
        ('"not_checked"', '"required"\nmrtd = ["00"]', "tdx.measurements.mrtd: '00'"),
        ('"not_checked"', f'"not_checked"\nmrtd = ["{"00" * 48}"]', "mrtd: unknown key"),
        ('"not_checked"', "not_checked", "not TOML"),
    ],
)
def test_bad_policies_are_refused(old: str, new: str, problem: str) -> None:
    assert old in GOOD
    assert problem in _problems(GOOD.replace(old, new, 1))


def test_what_is_told_of_a_policy_is_short() -> None:
    long = _problems(GOOD.replace('["UpToDate"]', f'["{"A" * 100_000}"]'))
    many = _problems(GOOD.replace("[]", str([f"A{number}" for number in range(10_000)])))

    assert f"'{'A' * 128}'... is not a value" in long
    assert len(long) < 1000
    assert many.endswith("; and 9900 more problems")


def test_all_problems_are_reported_together() -> None:
    text = _problems(GOOD.replace('["tdx"]', "[]").replace("= 17", "= 0"))

    assert "evidence.cpu" in text
    assert "min_evaluation_data_number" in text
