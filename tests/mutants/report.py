"""What became of a module's mutations, for people and for programs?"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.runner import Trial

SURVIVORS = Path(__file__).resolve().parent / "survivors.toml"
Listed = frozenset[tuple[str, str, str]]  # module, function, mutation


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One module: ``survivors`` are the unlisted ones, ``gone`` are listed and do not survive."""

    module: str
    trials: tuple[Trial, ...]
    survivors: tuple[Trial, ...]
    num_listed: int
    gone: tuple[tuple[str, str], ...]
    seconds: float

    @property
    def num_killed(self) -> int:
        """Those that a test noticed, a time-out included."""
        return len(self.trials) - len(self.survivors) - self.num_listed

    def lines(self) -> Iterator[str]:
        """The row of the table, then one line for each fault of the list or of the tests."""
        ratio = self.num_killed / max(1, len(self.trials))
        yield (
            f"{self.module:34}{len(self.trials):>10}{self.num_killed:>8}{self.num_listed:>8}"
            f"{ratio:>9.1%}{self.seconds:>9.1f}"
        )
        for trial in self.survivors:
            one = trial.mutation
            yield f"  {trial.fate}: line {one.lines.start} {one.function}: {one.change}"
        for function, change in self.gone:
            yield f"  listed, but does not survive: {function}: {change}"

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "module": self.module,
            "mutations": len(self.trials),
            "killed": self.num_killed,
            "timeouts": sum(trial.fate == "timeout" for trial in self.trials),
            "listed": self.num_listed,
            "seconds": round(self.seconds, 1),
            "survivors": [
                {
                    "function": trial.mutation.function,
                    "line": trial.mutation.lines.start,
                    "mutation": trial.mutation.change,
                    "fate": trial.fate,
                }
                for trial in self.survivors
            ],
            "gone": [list(key) for key in self.gone],
        }


HEADER = f"{'module':34}{'mutations':>10}{'killed':>8}{'listed':>8}{'':>9}{'seconds':>9}"


def load_survivors(path: Path = SURVIVORS) -> Listed:
    """Every entry names a reason.  Raises: KeyError: one does not."""
    entries = tomllib.loads(path.read_text()).get("survivor", [])
    return frozenset(
        (entry["module"], entry["function"], mutation)
        for entry in entries
        if entry["reason"]
        for mutation in entry["mutations"]
    )


def judge(
    module: str, trials: Sequence[Trial], listed: Listed, *, is_whole: bool, seconds: float
) -> Row:
    """``is_whole``: all mutations were tried, so that what is listed must have survived."""
    alive = [trial for trial in trials if trial.fate in ("survived", "unreached")]
    keys = {(module, trial.mutation.function, trial.mutation.change) for trial in alive}
    return Row(
        module=module,
        trials=tuple(trials),
        survivors=tuple(
            trial
            for trial in alive
            if (module, trial.mutation.function, trial.mutation.change) not in listed
        ),
        num_listed=len(keys & listed),
        gone=tuple(sorted(key[1:] for key in listed - keys if is_whole and key[0] == module)),
        seconds=seconds,
    )
