/** Which part shows what, and when is it asked for again?  URL -> state -> snapshot -> components. */

import { fetchSnapshot, type Snapshot } from "./api.ts";
import { chartSpecs } from "./chart-specs.ts";
import { KpiRow } from "./components/kpi-row.ts";
import { RequestTable } from "./components/request-table.ts";
import { RunTable } from "./components/run-table.ts";
import { TimeChart, type ZoomDetail } from "./components/time-chart.ts";
import { TrustBadge } from "./components/trust-badge.ts";
import { TrustBanner } from "./components/trust-banner.ts";
import { ViewControls } from "./components/view-controls.ts";
import { WorkerList } from "./components/worker-list.ts";
import { el, replaceKeepingFocus } from "./dom.ts";
import { formatAge, formatClock, formatDateTime } from "./format.ts";
import { formatState, MIN_WINDOW_S, parseState, type ViewState, WINDOWS } from "./state.ts";
import { describeIngest, describeState } from "./summary.ts";

const REFRESH_MS = 5000;

customElements.define("trust-badge", TrustBadge);
customElements.define("trust-banner", TrustBanner);
customElements.define("view-controls", ViewControls);
customElements.define("kpi-row", KpiRow);
customElements.define("worker-list", WorkerList);
customElements.define("time-chart", TimeChart);
customElements.define("run-table", RunTable);
customElements.define("request-table", RequestTable);

class App {
  #state: ViewState = parseState(location.search);
  #snapshot: Snapshot | null = null;
  #fetchedMs = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #inFlight = new AbortController();
  readonly #charts = [...document.querySelectorAll<TimeChart>("time-chart")];

  start(): void {
    document.addEventListener("click", (event) => this.#follow(event));
    window.addEventListener("popstate", () => this.#go(parseState(location.search), "none"));
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") void this.#refresh();
      else clearTimeout(this.#timer);
    });
    document.addEventListener("model", (event) => {
      this.#go({ ...this.#state, model: (event as CustomEvent<string | null>).detail }, "push");
    });
    document.addEventListener("zoom", (event) =>
      this.#zoom((event as CustomEvent<ZoomDetail>).detail),
    );
    document.addEventListener("twin", () => this.#toggleTwins());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      for (const chart of this.#charts) chart.recolour();
    });
    void this.#refresh();
  }

  /** Take over a state: write it to the URL, show what is known, then ask for the rest. */
  #go(state: ViewState, history: "push" | "replace" | "none"): void {
    const asksTheSame =
      formatState({ ...state, open: [] }) === formatState({ ...this.#state, open: [] });
    this.#state = state;
    if (history === "push") window.history.pushState(null, "", formatState(state));
    if (history === "replace") window.history.replaceState(null, "", formatState(state));
    this.#render();
    if (!asksTheSame) void this.#refresh();
  }

  #follow(event: MouseEvent): void {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)
      return;
    const link =
      event.target instanceof Element
        ? event.target.closest<HTMLAnchorElement>("a[data-nav]")
        : null;
    if (link === null) return;
    event.preventDefault();
    this.#go(parseState(link.search), "push");
  }

  #zoom({ fromS, toS }: ZoomDetail): void {
    const windowS = Math.max(MIN_WINDOW_S, Math.round(toS - fromS));
    this.#go({ ...this.#state, windowS, untilS: Math.round(fromS + windowS), runId: null }, "push");
  }

  #toggleTwins(): void {
    const open = this.#charts
      .filter((chart) => chart.twinOpen)
      .map((chart) => chart.dataset["chart"] ?? "");
    if (open.sort().join() !== [...this.#state.open].sort().join())
      this.#go({ ...this.#state, open }, "replace");
  }

  /** One refresh at a time; the newest question wins; the next one is due 5 s after the answer. */
  async #refresh(): Promise<void> {
    clearTimeout(this.#timer);
    this.#inFlight.abort();
    const mine = (this.#inFlight = new AbortController());
    try {
      const snapshot = await fetchSnapshot(this.#state, mine.signal);
      if (mine.signal.aborted) return;
      this.#snapshot = snapshot;
      this.#fetchedMs = performance.now();
      this.#notify(null);
      this.#render();
    } catch (error) {
      if (mine.signal.aborted) return;
      this.#notify(error instanceof Error ? error.message : "unknown failure");
    }
    if (!this.#state.paused && document.visibilityState === "visible") {
      this.#timer = setTimeout(() => void this.#refresh(), REFRESH_MS);
    }
  }

  /** Keep the last numbers and say from when they are; without any, say what to do. */
  #notify(problem: string | null): void {
    const notice = required("notice");
    const text =
      problem === null
        ? ""
        : this.#snapshot === null
          ? `No answer from the observatory (${problem}). Is \`starshade observatory\` running? Trying again.`
          : `Not up to date (${problem}): these are the numbers of ${formatClock(this.#snapshot.overview.now_s)} UTC. Trying again.`;
    notice.hidden = problem === null;
    if (notice.textContent !== text) notice.textContent = text;
  }

  #render(): void {
    const snapshot = this.#snapshot;
    if (snapshot === null) return;
    const { overview, runs, workers, requests } = snapshot;
    const nowS = overview.now_s + (performance.now() - this.#fetchedMs) / 1e3;
    document.body.dataset["loaded"] = "";
    component("trust-banner").update(workers);
    component("view-controls").update(this.#state, overview.models, nowS);
    component("worker-list").update(workers, nowS);
    component("kpi-row").update(overview);
    component("run-table").update(runs, this.#state);
    component("request-table").update(requests, this.#state);
    this.#renderCharts(snapshot);
    required("state").textContent = describeState(snapshot, nowS);
    required("ingest").textContent = describeIngest(overview);
    required("updated").textContent =
      `${this.#state.paused ? "Paused" : "Refreshed every 5 s"} · as of ${formatClock(overview.now_s)} UTC`;
  }

  #renderCharts({ overview, requests }: Snapshot): void {
    const isEmpty = overview.totals.requests === 0;
    const empty = required("empty");
    empty.hidden = !isEmpty;
    required("charts").hidden = isEmpty;
    required("numbers").hidden = isEmpty;
    if (isEmpty) {
      const latest = requests[0];
      replaceKeepingFocus(
        empty,
        ...(latest === undefined
          ? firstSteps()
          : this.#elsewhere(latest.started_s, overview.now_s)),
      );
      return;
    }
    const specs = chartSpecs(overview);
    for (const chart of this.#charts) {
      const spec = specs.find(({ key }) => key === chart.dataset["chart"]);
      if (spec !== undefined) chart.update(spec, this.#state.open.includes(spec.key));
    }
  }

  /** Nothing in this window, but there is something: lead there. */
  #elsewhere(latestS: number, nowS: number): readonly Node[] {
    const fits = WINDOWS.find(({ seconds }) => nowS - latestS < seconds * 0.9);
    const target =
      fits === undefined
        ? { ...this.#state, model: null, untilS: Math.ceil(latestS + 60) }
        : { ...this.#state, model: null, untilS: null, windowS: fits.seconds };
    return [
      el("h2", { id: "h-empty" }, "No requests in this window"),
      el(
        "p",
        {},
        `The latest request is of ${formatDateTime(latestS)} UTC, ${formatAge(nowS - latestS)}. `,
        el(
          "a",
          {
            "data-nav": "",
            "data-key": "elsewhere",
            href: formatState({ ...target, runId: null }),
          },
          fits === undefined ? "Show that time" : `Show the last ${fits.label}`,
        ),
      ),
    ];
  }
}

function firstSteps(): readonly Node[] {
  return [
    el("h2", { id: "h-empty" }, "No requests yet"),
    el("p", {}, "Charts appear with the first request. Make some with a small load run:"),
    el("pre", {}, el("code", {}, "starshade load run smoke")),
  ];
}

function required(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no #${id}`);
  return found;
}

function component<K extends keyof HTMLElementTagNameMap>(tag: K): HTMLElementTagNameMap[K] {
  const found = document.querySelector(tag);
  if (found === null) throw new Error(`the page has no <${tag}>`);
  return found;
}

new App().start();
