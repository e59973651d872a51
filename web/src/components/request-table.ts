/** What happened to the latest requests?  Counts and times only: no prompt ever reaches this page. */

import type { RequestRow } from "../api.ts";
import { el, replaceKeepingFocus, timeElement } from "../dom.ts";
import { formatCount, formatDateTime, formatDuration, NONE } from "../format.ts";
import { formatState, type ViewState } from "../state.ts";

const HEADERS: readonly (readonly [string, boolean])[] = [
  ["Started (UTC)", false],
  ["Outcome", false],
  ["Model", false],
  ["Worker", false],
  ["TTFT", true],
  ["TPOT", true],
  ["E2E", true],
  ["Prompt", true],
  ["Cached", true],
  ["Output", true],
  ["Trace", false],
];
const TRACE_CHARS = 8;

declare global {
  interface HTMLElementTagNameMap {
    "request-table": RequestTable;
  }
}

export class RequestTable extends HTMLElement {
  readonly #body = el("tbody");
  readonly #filter = el("p", { class: "more" });

  connectedCallback(): void {
    if (this.childElementCount > 0) return;
    const head = el(
      "thead",
      {},
      el(
        "tr",
        {},
        ...HEADERS.map(([label, num]) =>
          el("th", { scope: "col", ...(num ? { class: "num" } : {}) }, label),
        ),
      ),
    );
    this.append(
      el(
        "div",
        {
          class: "scroll tall",
          role: "region",
          tabindex: "0",
          "aria-label": "Recent requests, table",
        },
        el("table", {}, head, this.#body),
      ),
      this.#filter,
    );
  }

  update(requests: readonly RequestRow[], state: ViewState): void {
    const failed = requests.filter(hasFailed);
    const shown = state.failedOnly ? failed : requests;
    const rows = shown.map(requestRow);
    if (rows.length === 0) {
      rows.push(
        el(
          "tr",
          {},
          el(
            "td",
            { colspan: String(HEADERS.length), class: "none" },
            ...(state.failedOnly && requests.length > 0
              ? ["None of the latest requests failed."]
              : ["No requests yet: run ", el("code", {}, "starshade load run smoke")]),
          ),
        ),
      );
    }
    replaceKeepingFocus(this.#body, ...rows);
    const target = formatState({ ...state, failedOnly: !state.failedOnly });
    replaceKeepingFocus(
      this.#filter,
      requests.length === 0
        ? null
        : el(
            "a",
            { "data-nav": "", "data-key": "requests-filter", href: target },
            state.failedOnly
              ? `Show all of the latest ${requests.length}`
              : `Show only failed (${failed.length} of ${requests.length})`,
          ),
    );
  }
}

function hasFailed(request: RequestRow): boolean {
  return request.error_type !== null || (request.status !== null && request.status >= 400);
}

function requestRow(request: RequestRow): HTMLTableRowElement {
  const num = (text: string): HTMLElement => el("td", { class: "num" }, text);
  const status = request.status === null ? "" : `${request.status}`;
  const outcome = hasFailed(request)
    ? el(
        "td",
        { class: "bad" },
        "failed ",
        status,
        request.error_type === null ? null : el("code", { class: "code" }, request.error_type),
      )
    : el("td", {}, `ok ${status}`);
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, timeElement(request.started_s, formatDateTime(request.started_s))),
    outcome,
    el("td", { class: "clip", title: request.model ?? "" }, request.model ?? NONE),
    el("td", {}, request.worker ?? NONE),
    num(formatDuration(request.ttft_s)),
    num(formatDuration(request.tpot_s)),
    num(formatDuration(request.e2e_s)),
    num(formatCount(request.prompt_tokens)),
    num(formatCount(request.cached_tokens)),
    num(formatCount(request.output_tokens)),
    el("td", {}, el("code", { title: request.trace_id }, request.trace_id.slice(0, TRACE_CHARS))),
  );
}
