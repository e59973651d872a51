/** How do rows of text become a table?  One header row, a scope for each header, numbers aligned. */

import type { TableSpec } from "../chart-specs.ts";
import { el } from "../dom.ts";

export function fillTable(table: HTMLTableElement, spec: TableSpec): void {
  const align = (idx: number): Record<string, string> =>
    spec.columns[idx]?.numeric === true ? { class: "num" } : {};
  const head = el(
    "tr",
    {},
    ...spec.columns.map((column, idx) => el("th", { scope: "col", ...align(idx) }, column.label)),
  );
  const body = spec.rows.map((row) =>
    el(
      "tr",
      {},
      ...row.map((cell, idx) =>
        idx === 0 ? el("th", { scope: "row" }, cell) : el("td", align(idx), cell),
      ),
    ),
  );
  if (body.length === 0) {
    body.push(
      el("tr", {}, el("td", { colspan: String(spec.columns.length), class: "none" }, spec.empty)),
    );
  }
  table.replaceChildren(el("thead", {}, head), el("tbody", {}, ...body));
}
