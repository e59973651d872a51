"""How does a test read the dashboard: parts by their names, numbers as they are written?"""

import re
from typing import Final

from playwright.sync_api import Locator, Page

_UNIT: Final = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "%": 0.01, "/s": 1.0, "/min": 1 / 60}

# Contrast of each element that holds text against the nearest painted background [WCAG 2.2, 1.4.3].
CONTRAST: Final = """() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return { r, g, b, a };
  };
  const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ({ r, g, b }) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const backdrop = (node) => {
    for (let at = node; at !== null; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.a === 1) return colour;
    }
    return { r: 255, g: 255, b: 255 };
  };
  const found = [];
  for (const node of document.body.querySelectorAll("*")) {
    const texts = [...node.childNodes].filter((child) => child.nodeType === Node.TEXT_NODE);
    const text = texts.map((child) => child.data).join("").trim();
    if (text === "" || node.getClientRects().length === 0) continue;
    const pair = [luminance(parse(getComputedStyle(node).color)), luminance(backdrop(node))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    found.push({ text: text.slice(0, 40), ratio });
  }
  return found;
}"""


def card(page: Page, name: str) -> Locator:
    """One card of the key numbers."""
    return page.locator("kpi-row article").filter(has=page.get_by_role("heading", name=name))


def worker(page: Page, name: str) -> Locator:
    """One worker's card."""
    return page.get_by_role("article", name=f"Worker {name}")


def duration(value_s: float) -> str:
    """Three significant digits, as the page writes them."""
    unit, value = ("ms", value_s * 1e3) if value_s < 0.9995 else ("s", value_s)
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}\u00a0{unit}"


def seconds(cell: str) -> float:
    """The value of a written number, in seconds, per second or as a ratio."""
    match = re.fullmatch(r"([\d.,]+)\u00a0?(ms|µs|s|%|/s|/min)", cell)
    assert match is not None, cell
    return float(match[1].replace(",", "")) * _UNIT[match[2]]


def clock(unix_s: float) -> str:
    """HH:MM:SS in UTC."""
    second = int(unix_s) % 86_400
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
