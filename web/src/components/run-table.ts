/** What did each load run measure, and may its numbers be believed?  Newest first. */

import type { Quantiles, Run } from "../api.ts";
import { el, replaceKeepingFocus, timeElement } from "../dom.ts";
import {
  describeSamples,
  formatCount,
  formatDateTime,
  formatDuration,
  formatRate,
  formatSpan,
  hasFewSamples,
  QUANTILES,
} from "../format.ts";
import { formatState, leavePast, MIN_WINDOW_S, type ViewState } from "../state.ts";

const SHOWN = 8;
const MARGIN_RATIO = 0.05;
const METRICS = [
  ["TTFT", "ttft_s"],
  ["ITL", "itl_s"],
  ["E2E", "e2e_s"],
] as const;
const COLUMNS = 5 + METRICS.length * QUANTILES.length;

declare global {
  interface HTMLElementTagNameMap {
    "run-table": RunTable;
  }
}

/** Its links carry data-nav: the router follows them without a page load. */
export class RunTable extends HTMLElement {
  readonly #table = el("table", { class: "runs" });
  readonly #more = el("p", { class: "more" });

  connectedCallback(): void {
    if (this.childElementCount > 0) return;
    this.append(
      el(
        "div",
        { class: "scroll", role: "region", tabindex: "0", "aria-label": "Load runs, table" },
        this.#table,
      ),
      this.#more,
    );
    this.#table.append(el("thead", {}, ...header()));
  }

  update(runs: readonly Run[], state: ViewState): void {
    // A selected run is always in sight, however old it is.
    const shown = runs.filter((run, idx) => state.allRuns || idx < SHOWN || run.id === state.runId);
    const bodies = shown.map((run) => runBody(run, state));
    if (bodies.length === 0) {
      bodies.push(
        el(
          "tbody",
          { class: "none" },
          el(
            "tr",
            {},
            el(
              "td",
              { colspan: String(COLUMNS), class: "none" },
              "No load run yet: run ",
              el("code", {}, "starshade load run smoke"),
            ),
          ),
        ),
      );
    }
    const head = this.#table.tHead;
    replaceKeepingFocus(this.#table, head, ...bodies);
    const rest = runs.length > SHOWN;
    replaceKeepingFocus(
      this.#more,
      rest
        ? el(
            "a",
            {
              "data-nav": "",
              "data-key": "runs-more",
              href: formatState({ ...state, allRuns: !state.allRuns }),
            },
            state.allRuns ? `Show the newest ${SHOWN}` : `Show all ${runs.length} runs`,
          )
        : null,
    );
  }
}

function header(): readonly HTMLElement[] {
  const tall = (text: string, num = false): HTMLElement =>
    el("th", { scope: "col", rowspan: "2", ...(num ? { class: "num" } : {}) }, text);
  return [
    el(
      "tr",
      {},
      tall("Run"),
      tall("Started (UTC)"),
      tall("Requests", true),
      tall("Failed", true),
      tall("Rate", true),
      ...METRICS.map(([name]) =>
        el("th", { scope: "colgroup", colspan: "3", class: "group" }, name),
      ),
    ),
    el(
      "tr",
      {},
      ...METRICS.flatMap(() =>
        QUANTILES.map((q) =>
          el("th", { scope: "col", class: q === 50 ? "num first" : "num" }, `p${q}`),
        ),
      ),
    ),
  ];
}

/** Two rows: the numbers, then under them in words the validity and the samples. */
function runBody(run: Run, state: ViewState): HTMLElement {
  const selected = run.id === state.runId;
  const cells = METRICS.flatMap(([, key]) => quantileCells(run[key]));
  return el(
    "tbody",
    selected ? { class: "selected" } : {},
    el(
      "tr",
      {},
      el("th", { scope: "row" }, runLink(run, state, selected)),
      el("td", {}, timeElement(run.started_s, formatDateTime(run.started_s))),
      el("td", { class: "num" }, formatCount(run.requests)),
      el("td", { class: run.failed > 0 ? "num bad" : "num" }, formatCount(run.failed)),
      el("td", { class: "num" }, formatRate(run.achieved_rate)),
      ...cells,
    ),
    el(
      "tr",
      { class: "words" },
      el(
        "td",
        { colspan: "5" },
        el(
          "span",
          { class: "fit" },
          `${run.profile} profile`,
          ` · ${formatSpan(run.ended_s - run.started_s)} · `,
          el("span", { class: run.valid ? "ok" : "bad" }, describeValidity(run)),
        ),
      ),
      ...METRICS.map(([, key]) =>
        el("td", { colspan: "3", class: "samples" }, describeSamples(run[key].count)),
      ),
    ),
  );
}

function describeValidity(run: Run): string {
  if (run.valid) return "valid";
  const reasons = run.invalid_reasons.map((reason) => reason.replaceAll("_", " "));
  return reasons.length === 0 ? "not valid" : `not valid: ${reasons.join("; ")}`;
}

/** A link to the window of the run, and back out of it when it is already selected. */
function runLink(run: Run, state: ViewState, selected: boolean): HTMLElement {
  const endS = run.ended_s;
  const marginS = Math.max(5, (endS - run.started_s) * MARGIN_RATIO);
  const target: ViewState = selected
    ? leavePast(state)
    : {
        ...state,
        runId: run.id,
        untilS: Math.ceil(endS + marginS),
        windowS: Math.max(MIN_WINDOW_S, Math.ceil(endS - run.started_s + 2 * marginS)),
      };
  const title = selected ? "Back to the present" : "Show the charts for the time of this run";
  return el(
    "a",
    {
      "data-nav": "",
      "data-key": `run-${run.id}`,
      href: formatState(target),
      title,
      ...(selected ? { "aria-current": "true" } : {}),
    },
    run.label,
  );
}

function quantileCells(quantiles: Quantiles): readonly HTMLElement[] {
  const value = { 50: quantiles.p50, 90: quantiles.p90, 99: quantiles.p99 } as const;
  return QUANTILES.map((q) => {
    const few = hasFewSamples(quantiles.count, q) ? " few" : "";
    return el("td", { class: `num${q === 50 ? " first" : ""}${few}` }, formatDuration(value[q]));
  });
}
