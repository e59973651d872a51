/** One worker's appraisal, words first, colour second: <trust-badge tier="warning" expired>. */

const WORDS: Readonly<Record<string, string>> = {
  affirming: "affirming",
  warning: "warning",
  contraindicated: "contraindicated",
  none: "not appraised",
};
const MARKS: Readonly<Record<string, string>> = {
  affirming: "\u2713",
  warning: "!",
  contraindicated: "\u2715",
  none: "?",
};

declare global {
  interface HTMLElementTagNameMap {
    "trust-badge": TrustBadge;
  }
}

export class TrustBadge extends HTMLElement {
  static readonly observedAttributes = ["tier", "expired"];

  connectedCallback(): void {
    this.#render();
  }

  attributeChangedCallback(): void {
    this.#render();
  }

  #render(): void {
    const given = this.getAttribute("tier") ?? "none"; // absent means not appraised, never "fine"
    const tier = Object.hasOwn(WORDS, given) ? given : "none";
    const expired = this.hasAttribute("expired");
    this.dataset["tier"] = expired ? "none" : tier; // style.css colours by [data-tier]
    this.dataset["mark"] = MARKS[expired ? "none" : tier];
    this.textContent = expired ? `expired (was ${WORDS[tier]})` : (WORDS[tier] ?? "not appraised");
  }
}
