/** What is being looked at?  The whole view state, and its one home: the query of the URL. */

export interface ViewState {
  readonly windowS: number;
  /** End of the window; null follows the clock. */
  readonly untilS: number | null;
  readonly model: string | null;
  readonly runId: string | null;
  /** Keys of the charts whose table of numbers is open. */
  readonly open: readonly string[];
  readonly paused: boolean;
  readonly failedOnly: boolean;
  readonly allRuns: boolean;
}

export const WINDOWS: readonly { readonly seconds: number; readonly label: string }[] = [
  { seconds: 900, label: "15 min" },
  { seconds: 3600, label: "1 h" },
  { seconds: 21_600, label: "6 h" },
  { seconds: 86_400, label: "24 h" },
  { seconds: 604_800, label: "7 d" },
];
export const MIN_WINDOW_S = 60;
const MAX_WINDOW_S = 31 * 86_400;
const DEFAULT_WINDOW_S = 3600;
// What the API takes (web/api.py): beyond it the page would ask in vain every five seconds.
const MAX_UNTIL_S = 4_102_444_800;
const MAX_MODEL_CHARS = 128;

export function parseState(search: string): ViewState {
  const query = new URLSearchParams(search);
  const windowS = readNumber(query.get("window")) ?? DEFAULT_WINDOW_S;
  return {
    windowS: Math.round(Math.min(MAX_WINDOW_S, Math.max(MIN_WINDOW_S, windowS))),
    untilS: readNumber(query.get("until"), MAX_UNTIL_S),
    model: readText(query.get("model")),
    runId: readText(query.get("run")),
    open: (query.get("open") ?? "").split(",").filter((key) => /^[a-z0-9]{1,20}$/.test(key)),
    paused: query.get("refresh") === "off",
    failedOnly: query.get("requests") === "failed",
    allRuns: query.get("runs") === "all",
  };
}

/** Back to the present; the window of a run was the run's and does not stay. */
export function leavePast(state: ViewState): ViewState {
  const windowS = state.runId === null ? state.windowS : DEFAULT_WINDOW_S;
  return { ...state, windowS, untilS: null, runId: null };
}

/** The query that parseState reads back as the same state; defaults are left out. */
export function formatState(state: ViewState): string {
  const query = new URLSearchParams();
  if (state.windowS !== DEFAULT_WINDOW_S) query.set("window", String(state.windowS));
  if (state.untilS !== null) query.set("until", String(Math.round(state.untilS)));
  if (state.model !== null) query.set("model", state.model);
  if (state.runId !== null) query.set("run", state.runId);
  if (state.open.length > 0) query.set("open", [...state.open].sort().join(","));
  if (state.paused) query.set("refresh", "off");
  if (state.failedOnly) query.set("requests", "failed");
  if (state.allRuns) query.set("runs", "all");
  const text = query.toString();
  return text === "" ? "?" : `?${text.replaceAll("%2C", ",")}`;
}

function readNumber(text: string | null, most = Infinity): number | null {
  if (text === null || text === "") return null;
  const value = Number(text);
  return Number.isFinite(value) && value > 0 && value <= most ? value : null;
}

function readText(text: string | null): string | null {
  return text === null || text === "" || text.length > MAX_MODEL_CHARS ? null : text;
}
