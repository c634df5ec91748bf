const BYTE_UNITS = [
  ["GiB", 1024 ** 3],
  ["MiB", 1024 ** 2],
  ["KiB", 1024],
] as const;

const TIME_UNITS = [
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1000],
] as const;

/** `256 MiB`, or `1000 bytes` if no larger unit is exact: different sizes never have the same text. */
export function formatBytes(bytes: number): string {
  const unit = BYTE_UNITS.find(([, size]) => bytes >= size && bytes % size === 0);
  return unit === undefined ? `${bytes} bytes` : `${bytes / unit[1]} ${unit[0]}`;
}

/** An amount in the unit of its limit. */
export function formatAmount(amount: number, unit: "duration" | "bytes" | "number" | "count"): string {
  if (unit === "duration") return formatDuration(amount);
  return unit === "bytes" ? formatBytes(amount) : String(amount);
}

/** `30s`, in the largest unit that is exact, as worker files write it. */
export function formatDuration(ms: number): string {
  const unit = TIME_UNITS.find(([, size]) => ms >= size && ms % size === 0);
  return unit === undefined ? `${ms}ms` : `${ms / unit[1]}${unit[0]}`;
}

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

/** `12,345`; `100+` of a list that was cut. */
export function countText(count: number, isCut = false): string {
  return `${String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, ",")}${isCut ? "+" : ""}`;
}

/** `1 item`, `2 items`, `2,000 indexes`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
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

function twoUnits(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large}${largeUnit}` : `${large}${largeUnit} ${small}${smallUnit}`;
}

/** Without trailing zeros. */
function rounded(value: number, digits: number): string {
  return String(Number(value.toFixed(digits)));
}

/** `3 s ago`, `2 h ago`, `in 4 min`; beyond a week the day. Times are ISO 8601 or milliseconds. */
export function agoText(at: string, now: number): string {
  const ms = now - Date.parse(at);
  if (!Number.isFinite(ms)) return at;
  const [size, ahead] = [Math.abs(ms), ms < 0];
  if (size > 7 * 86_400_000) return at.slice(0, 10);
  const text =
    size < 60_000
      ? `${Math.floor(size / 1000)} s`
      : size < 3_600_000
        ? `${Math.floor(size / 60_000)} min`
        : size < 86_400_000
          ? `${Math.floor(size / 3_600_000)} h`
          : `${Math.floor(size / 86_400_000)} d`;
  return ahead ? `in ${text}` : `${text} ago`;
}

/** `timed_out` becomes `timed out`. */
export function words(value: string): string {
  return value.replaceAll("_", " ");
}
