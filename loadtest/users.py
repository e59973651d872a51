"""Which Locust user sends the load?  One that owns the open-loop schedule of the whole run."""

import os
from pathlib import Path

from locust import User, constant, task
from locust.exception import StopUser

from loadtest.dispatch import Dispatcher
from loadtest.plan import PLAN_VARIABLE, load_plan
from loadtest.records import RequestRecord


class ChatUser(User):
    """Dispatches every planned request at its intended time, then ends the run.

    A Locust user normally waits for each answer before the next request, which hides a slow
    server's queue. One user with a schedule does not.
    """

    fixed_count = 1
    wait_time = constant(0)

    @task
    def run_plan(self) -> None:
        """The only task: the whole plan."""
        environment = os.environ  # noqa: TID251 - the generator's process edge
        plan = load_plan(Path(environment[PLAN_VARIABLE]))
        with plan.records_path.open("w", encoding="utf-8") as sink:
            Dispatcher(
                plan=plan,
                api_key=environment["STARSHADE_API_KEY"],
                sink=sink,
                on_record=self._report,
            ).run()
        if self.environment.runner is not None:
            self.environment.runner.quit()
        raise StopUser

    def _report(self, record: RequestRecord, num_chunks: int) -> None:
        ended_ns = record.ended_ns or record.intended_ns
        self.environment.events.request.fire(
            request_type="SSE",
            name="warmup" if record.is_warmup else "chat",
            response_time=(ended_ns - record.intended_ns) / 1e6,
            response_length=num_chunks,
            exception=None if record.is_ok else RuntimeError(record.error_code),
            context={},
        )
