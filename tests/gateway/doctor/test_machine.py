"""Does the doctor see what a machine lacks, and is it content with one that lacks nothing?"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.doctor import machine
from tests.gateway.support import make_config

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


def test_a_missing_compiled_module_is_a_warning_with_a_way_out() -> None:
    finding = machine.native_module("runtime._no_such_module")
    assert (finding.outcome, finding.code) == ("warning", "native_missing")
    assert "compiler" in finding.next_step


def test_a_module_that_loads_is_well() -> None:
    assert machine.native_module("json").outcome == "ok"


def test_a_missing_dashboard_is_a_warning(tmp_path: Path) -> None:
    assert machine.dashboard(tmp_path).code == "dashboard_missing"
    script = tmp_path / machine.DASHBOARD
    script.parent.mkdir(parents=True)
    script.touch()
    assert machine.dashboard(tmp_path).outcome == "ok"


def test_a_clock_before_the_installation_is_wrong() -> None:
    finding = machine.clock(NOW, installed=NOW + timedelta(days=2), state=0)
    assert (finding.outcome, finding.code) == ("wrong", "clock_wrong")


def test_a_clock_that_nobody_keeps_is_a_warning() -> None:
    finding = machine.clock(NOW, installed=NOW, state=5)
    assert (finding.outcome, finding.code) == ("warning", "clock_unsynchronised")


def test_a_clock_that_cannot_be_asked_about_is_taken_as_it_is() -> None:
    assert machine.clock(NOW, installed=NOW, state=-1).outcome == "ok"


def test_asking_the_kernel_about_its_clock_gives_one_of_its_states() -> None:
    assert machine._clock_state() in range(-1, 6)


def test_few_open_files_are_a_warning() -> None:
    assert machine.open_files(1024).code == "few_open_files"
    assert machine.open_files(machine.FILES_NEEDED).outcome == "ok"
    assert machine.open_files(-1).outcome == "ok"  # no limit


def test_a_simulated_tee_is_a_warning_only_where_the_policy_allows_it(tmp_path: Path) -> None:
    development = make_config(tmp_path, worker__tee="auto")
    production = make_config(tmp_path, worker__tee="auto", policy="production")
    assert machine.tee(development, root=tmp_path).code == "tee_simulated"
    refused = machine.tee(production, root=tmp_path)
    assert (refused.outcome, refused.code) == ("wrong", "tee_unavailable")


def test_a_guest_is_named_with_its_interface(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/tdx_guest").touch()
    config = make_config(tmp_path, worker__tee="auto", policy="production")
    finding = machine.tee(config, root=tmp_path)
    assert (finding.outcome, finding.found) == ("ok", "tdx guest, asked through tdx-guest")


def test_a_guest_that_is_told_to_simulate_is_no_better_than_none(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/tdx_guest").touch()
    config = make_config(tmp_path, worker__tee="fake", policy="production")
    assert machine.tee(config, root=tmp_path).code == "tee_unavailable"
