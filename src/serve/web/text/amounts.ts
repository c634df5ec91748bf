/** `340 ms`, `4.2 s`, `12 s`, `3 min 5 s`, `3 min`, `2 h 10 min`, `4 d 3 h`. */
export function durationText(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${ms % 1000 === 0 ? ms / 1000 : (Math.floor(ms / 100) / 10).toFixed(1)} s`;
  const seconds = Math.floor(ms / 1000);
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3600), Math.floor(seconds / 86_400)];
  if (hours < 1) return both(minutes, "min", seconds % 60, "s");
  return days < 1 ? both(hours, "h", minutes % 60, "min") : both(days, "d", hours % 24, "h");
}

function both(large: number, unit: string, small: number, smaller: string): string {
  return small === 0 ? `${large} ${unit}` : `${large} ${unit} ${small} ${smaller}`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** `512 B`, `1.5 KiB`, `64 MiB`. */
export function bytesText(bytes: number): string {
  const power = bytes < 1024 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(bytes) / 10));
  const amount = bytes / 1024 ** power;
  return `${Number.isInteger(amount) || amount >= 100 ? Math.round(amount) : amount.toFixed(1)} ${UNITS[power]}`;
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

/** `1,234`; `100+` of a list that was cut. */
export function countText(count: number, isCut = false): string {
  return `${count.toLocaleString("en-US")}${isCut ? "+" : ""}`;
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${countText(count)} ${count === 1 ? one : many}`;
}

/** `timed_out` becomes `timed out`. */
export function words(value: string): string {
  return value.replaceAll("_", " ");
}
