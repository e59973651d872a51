/** Which chart shows what?  Pure: an Overview in, the series, words and table of each chart out. */

import type { Overview, Quantiles, QuantileSeries } from "./api.ts";
import {
  describeSamples,
  formatAxis,
  formatCount,
  formatDuration,
  formatPercent,
  formatRate,
  formatRowTime,
  hasFewSamples,
  NBSP,
  NONE,
  type QuantilePercent,
  QUANTILES,
} from "./format.ts";

export type Swatch = "p50" | "p90" | "p99" | "requests" | "errors" | "cache";

export interface SeriesSpec {
  readonly label: string;
  readonly kind: "line" | "bar";
  readonly values: readonly (number | null)[];
  /** The value of the whole window, as text. */
  readonly overall: string;
  readonly format: (value: number | null) => string;
  readonly swatch: Swatch;
  /** Name of a custom property of the style sheet. */
  readonly colour: string;
  readonly width: number;
  readonly dash: readonly number[];
}

export interface TableSpec {
  readonly columns: readonly { readonly label: string; readonly numeric: boolean }[];
  readonly rows: readonly (readonly string[])[];
  readonly empty: string;
}

export interface ChartSpec {
  readonly key: string;
  readonly title: string;
  readonly definition: string;
  readonly summary: string;
  readonly note: string;
  readonly timesS: readonly number[];
  readonly fromS: number;
  readonly toS: number;
  readonly series: readonly SeriesSpec[];
  /** Pairs of series numbers between which the area is filled, upper first. */
  readonly bands: readonly (readonly [number, number])[];
  /** `top` is the highest tick: all labels of an axis share its unit. */
  readonly formatY: (value: number, top: number) => string;
  readonly maxY: number | null;
  readonly table: TableSpec;
}

const DASHES: Readonly<Record<QuantilePercent, readonly number[]>> = {
  50: [],
  90: [6, 3],
  99: [2, 3],
};
const NO_ROWS = "No requests in this window.";

export const DEFINITIONS = {
  ttft: "Time to first token: arrival of the request to the first chunk with text.",
  itl: "Inter-token latency: every gap between two chunks of text, pooled over requests.",
  e2e: "End to end: arrival of the request to its last byte.",
} as const;

export function chartSpecs(overview: Overview): readonly ChartSpec[] {
  const { series, totals } = overview;
  return [
    latencySpec(overview, "ttft", "TTFT", series.ttft_s, totals.ttft_s),
    latencySpec(overview, "itl", "ITL", series.itl_s, totals.itl_s),
    latencySpec(overview, "e2e", "E2E latency", series.e2e_s, totals.e2e_s),
    requestSpec(overview),
    cacheSpec(overview),
  ];
}

function latencySpec(
  overview: Overview,
  key: keyof typeof DEFINITIONS,
  title: string,
  series: QuantileSeries,
  totals: Quantiles,
): ChartSpec {
  const columns = { 50: series.p50, 90: series.p90, 99: series.p99 } as const;
  const overall = { 50: totals.p50, 90: totals.p90, 99: totals.p99 } as const;
  return {
    ...frame(overview),
    key,
    title,
    definition: DEFINITIONS[key],
    summary: QUANTILES.map((q) => `p${q} ${formatDuration(overall[q])}`).join(", ") + ".",
    note: fewSamplesNote(series.count, overview.step_s),
    series: QUANTILES.map((q) => ({
      label: `p${q}`,
      kind: "line",
      values: columns[q],
      overall: formatDuration(overall[q]),
      format: formatDuration,
      swatch: `p${q}`,
      colour: `--p${q}`,
      width: q === 50 ? 2 : 1.5,
      dash: DASHES[q],
    })),
    bands: [[3, 1]],
    formatY: (value, top) => (value === 0 ? "0" : formatAxis(formatDuration(value, top))),
    maxY: null,
    table: {
      columns: [
        { label: "From (UTC)", numeric: false },
        ...QUANTILES.map((q) => ({ label: `p${q}`, numeric: true })),
        { label: "Samples", numeric: false },
      ],
      rows: newestFirst(overview, (i) =>
        (series.count[i] ?? 0) === 0
          ? null
          : [
              ...QUANTILES.map((q) => formatDuration(columns[q][i] ?? null)),
              describeSamples(series.count[i] ?? 0),
            ],
      ),
      empty: NO_ROWS,
    },
  };
}

function requestSpec(overview: Overview): ChartSpec {
  const { series, totals, step_s: stepS } = overview;
  const spanS = Math.max(1, overview.to_s - overview.from_s);
  const bar = { kind: "bar", format: formatRate, width: 0, dash: [] } as const;
  return {
    ...frame(overview),
    key: "requests",
    title: "Request rate",
    definition: "Requests that arrived, and those of them that failed.",
    summary: `${formatCount(totals.requests)} requests, ${formatCount(totals.errors)} failed.`,
    note: `${formatCount(totals.requests)} requests, ${formatCount(totals.errors)} failed (${formatPercent(totals.errors, totals.requests)}).`,
    series: [
      {
        ...bar,
        label: "requests",
        values: series.requests.map((n) => n / stepS),
        swatch: "requests",
        colour: "--bar",
        overall: formatRate(totals.requests / spanS),
      },
      {
        ...bar,
        label: "failed",
        values: series.errors.map((n) => n / stepS),
        swatch: "errors",
        colour: "--bad",
        overall: formatRate(totals.errors / spanS),
      },
    ],
    bands: [],
    formatY: (value, top) => (value === 0 ? "0" : formatAxis(formatRate(value, top))),
    maxY: null,
    table: {
      columns: [
        { label: "From (UTC)", numeric: false },
        { label: "Requests", numeric: true },
        { label: "Failed", numeric: true },
        { label: "Rate", numeric: true },
        { label: "Output tokens", numeric: true },
      ],
      rows: newestFirst(overview, (i) => {
        const requests = series.requests[i] ?? 0;
        if (requests === 0) return null;
        return [
          formatCount(requests),
          formatCount(series.errors[i] ?? 0),
          formatRate(requests / stepS),
          formatCount(series.output_tokens[i] ?? 0),
        ];
      }),
      empty: NO_ROWS,
    },
  };
}

function cacheSpec(overview: Overview): ChartSpec {
  const { series, totals } = overview;
  const ratio = (i: number): number | null => {
    const prompt = series.prompt_tokens[i] ?? 0;
    return prompt > 0 ? (series.cached_tokens[i] ?? 0) / prompt : null;
  };
  const asPercent = (value: number | null): string =>
    value === null ? NONE : formatPercent(value, 1);
  const whole = describeHitRate(totals.cached_tokens, totals.prompt_tokens);
  return {
    ...frame(overview),
    key: "cache",
    title: "Prefix cache hit rate",
    definition: "Prompt tokens served from the cache, of all prompt tokens.",
    summary: `${whole}.`,
    note: `${whole}.`,
    series: [
      {
        label: "hit rate",
        kind: "line",
        values: series.t_s.map((_, i) => ratio(i)),
        swatch: "cache",
        colour: "--cache",
        overall: formatPercent(totals.cached_tokens, totals.prompt_tokens),
        format: asPercent,
        width: 2,
        dash: [],
      },
    ],
    bands: [],
    formatY: (value) => `${Math.round(value * 100)}${NBSP}%`,
    maxY: 1,
    table: {
      columns: [
        { label: "From (UTC)", numeric: false },
        { label: "Hit rate", numeric: true },
        { label: "Cached", numeric: true },
        { label: "Prompt tokens", numeric: true },
      ],
      rows: newestFirst(overview, (i) =>
        ratio(i) === null
          ? null
          : [
              asPercent(ratio(i)),
              formatCount(series.cached_tokens[i] ?? 0),
              formatCount(series.prompt_tokens[i] ?? 0),
            ],
      ),
      empty: NO_ROWS,
    },
  };
}

/** "35 % · 1,204 of 3,440 prompt tokens": never a ratio without its denominator. */
export function describeHitRate(cached: number, prompt: number): string {
  if (prompt === 0) return "no prompt tokens yet";
  return `${formatPercent(cached, prompt)} · ${formatCount(cached)} of ${formatCount(prompt)} prompt tokens`;
}

function frame(overview: Overview): Pick<ChartSpec, "timesS" | "fromS" | "toS"> {
  return { timesS: overview.series.t_s, fromS: overview.from_s, toS: overview.to_s };
}

function newestFirst(
  overview: Overview,
  row: (idx: number) => readonly string[] | null,
): readonly (readonly string[])[] {
  const rows: (readonly string[])[] = [];
  const spanS = overview.to_s - overview.from_s;
  for (let i = overview.series.t_s.length - 1; i >= 0; i -= 1) {
    const cells = row(i);
    if (cells !== null) rows.push([formatRowTime(overview.series.t_s[i] ?? 0, spanS), ...cells]);
  }
  return rows;
}

/** Which lines of the chart rest on few samples, in how many of its intervals. */
function fewSamplesNote(counts: readonly number[], stepS: number): string {
  const filled = counts.filter((count) => count > 0);
  const step = `Intervals of ${formatCount(stepS)}${NBSP}s`;
  const few = QUANTILES.map((q) => ({
    q,
    n: filled.filter((count) => hasFewSamples(count, q)).length,
  })).filter(({ n }) => n > 0);
  if (few.length === QUANTILES.length && few.every(({ n }) => n === filled.length)) {
    return `${step}; few samples in every one.`;
  }
  if (filled.length === 0 || few.length === 0) return `${step}.`;
  const everywhere = few.filter(({ n }) => n === filled.length).map(({ q }) => `p${q}`);
  const partly = few
    .filter(({ n }) => n < filled.length)
    .map(({ q, n }) => `p${q} in ${n} of ${filled.length}`);
  const parts = [
    ...(everywhere.length > 0 ? [`${everywhere.join(", ")} throughout`] : []),
    ...partly,
  ];
  return `${step}; few samples for ${parts.join(", ")}.`;
}
