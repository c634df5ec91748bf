/** Three significant digits, without a power of ten: `0.0421`, `12.3`, `4,560`. */
export function numberText(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}
