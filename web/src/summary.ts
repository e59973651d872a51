/** What is the state of things in one line?  Pure: a Snapshot in, sentences out. */

import type { Overview, Snapshot, Worker } from "./api.ts";
import { formatAge, formatCount, formatDuration } from "./format.ts";

/** "worker-0 affirming · 1,204 requests in this window, 3 failed · latest 4 s ago" */
export function describeState({ overview, workers, requests }: Snapshot, nowS: number): string {
  const { totals } = overview;
  const failed = totals.errors === 0 ? "none failed" : `${formatCount(totals.errors)} failed`;
  const count =
    totals.requests === 0
      ? "no requests in this window"
      : `${formatCount(totals.requests)} ${totals.requests === 1 ? "request" : "requests"} in this window, ${failed}`;
  const latest = requests[0];
  const parts = [describeWorkers(workers, nowS), count];
  if (latest !== undefined) parts.push(`latest ${formatAge(nowS - latest.started_s)}`);
  return parts.join(" · ");
}

function describeWorkers(workers: readonly Worker[], nowS: number): string {
  if (workers.length === 0) return "no worker appraised";
  const [only] = workers;
  if (workers.length === 1 && only !== undefined) return `${only.id} ${describeTrust(only, nowS)}`;
  const counts = new Map<string, number>();
  for (const worker of workers) {
    const word = describeTrust(worker, nowS);
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return `${workers.length} workers: ${[...counts].map(([word, n]) => `${n} ${word}`).join(", ")}`;
}

function describeTrust(worker: Worker, nowS: number): string {
  if (isExpired(worker, nowS)) return "expired";
  const word = worker.tier === "none" ? "not appraised" : worker.tier;
  return `${word}${worker.simulated === true ? " (simulated)" : ""}`;
}

/** An appraisal that has run out says nothing about now. */
export function isExpired(worker: Worker, nowS: number): boolean {
  return worker.not_after_s !== null && worker.not_after_s <= nowS;
}

/** Lost telemetry is said, not hidden: a dropped span is a request that these charts miss. */
export function describeIngest({ ingest }: Overview): string {
  const lag = ingest.lag_s === null ? "lag unknown" : `lag ${formatDuration(ingest.lag_s)}`;
  const dropped =
    ingest.dropped === 0
      ? "none dropped"
      : `${formatCount(ingest.dropped)} DROPPED: the charts are incomplete`;
  return `Spans received ${formatCount(ingest.received)}, ${dropped}, ${lag}.`;
}
