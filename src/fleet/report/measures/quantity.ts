/** `12ms`, `1.5s`, `2m 3s`, `1h 2m`, `2d 3h`: at most two units, for people. */
export function durationText(ms: number): string {
  if (ms <= 0) return "0s";
  if (ms < 10) return `${rounded(ms, 1)}ms`;
  if (ms < 999.5) return `${Math.round(ms)}ms`;
  if (ms < 10_000) return `${rounded(ms / 1000, 2)}s`;
  if (ms < 59_950) return `${rounded(ms / 1000, 1)}s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return twoUnits(Math.floor(seconds / 60), "m", seconds % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 48 * 60) return twoUnits(Math.floor(minutes / 60), "h", minutes % 60, "m");
  const hours = Math.round(minutes / 60);
  return twoUnits(Math.floor(hours / 24), "d", hours % 24, "h");
}

/** `12,345` */
export function countText(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** `1 item`, `2 items`. */
export function counted(count: number, noun: string): string {
  return `${countText(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** `812/s`, `3.4/s`, or `12/min` for low rates. */
export function rateText(perSecond: number): string {
  if (perSecond >= 100) return `${countText(perSecond)}/s`;
  if (perSecond >= 1) return `${rounded(perSecond, 1)}/s`;
  return `${rounded(perSecond * 60, 1)}/min`;
}

/** `143 MiB`: rounded, for people. */
export function roughBytesText(bytes: number): string {
  const unit = BYTE_UNITS.find(([, size]) => bytes >= size) ?? (["bytes", 1] as const);
  const value = bytes / unit[1];
  return `${rounded(value, value < 10 ? 1 : 0)} ${unit[0]}`;
}

const BYTE_UNITS = [
  ["GiB", 1024 ** 3],
  ["MiB", 1024 ** 2],
  ["KiB", 1024],
] as const;

function twoUnits(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large}${largeUnit}` : `${large}${largeUnit} ${small}${smallUnit}`;
}

/** Without trailing zeros. */
function rounded(value: number, digits: number): string {
  return String(Number(value.toFixed(digits)));
}
