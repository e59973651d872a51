"""Which source wins, is every mistake found at once, and does the page name every key?"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import make_url

from gateway.config import ConfigError, StarshadeConfig, describe_keys, load_config
from gateway.config_sources import IGNORED_VARIABLES

REPO = Path(__file__).resolve().parents[2]
HOME = {"HOME": "/home/someone"}
ports = st.none() | st.integers(1, 65_535)


def problems(**sources: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(**{"environ": HOME, **sources})
    return [str(problem) for problem in caught.value.problems]


def toml(folder: Path, text: str) -> Path:
    path = folder / "starshade.toml"
    path.write_text(text)
    return path


@given(flag=ports, variable=ports, in_file=ports)
def test_flag_beats_environment_beats_file_beats_default(
    tmp_path_factory: pytest.TempPathFactory,
    flag: int | None,
    variable: int | None,
    in_file: int | None,
) -> None:
    environ = {**HOME, **({"STARSHADE_GATEWAY__PORT": str(variable)} if variable else {})}
    text = f"[gateway]\nport = {in_file}\n" if in_file else ""
    config = load_config(
        flags={"gateway.port": flag},
        environ=environ,
        file=toml(tmp_path_factory.mktemp("config"), text),
    )
    assert config.gateway.port == next(p for p in (flag, variable, in_file, 8443) if p)


@given(names=st.sets(st.from_regex(r"[A-Z]{3,12}(__[A-Z]{3,12})?", fullmatch=True), min_size=1))
def test_every_unknown_variable_is_refused_and_all_are_named(names: set[str]) -> None:
    known = {spec.variable for spec in describe_keys().values()} | IGNORED_VARIABLES
    unknown = {f"STARSHADE_{name}" for name in names} - known
    if unknown:
        said = problems(environ={**HOME, **dict.fromkeys(unknown, "x")})
        assert len(said) == len(unknown)
        assert all(any(name in line for line in said) for name in unknown)


def test_problems_of_all_sources_arrive_together(tmp_path: Path) -> None:
    file = toml(tmp_path, '[gateway]\nhostnames = "a b"\nprot = 1\n[engine]\nmax_sequences = 0\n')
    environ = {**HOME, "STARSHADE_OBSERVATORY__PORT": "http", "STARSHADE_TELEMETRY__ENABLED": "si"}
    said = "\n".join(problems(flags={"gateway.port": 0}, environ=environ, file=file))
    for key in ("gateway.port", "gateway.hostnames", "engine.max_sequences", "observatory.port"):
        assert key in said
    assert "telemetry.enabled (from STARSHADE_TELEMETRY__ENABLED): want true or false" in said
    assert f"gateway.prot (from {file}): no such key; did you mean gateway.port?" in said


@pytest.mark.parametrize("name", sorted(IGNORED_VARIABLES))
def test_variables_of_clients_and_tests_are_no_configuration(name: str) -> None:
    assert load_config(environ={**HOME, name: "x"}) == load_config(environ=HOME)


def test_defaults_follow_the_xdg_folders() -> None:
    config = load_config(environ={**HOME, "XDG_STATE_HOME": "/s", "XDG_CACHE_HOME": "/c"})
    assert config.paths.models_dir == Path("/c/starshade/models")
    assert config.worker.socket == Path("/s/starshade/run/worker-0.sock")
    assert config.gateway.workers == ("unix:/s/starshade/run/worker-0.sock",)
    assert config.observatory.database_url == "sqlite:////s/starshade/telemetry.db"
    assert load_config(environ=HOME).state_dir == Path("/home/someone/.local/state/starshade")


@given(folder=st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1))
@example(folder="?a=b#c%3F@:&[x]")
def test_databases_lie_in_the_state_folder_whatever_its_name(folder: str) -> None:
    config = load_config(flags={"state_dir": f"/s/{folder}/x"}, environ=HOME)
    for url, path in (
        (config.database_url, config.paths.gateway_db),
        (config.observatory.database_url, config.paths.telemetry_db),
    ):
        assert (make_url(url).database, make_url(url).query) == (str(path), {})
        assert load_config(flags={"database_url": url}, environ=HOME).database_url == url


def test_derived_defaults_follow_other_keys() -> None:
    config = load_config(
        flags={"worker.socket": "/run/w.sock", "observatory.port": 9, "observatory.host": "::1"},
        environ=HOME,
    )
    assert config.gateway.workers == ("unix:/run/w.sock",)
    assert config.telemetry.endpoint == "http://[::1]:9/v1/traces"


def test_a_path_in_a_file_starts_from_that_file(tmp_path: Path) -> None:
    config = load_config(environ=HOME, file=toml(tmp_path, 'state_dir = "state"\n'))
    assert config.state_dir == tmp_path / "state"


def test_policy_fails_closed_unless_the_command_says_otherwise() -> None:
    assert load_config(environ=HOME).policy == "production"
    assert load_config(environ=HOME, default_policy="development").policy == "development"
    environ = {**HOME, "STARSHADE_POLICY": "production"}
    assert load_config(environ=environ, default_policy="development").policy == "production"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "example.org", "::"])  # noqa: S104
def test_the_dashboard_stays_on_the_loopback_interface(host: str) -> None:
    assert "no sign-in" in problems(flags={"observatory.host": host})[0]


def test_a_database_password_is_not_repeated_anywhere() -> None:
    url = "mysql://user:hunter2@host/db"
    for key in ("database_url", "observatory.database_url"):
        assert "hunter2" not in "".join(problems(flags={key: url}))
    good = load_config(flags={"database_url": "postgresql+psycopg://u:hunter2@h/d"}, environ=HOME)
    assert "hunter2" not in repr(good)


@pytest.mark.parametrize("key", ["telemetry.endpoint", "gateway.workers"])
def test_a_password_in_an_address_is_refused_and_not_repeated(key: str) -> None:
    url = "http://user:hunter2@host:9"
    (problem,) = problems(flags={key: (url,) if key == "gateway.workers" else url})
    assert problem.startswith(key)
    assert "hunter2" not in problem


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:x/", "http://:80", "ftp://h"])
def test_an_address_that_cannot_be_called_is_a_problem(url: str) -> None:
    assert problems(flags={"telemetry.endpoint": url})
    assert problems(flags={"gateway.workers": (url,)})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("= 3", "cannot read"),
        ("x" * 1_048_577, "larger than"),
        ("gateway = 3", "no such key"),
        ("a = " + "[" * 9999, "cannot read"),
        ("gateway.port = 0x" + "f" * 9999, "want a number from 1 to 65535, got a number that is"),
        ("gateway.port = '" + "f" * 9999 + "'", "f.."),
    ],
)
def test_a_bad_file_is_a_problem_not_a_traceback(tmp_path: Path, text: str, wanted: str) -> None:
    assert wanted in problems(file=toml(tmp_path, text))[0]


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite:///a.db?timeout=soon",
        "sqlite://host/a.db",
        "postgresql+psycopg://u:hunter2@h:port/d",
    ],
)
@pytest.mark.parametrize("key", ["database_url", "observatory.database_url"])
def test_a_database_that_cannot_be_opened_or_kept_is_a_problem(key: str, url: str) -> None:
    (problem,) = problems(flags={key: url})
    assert problem.startswith(key)
    assert "hunter2" not in problem


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    assert "No such file" in problems(file=tmp_path / "none.toml")[0]


@given(st.dictionaries(st.sampled_from(sorted(describe_keys())), st.text(max_size=8), max_size=4))
def test_any_text_gives_a_tree_or_named_problems(raw: dict[str, str]) -> None:
    try:
        assert isinstance(load_config(flags=raw, environ=HOME), StarshadeConfig)
    except ConfigError as err:
        assert {problem.key for problem in err.problems} <= raw.keys()  # noqa: PT017


def test_every_default_obeys_its_own_rule() -> None:
    for spec in describe_keys().values():
        if spec.default is not None:
            assert spec.key.check(spec.default) is None, spec.name


@pytest.mark.parametrize("name", sorted(describe_keys()))
def test_the_page_explains_every_key(name: str) -> None:
    page = (REPO / "docs" / "configuration.md").read_text()
    spec = describe_keys()[name]
    assert f"`{name}`" in page
    assert spec.key.doc in page


@pytest.mark.parametrize("raw", ["~0", "~no-such-user/x"])
def test_a_home_that_nobody_has_is_a_folder_like_any_other(raw: str) -> None:
    config = load_config(flags={"cache_dir": raw}, environ=HOME)
    assert config.cache_dir.is_absolute()
    assert config.cache_dir.match(raw)
