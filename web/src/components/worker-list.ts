/** May a prompt be sealed to this worker?  Its latest appraisal: tier, reason, age and expiry. */

import type { Worker } from "../api.ts";
import { el, replaceKeepingFocus, timeElement } from "../dom.ts";
import { formatAge, formatSpan } from "../format.ts";
import { isExpired } from "../summary.ts";

const DIGEST_CHARS = 12;

declare global {
  interface HTMLElementTagNameMap {
    "worker-list": WorkerList;
  }
}

export class WorkerList extends HTMLElement {
  update(workers: readonly Worker[], nowS: number): void {
    if (workers.length === 0) {
      replaceKeepingFocus(
        this,
        el(
          "p",
          { class: "empty" },
          "No worker has been appraised yet: start one with ",
          el("code", {}, "starshade up"),
          ".",
        ),
      );
      return;
    }
    replaceKeepingFocus(this, ...workers.map((worker) => workerCard(worker, nowS)));
  }
}

function workerCard(worker: Worker, nowS: number): HTMLElement {
  const badge = el("trust-badge", { tier: worker.tier });
  if (worker.code !== null) badge.setAttribute("code", worker.code);
  if (isExpired(worker, nowS)) badge.setAttribute("expired", "");
  const facts: (readonly [string, string | Node])[] = [
    ["Appraised", timeElement(worker.appraised_s, formatAge(nowS - worker.appraised_s))],
    ["Valid", validity(worker, nowS)],
    [
      "TEE",
      worker.tee === null
        ? "unknown"
        : worker.simulated === true
          ? `${worker.tee}, simulated`
          : worker.tee,
    ],
    ["Trust anchor", worker.trust_anchor ?? "unknown"],
    ["Policy", worker.policy ?? "unknown"],
    ["Weights", digest(worker.weights_sha256)],
    ["Verdict", digest(worker.verdict_id)],
  ];
  return el(
    "article",
    { class: "card worker", "aria-label": `Worker ${worker.id}` },
    el("header", {}, el("h3", {}, worker.id), badge),
    el(
      "p",
      { class: "reason" },
      worker.reason,
      worker.code === null ? null : " ",
      worker.code === null ? null : el("code", { class: "code" }, worker.code),
    ),
    el(
      "dl",
      {},
      ...facts.map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))),
    ),
  );
}

function validity(worker: Worker, nowS: number): string | Node {
  if (worker.not_after_s === null) return "no expiry recorded";
  const restS = worker.not_after_s - nowS;
  const text = restS > 0 ? `for another ${formatSpan(restS)}` : `expired ${formatAge(-restS)}`;
  return timeElement(worker.not_after_s, text);
}

function digest(hex: string | null): string | Node {
  if (hex === null) return "not recorded";
  return hex.length <= DIGEST_CHARS
    ? hex
    : el("code", { title: hex }, `${hex.slice(0, DIGEST_CHARS)}\u2026`);
}
