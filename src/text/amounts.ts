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
