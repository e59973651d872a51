/** Is any of this simulated?  One loud line across the page, for as long as a worker's evidence is. */

import type { Worker } from "../api.ts";
import { el } from "../dom.ts";

declare global {
  interface HTMLElementTagNameMap {
    "trust-banner": TrustBanner;
  }
}

export class TrustBanner extends HTMLElement {
  update(workers: readonly Worker[]): void {
    const simulated = workers
      .filter((worker) => worker.simulated === true)
      .map((worker) => worker.id);
    this.hidden = simulated.length === 0;
    if (this.hidden) {
      this.replaceChildren();
      return;
    }
    const who =
      simulated.length === 1
        ? `the evidence of ${simulated[0]}`
        : `the evidence of ${simulated.join(", ")}`;
    const text = `${who} comes from a test root, not from hardware. Nothing here is confidential.`;
    if (this.textContent?.includes(text) === true) return;
    this.replaceChildren(el("p", { role: "note" }, el("strong", {}, "SIMULATED TEE:"), ` ${text}`));
  }
}
