/** How is an element made?  Text only ever enters through text nodes, never as markup. */

export type Child = Node | string | null;

export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly Child[]
): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Replace the children and give focus back to the element with the same data-key, if it had it:
 *  a refresh must not throw a keyboard user to the top of the page. */
export function replaceKeepingFocus(parent: Element, ...children: readonly Child[]): void {
  const active = document.activeElement;
  const key = active !== null && parent.contains(active) ? active.getAttribute("data-key") : null;
  parent.replaceChildren(...children.filter((child) => child !== null));
  if (key === null) return;
  const again = [...parent.querySelectorAll<HTMLElement>("[data-key]")].find(
    (node) => node.dataset["key"] === key,
  );
  again?.focus({ preventScroll: true });
}

/** <time> whose machine-readable form is the full instant. */
export function timeElement(unixS: number, text: string): HTMLTimeElement {
  const iso = new Date(unixS * 1e3).toISOString();
  return el("time", { datetime: iso, title: iso }, text);
}
