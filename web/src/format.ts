/** How is a number, a time or a ratio written?  Pure functions; null is written as a dash. */

export const NBSP = "\u00a0";
export const NONE = "\u2013";

/** Quantiles in percent: integers, so that the sample rule below is exact. */
export type QuantilePercent = 50 | 90 | 99;
export const QUANTILES: readonly QuantilePercent[] = [50, 90, 99];

const MIN_SAMPLES_BEYOND = 30;
const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86_400;

const grouped = new Intl.NumberFormat("en-US");

/** True when fewer than 30 of n samples lie beyond the quantile: shown, but not to be relied on. */
export function hasFewSamples(count: number, quantile: QuantilePercent): boolean {
  return count * (100 - quantile) < MIN_SAMPLES_BEYOND * 100;
}

/** "few samples (n=42): p90, p99", or the bare sample count when every quantile has enough. */
export function describeSamples(count: number): string {
  if (count === 0) return "no samples";
  const few = QUANTILES.filter((quantile) => hasFewSamples(count, quantile));
  if (few.length === 0) return `n=${formatCount(count)}`;
  const names = few.length === QUANTILES.length ? "" : `: ${few.map((q) => `p${q}`).join(", ")}`;
  return `few samples (n=${formatCount(count)})${names}`;
}

export function formatCount(value: number | null): string {
  return value === null ? NONE : grouped.format(value);
}

/** Three significant digits in the unit that fits `like`: 840 µs, 184 ms, 1.20 s. */
export function formatDuration(seconds: number | null, like = seconds ?? 0): string {
  if (seconds === null) return NONE;
  if (seconds === 0) return `0${NBSP}s`;
  const ms = seconds * 1e3;
  if (like < 0.9995e-3) return `${significant(seconds * 1e6)}${NBSP}µs`;
  if (like < 0.9995) return `${significant(ms)}${NBSP}ms`;
  return `${significant(seconds)}${NBSP}s`;
}

function significant(value: number): string {
  if (value >= 99.95) return grouped.format(Math.round(value));
  return value.toFixed(value >= 9.995 ? 1 : 2);
}

/** A ratio always comes with both of its sums; an empty denominator has no ratio. */
export function formatPercent(part: number, whole: number): string {
  if (whole <= 0) return NONE;
  const percent = (100 * part) / whole;
  const digits = percent > 0 && percent < 10 ? 1 : 0;
  return `${percent.toFixed(digits)}${NBSP}%`;
}

/** Per second or per minute, whichever fits `like`. */
export function formatRate(perSecond: number | null, like = perSecond ?? 0): string {
  if (perSecond === null) return NONE;
  if (perSecond === 0) return "0/min";
  if (like >= 1) return `${significant(perSecond)}/s`;
  return `${significant(perSecond * MINUTE_S)}/min`;
}

/** A span of time in at most two units: 42 s, 3 min, 2 h 5 min, 9 d. */
export function formatSpan(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < MINUTE_S) return `${s}${NBSP}s`;
  if (s < HOUR_S) return `${Math.floor(s / MINUTE_S)}${NBSP}min`;
  if (s < DAY_S) {
    const rest = Math.floor((s % HOUR_S) / MINUTE_S);
    return `${Math.floor(s / HOUR_S)}${NBSP}h${rest > 0 ? ` ${rest}${NBSP}min` : ""}`;
  }
  return `${Math.floor(s / DAY_S)}${NBSP}d`;
}

export function formatAge(seconds: number): string {
  return seconds < 1 ? "just now" : `${formatSpan(seconds)} ago`;
}

/** 14:03:07, in UTC like every time on the page. */
export function formatClock(unixS: number): string {
  return new Date(unixS * 1e3).toISOString().slice(11, 19);
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun"].concat([
  "Jul",
  "Aug",
  "Sep",
  "Oct",
  "Nov",
  "Dec",
]);

/** 30 Nov */
export function formatDay(unixS: number): string {
  const date = new Date(unixS * 1e3);
  return `${date.getUTCDate()}${NBSP}${MONTHS[date.getUTCMonth()] ?? ""}`;
}

/** 30 Nov 14:03:07 */
export function formatDateTime(unixS: number): string {
  return `${formatDay(unixS)} ${formatClock(unixS)}`;
}

/** The time in a row of a table: the day is left out where one day is all there is. */
export function formatRowTime(unixS: number, spanS: number): string {
  return spanS <= DAY_S ? formatClock(unixS) : formatDateTime(unixS);
}

/** A tick of a time axis: as many parts of the time as the distance between ticks needs. */
export function formatTick(unixS: number, incrementS: number): string {
  if (incrementS >= DAY_S || unixS % DAY_S === 0) return formatDay(unixS);
  return incrementS >= MINUTE_S ? formatClock(unixS).slice(0, 5) : formatClock(unixS);
}

/** A label of an axis: the same units without zeros that say nothing, 1.50 s as 1.5 s. */
export function formatAxis(text: string): string {
  return text.replace(/\.(\d*?)0+(?=\D|$)/, (_, kept: string) => (kept === "" ? "" : `.${kept}`));
}
