/** Which window, which model, live or held?  Every choice is a link or a form control over the URL. */

import { el, replaceKeepingFocus } from "../dom.ts";
import { formatDateTime, formatSpan } from "../format.ts";
import { formatState, leavePast, type ViewState, WINDOWS } from "../state.ts";

declare global {
  interface HTMLElementTagNameMap {
    "view-controls": ViewControls;
  }
}

/** Fires "model" with the chosen model (null: all); everything else is a link with data-nav. */
export class ViewControls extends HTMLElement {
  readonly #windows = el("nav", { class: "segments", "aria-label": "Window of time" });
  readonly #select = el("select", { id: "model", "data-key": "model" });
  readonly #model = el(
    "div",
    { class: "model" },
    el("label", { for: "model" }, "Model"),
    this.#select,
  );
  readonly #live = el("div", { class: "live" });

  connectedCallback(): void {
    if (this.childElementCount > 0) return;
    this.append(this.#windows, this.#model, this.#live);
    this.#select.addEventListener("change", () => {
      const detail = this.#select.value === "" ? null : this.#select.value;
      this.dispatchEvent(new CustomEvent<string | null>("model", { bubbles: true, detail }));
    });
  }

  update(state: ViewState, models: readonly string[], nowS: number): void {
    this.#drawWindows(state);
    this.#drawModels(state, models);
    this.#drawLive(state, nowS);
  }

  #drawWindows(state: ViewState): void {
    replaceKeepingFocus(
      this.#windows,
      ...WINDOWS.map(({ seconds, label }) => {
        const current = state.untilS === null && state.windowS === seconds;
        const href = formatState({ ...state, windowS: seconds, untilS: null, runId: null });
        return el(
          "a",
          {
            href,
            "data-nav": "",
            "data-key": `window-${seconds}`,
            ...(current ? { "aria-current": "true" } : {}),
          },
          label,
        );
      }),
    );
  }

  #drawModels(state: ViewState, models: readonly string[]): void {
    const names =
      state.model !== null && !models.includes(state.model) ? [...models, state.model] : models;
    const have = [...this.#select.options].slice(1).map((option) => option.value);
    if (this.#select.options.length === 0 || have.join("\n") !== names.join("\n")) {
      this.#select.replaceChildren(
        el("option", { value: "" }, "all models"),
        ...names.map((name) => el("option", { value: name }, name)),
      );
    }
    this.#select.value = state.model ?? "";
  }

  #drawLive(state: ViewState, nowS: number): void {
    const link = (
      key: string,
      label: string,
      target: Partial<ViewState>,
      title: string,
    ): HTMLElement =>
      el(
        "a",
        {
          class: "button",
          "data-nav": "",
          "data-key": key,
          title,
          href: formatState({ ...state, ...target }),
        },
        label,
      );
    const endS = state.untilS ?? nowS;
    const isPast = state.untilS !== null;
    const laterS = endS + state.windowS;
    replaceKeepingFocus(
      this.#live,
      isPast
        ? el(
            "span",
            { class: "span" },
            `${formatSpan(state.windowS)} until ${formatDateTime(endS)}`,
          )
        : null,
      link(
        "earlier",
        "Earlier",
        { untilS: Math.round(endS - state.windowS), runId: null },
        "One window back",
      ),
      isPast
        ? link(
            "later",
            "Later",
            { untilS: laterS >= nowS ? null : Math.round(laterS), runId: null },
            "One window on",
          )
        : null,
      isPast ? link("now", "Now", leavePast(state), "Follow the clock again") : null,
      link(
        "pause",
        state.paused ? "Resume" : "Pause",
        { paused: !state.paused },
        state.paused ? "Refresh every 5 s" : "Stop refreshing",
      ),
    );
  }
}
