/** One chart over time with its twin: a uPlot canvas, a legend in words, and the same numbers as a table. */

import uPlot from "uplot";
import type { ChartSpec, SeriesSpec } from "../chart-specs.ts";
import { el, replaceKeepingFocus } from "../dom.ts";
import { formatDateTime, formatTick, NONE } from "../format.ts";
import { fillTable } from "./data-table.ts";

export interface ZoomDetail {
  readonly fromS: number;
  readonly toS: number;
}

const HEIGHT_PX = 188;
const MIN_ZOOM_PX = 8;
const SYNC_KEY = "observatory";
const AXIS_FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

declare global {
  interface HTMLElementTagNameMap {
    "time-chart": TimeChart;
  }
}

/** Fires "zoom" (ZoomDetail) when a span of time is dragged, "twin" when the table is toggled. */
export class TimeChart extends HTMLElement {
  #spec: ChartSpec | null = null;
  #plot: uPlot | null = null;
  #shape = "";
  readonly #title = el("h3");
  readonly #definition = el("p", { class: "definition" });
  readonly #legend = el("ul", { class: "legend" });
  readonly #cursorTime = el("p", { class: "cursor-time" });
  readonly #canvas = el("div", { class: "plot", tabindex: "0", role: "img" });
  readonly #note = el("p", { class: "chart-note" });
  readonly #table = el("table");
  readonly #scroll = el(
    "div",
    { class: "scroll twin", role: "region", tabindex: "0" },
    this.#table,
  );
  readonly #details = el("details", {}, el("summary", {}, "Numbers"), this.#scroll);
  readonly #observer = new ResizeObserver(() => this.#resize());

  connectedCallback(): void {
    if (this.childElementCount > 0) return;
    this.append(
      el(
        "figure",
        {},
        el("figcaption", {}, this.#title, this.#cursorTime, this.#definition),
        this.#legend,
        this.#canvas,
        this.#note,
        this.#details,
      ),
    );
    this.#observer.observe(this.#canvas);
    this.#canvas.addEventListener("keydown", (event) => this.#moveCursor(event));
    this.#details.addEventListener("toggle", () => this.#toggled());
  }

  disconnectedCallback(): void {
    this.#observer.disconnect();
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** What the canvas draws: times, then one column for each series. Tests compare it to the table. */
  get plotted(): readonly unknown[] {
    return this.#plot === null ? [] : this.#plot.data.map((column) => [...(column ?? [])]);
  }

  get twinOpen(): boolean {
    return this.#details.open;
  }

  update(spec: ChartSpec, twinOpen: boolean): void {
    this.#spec = spec;
    this.#title.textContent = spec.title;
    this.#definition.textContent = spec.definition;
    this.#note.textContent = spec.note;
    this.#canvas.setAttribute(
      "aria-label",
      `${spec.title}. ${spec.summary} Arrow keys move the cursor.`,
    );
    this.#scroll.setAttribute("aria-label", `${spec.title}, numbers`);
    this.#details.open = twinOpen;
    this.#draw(spec);
    this.#describe();
    if (twinOpen) fillTable(this.#table, spec.table);
  }

  /** Colours come from the style sheet: ask for them again after the scheme has changed. */
  recolour(): void {
    this.#plot?.redraw(false, true);
  }

  #toggled(): void {
    if (this.#details.open && this.#spec !== null) fillTable(this.#table, this.#spec.table);
    this.dispatchEvent(new CustomEvent("twin", { bubbles: true }));
  }

  #draw(spec: ChartSpec): void {
    const data: uPlot.AlignedData = [[...spec.timesS], ...spec.series.map((s) => [...s.values])];
    const shape = spec.series.map((s) => `${s.label}/${s.kind}`).join();
    if (this.#plot !== null && shape === this.#shape) {
      this.#plot.batch(() => {
        this.#plot?.setData(data, true);
      });
      return;
    }
    this.#plot?.destroy();
    this.#shape = shape;
    this.#canvas.replaceChildren();
    this.#plot = new uPlot(this.#options(spec), data, this.#canvas);
  }

  #options(spec: ChartSpec): uPlot.Options {
    const line = (): string => this.#colour("--line");
    const axis = { stroke: () => this.#colour("--muted"), font: AXIS_FONT, ticks: { show: false } };
    return {
      width: Math.max(1, this.#canvas.clientWidth),
      height: HEIGHT_PX,
      legend: { show: false },
      padding: [8, 20, 0, 0], // room for the half of the last time that stands out
      cursor: {
        sync: { key: SYNC_KEY },
        y: false,
        points: { show: spec.series.some(({ kind }) => kind === "line"), size: 7, width: 1.5 },
        drag: { x: true, y: false, setScale: false, dist: MIN_ZOOM_PX },
      },
      scales: {
        x: { range: () => [this.#spec?.fromS ?? 0, this.#spec?.toS ?? 1] },
        y: { range: (_plot, _min, max) => [0, this.#spec?.maxY ?? niceMax(max)] },
      },
      axes: [
        {
          ...axis,
          grid: { show: false },
          border: { show: true, stroke: line, width: 1 },
          space: 72,
          size: 30,
          values: (_plot, ticks, _axis, _space, increment) =>
            ticks.map((t) => formatTick(t, increment)),
        },
        {
          ...axis,
          grid: { stroke: line, width: 1 },
          size: 62,
          space: 36,
          values: (_plot, ticks) => {
            const top = Math.max(...ticks);
            return ticks.map((t) => this.#spec?.formatY(t, top) ?? "");
          },
        },
      ],
      series: [{}, ...spec.series.map((series) => this.#series(series))],
      bands: spec.bands.map(([upper, lower]) => ({
        series: [upper, lower],
        fill: () => this.#colour("--band"),
      })),
      hooks: {
        setCursor: [() => this.#describe()],
        setSelect: [(plot) => this.#select(plot)],
      },
    };
  }

  #series(spec: SeriesSpec): uPlot.Series {
    const colour = (): string => this.#colour(spec.colour);
    if (spec.kind === "bar") {
      const paths = uPlot.paths.bars?.({ size: [0.82, 48, 1], align: 1, radius: 0.12 });
      return {
        stroke: colour,
        fill: colour,
        width: 0,
        points: { show: false },
        ...(paths === undefined ? {} : { paths }),
      };
    }
    return {
      stroke: colour,
      width: spec.width,
      dash: [...spec.dash],
      spanGaps: false,
      points: { size: 4, fill: colour, stroke: colour, width: 0, filter: lonePoints },
    };
  }

  /** The legend shows the values under the cursor, or those of the whole window. */
  #describe(): void {
    const spec = this.#spec;
    if (spec === null) return;
    const idx = this.#plot?.cursor.idx ?? null;
    const time = idx === null ? undefined : spec.timesS[idx];
    this.#cursorTime.textContent =
      time === undefined ? "whole window" : `from ${formatDateTime(time)}`;
    replaceKeepingFocus(
      this.#legend,
      ...spec.series.map((series) => {
        const value = idx === null ? series.overall : series.format(series.values[idx] ?? null);
        return el(
          "li",
          { "data-swatch": series.swatch },
          el("span", { class: "name" }, series.label),
          " ",
          el("span", { class: "value" }, value || NONE),
        );
      }),
    );
  }

  #moveCursor(event: KeyboardEvent): void {
    const plot = this.#plot;
    const times = this.#spec?.timesS ?? [];
    if (plot === null || times.length === 0 || event.altKey || event.ctrlKey || event.metaKey)
      return;
    const now = plot.cursor.idx ?? times.length;
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: times.length - 1 }[
      event.key
    ];
    if (event.key === "Escape") plot.setCursor({ left: -10, top: -10 });
    if (next === undefined) return;
    event.preventDefault();
    const time = times[Math.min(times.length - 1, Math.max(0, next))] ?? 0;
    plot.setCursor({ left: plot.valToPos(time, "x"), top: plot.over.clientHeight / 2 });
  }

  #select(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width < MIN_ZOOM_PX) return;
    const detail: ZoomDetail = {
      fromS: plot.posToVal(left, "x"),
      toS: plot.posToVal(left + width, "x"),
    };
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.dispatchEvent(new CustomEvent<ZoomDetail>("zoom", { bubbles: true, detail }));
  }

  #resize(): void {
    const width = this.#canvas.clientWidth;
    if (width > 0 && width !== this.#plot?.width) this.#plot?.setSize({ width, height: HEIGHT_PX });
  }

  #colour(name: string): string {
    return getComputedStyle(this).getPropertyValue(name).trim();
  }
}

/** Only points without a neighbour need a mark: a line cannot show them. */
function lonePoints(plot: uPlot, seriesIdx: number): number[] {
  const values = plot.data[seriesIdx] ?? [];
  const lone: number[] = [];
  for (let idx = 0; idx < values.length; idx += 1) {
    if (values[idx] == null) continue;
    if (values[idx - 1] == null && values[idx + 1] == null) lone.push(idx);
  }
  return lone;
}

function niceMax(max: number | null): number {
  return max === null || !Number.isFinite(max) || max <= 0 ? 1 : max * 1.12;
}
