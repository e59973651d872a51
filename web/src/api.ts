/** What does the observatory's JSON API answer?  The only fetch calls of the dashboard.
 *
 * Times are unix seconds in UTC, durations seconds, and null means "unknown", never zero. */

export interface Quantiles {
  readonly count: number;
  readonly p50: number | null;
  readonly p90: number | null;
  readonly p99: number | null;
}

export interface QuantileSeries {
  readonly count: readonly number[];
  readonly p50: readonly (number | null)[];
  readonly p90: readonly (number | null)[];
  readonly p99: readonly (number | null)[];
}

export interface Series {
  readonly t_s: readonly number[];
  readonly requests: readonly number[];
  readonly errors: readonly number[];
  readonly prompt_tokens: readonly number[];
  readonly cached_tokens: readonly number[];
  readonly output_tokens: readonly number[];
  readonly ttft_s: QuantileSeries;
  readonly itl_s: QuantileSeries;
  readonly e2e_s: QuantileSeries;
}

export interface Totals {
  readonly requests: number;
  readonly errors: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly output_tokens: number;
  readonly ttft_s: Quantiles;
  readonly itl_s: Quantiles;
  readonly e2e_s: Quantiles;
  readonly tpot_s: Quantiles;
}

export interface Overview {
  readonly now_s: number;
  readonly from_s: number;
  readonly to_s: number;
  readonly step_s: number;
  readonly models: readonly string[];
  readonly series: Series;
  readonly totals: Totals;
  readonly ingest: {
    readonly received: number;
    readonly dropped: number;
    readonly lag_s: number | null;
  };
}

export interface Run {
  readonly id: string;
  readonly label: string;
  readonly profile: string;
  readonly started_s: number;
  readonly ended_s: number;
  readonly valid: boolean;
  readonly invalid_reasons: readonly string[];
  readonly requests: number;
  readonly failed: number;
  readonly output_tokens: number;
  readonly ttft_s: Quantiles;
  readonly itl_s: Quantiles;
  readonly e2e_s: Quantiles;
  readonly tpot_s: Quantiles;
  readonly achieved_rate: number | null;
}

export interface Worker {
  readonly id: string;
  readonly tier: string;
  readonly code: string | null;
  readonly tee: string | null;
  readonly simulated: boolean | null;
  readonly trust_anchor: string | null;
  readonly policy: string | null;
  readonly verdict_id: string | null;
  readonly weights_sha256: string | null;
  readonly appraised_s: number;
  readonly not_after_s: number | null;
  readonly reason: string;
}

export interface RequestRow {
  readonly trace_id: string;
  readonly started_s: number;
  readonly model: string | null;
  readonly worker: string | null;
  readonly status: number | null;
  readonly error_type: string | null;
  readonly ttft_s: number | null;
  readonly e2e_s: number;
  readonly tpot_s: number | null;
  readonly prompt_tokens: number | null;
  readonly cached_tokens: number | null;
  readonly output_tokens: number | null;
}

export interface Snapshot {
  readonly overview: Overview;
  readonly runs: readonly Run[];
  readonly workers: readonly Worker[];
  readonly requests: readonly RequestRow[];
}

export interface SnapshotQuery {
  readonly windowS: number;
  readonly untilS: number | null;
  readonly model: string | null;
}

const RUN_LIMIT = 50;
const REQUEST_LIMIT = 100;
const DEADLINE_MS = 10_000;

/** Everything the page shows, from four answers that were asked for at the same time.
 *  Throws an Error whose message is one plain sentence. */
export async function fetchSnapshot(query: SnapshotQuery, signal: AbortSignal): Promise<Snapshot> {
  const window = new URLSearchParams({ window_s: String(query.windowS) });
  if (query.untilS !== null) window.set("until_s", String(query.untilS));
  if (query.model !== null) window.set("model", query.model);
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(DEADLINE_MS)]);
  const [overview, runs, workers, requests] = await Promise.all([
    fetchJson<Overview>(`api/overview?${window}`, "series", bounded),
    fetchJson<Pick<Snapshot, "runs">>(`api/runs?limit=${RUN_LIMIT}`, "runs", bounded),
    fetchJson<Pick<Snapshot, "workers">>("api/workers", "workers", bounded),
    fetchJson<Pick<Snapshot, "requests">>(
      `api/requests?limit=${REQUEST_LIMIT}`,
      "requests",
      bounded,
    ),
  ]);
  return { overview, runs: runs.runs, workers: workers.workers, requests: requests.requests };
}

async function fetchJson<T extends object>(
  path: string,
  member: keyof T & string,
  signal: AbortSignal,
): Promise<T> {
  const response = await fetch(path, { signal, headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(`the observatory answered ${response.status}`);
  const body: unknown = await response.json();
  if (typeof body !== "object" || body === null || !(member in body)) {
    throw new Error("the observatory answered in an unknown form");
  }
  return body as T;
}
