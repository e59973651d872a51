/**
 * One worker's appraisal, words first, colour second: <trust-badge tier="warning" expired>.
 *
 * `code` is the class of a rejection, and stands on the badge: what is red says why.
 */

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
  static readonly observedAttributes = ["tier", "code", "expired"];

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
    const code = tier === "contraindicated" ? this.getAttribute("code") : null;
    const words = code === null ? WORDS[tier] : `${WORDS[tier]}: ${code}`;
    this.textContent = expired ? `expired (was ${words})` : (words ?? "not appraised");
  }
}
