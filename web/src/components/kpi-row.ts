/** How is the service doing in this window?  Five cards; each number has its definition and samples. */

import type { Overview, Quantiles } from "../api.ts";
import { DEFINITIONS } from "../chart-specs.ts";
import { el, replaceKeepingFocus } from "../dom.ts";
import {
  describeSamples,
  formatCount,
  formatDuration,
  formatPercent,
  formatRate,
  hasFewSamples,
  QUANTILES,
} from "../format.ts";

declare global {
  interface HTMLElementTagNameMap {
    "kpi-row": KpiRow;
  }
}

export class KpiRow extends HTMLElement {
  update(overview: Overview): void {
    const { totals } = overview;
    const spanS = Math.max(1, overview.to_s - overview.from_s);
    replaceKeepingFocus(
      this,
      latencyCard("TTFT", "time to first token", DEFINITIONS.ttft, totals.ttft_s),
      latencyCard("ITL", "inter-token latency", DEFINITIONS.itl, totals.itl_s),
      latencyCard("E2E", "end to end", DEFINITIONS.e2e, totals.e2e_s),
      card(
        "Requests",
        "in this window",
        "Requests that arrived at the gateway, failed ones included.",
        formatCount(totals.requests),
        [
          ["failed", failures(totals.errors, totals.requests), totals.errors > 0 ? "bad" : ""],
          ["rate", formatRate(totals.requests / spanS), ""],
        ],
        `${formatCount(totals.output_tokens)} output tokens`,
      ),
      card(
        "Cache hit rate",
        "",
        "Prompt tokens served from the prefix cache, of all prompt tokens.",
        formatPercent(totals.cached_tokens, totals.prompt_tokens),
        [
          ["from the cache", formatCount(totals.cached_tokens), ""],
          ["computed", formatCount(totals.prompt_tokens - totals.cached_tokens), ""],
        ],
        totals.prompt_tokens === 0
          ? "no prompt tokens yet"
          : `${formatCount(totals.cached_tokens)} of ${formatCount(totals.prompt_tokens)} prompt tokens`,
      ),
    );
  }
}

function latencyCard(
  name: string,
  words: string,
  definition: string,
  quantiles: Quantiles,
): HTMLElement {
  const value = { 50: quantiles.p50, 90: quantiles.p90, 99: quantiles.p99 } as const;
  const few = (q: (typeof QUANTILES)[number]): string =>
    hasFewSamples(quantiles.count, q) ? "few" : "";
  return card(
    name,
    words,
    definition,
    formatDuration(value[50]),
    ([90, 99] as const).map((q) => [`p${q}`, formatDuration(value[q]), few(q)]),
    describeSamples(quantiles.count),
    few(50),
    "p50",
  );
}

function card(
  name: string,
  words: string,
  definition: string,
  headline: string,
  rows: readonly (readonly [string, string, string])[],
  foot: string,
  headlineClass = "",
  headlineName = "",
): HTMLElement {
  const id = `kpi-${name.toLowerCase().replaceAll(" ", "-")}`;
  return el(
    "article",
    { class: "card kpi", "aria-labelledby": id },
    el(
      "h3",
      { id, title: definition },
      name,
      words === "" ? null : " ",
      words === "" ? null : el("span", { class: "words" }, words),
    ),
    el(
      "p",
      { class: `headline ${headlineClass}`.trim() },
      headline,
      headlineName === "" ? null : el("span", { class: "quantile" }, ` ${headlineName}`),
    ),
    el(
      "dl",
      {},
      ...rows.map(([term, text, mark]) =>
        el("div", {}, el("dt", {}, term), el("dd", mark === "" ? {} : { class: mark }, text)),
      ),
    ),
    el("p", { class: "foot" }, foot),
  );
}

function failures(errors: number, requests: number): string {
  return errors === 0 ? "none" : `${formatCount(errors)} (${formatPercent(errors, requests)})`;
}
