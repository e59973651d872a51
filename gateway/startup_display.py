"""What does `starshade up` show: a moving line on a terminal, plain lines everywhere else?"""

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gateway.supervisor import Death

_PLAIN_STEP_RATIO = 0.25  # without a terminal, progress is told in quarters


class Display:
    """Shows the stage that start-up is in; a context manager, so that the moving line goes away."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._stage = ""
        self._told_ratio = 0.0
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> "Display":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, stage: str, ratio: float | None = None) -> None:
        """`ratio` is how much of this stage is done, 0 to 1; None when nobody knows."""
        is_new = stage != self._stage
        self._stage = stage
        if self.console.is_terminal:
            total = None if ratio is None else 1.0
            self._bar.update(self._task, description=stage, completed=ratio or 0.0, total=total)
            return
        if is_new:
            self._told_ratio = 0.0
            self.say(stage)
        elif ratio is not None and ratio >= self._told_ratio + _PLAIN_STEP_RATIO:
            self._told_ratio = ratio
            self.say(f"{stage}: {ratio:.0%}")

    def say(self, text: str, style: str = "") -> None:
        """One or more whole lines, never wrapped or read as markup."""
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def tell_death(self, death: Death) -> None:
        after = "" if death.restart_in_s is None else f"; restarting in {death.restart_in_s:.2g} s"
        self.say(f"the {death.role} {death.how}{after}", style="bold red")
        self.tell_tail(death)

    def tell_tail(self, death: Death) -> None:
        self.say(f"last lines of {death.log}:")
        self.say("\n".join(f"  | {line}" for line in death.tail.splitlines()) or "  (empty)")
