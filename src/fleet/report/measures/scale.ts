/** The smallest 1, 2 or 5 times a power of ten that is at least `rough`. */
export function niceStep(rough: number): number {
  if (!(rough > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5].find((candidate) => candidate * power >= rough * (1 - 1e-9));
  return (factor ?? 10) * power;
}

/** Ticks from 0 to at least `max`: about `wanted` steps, at most twice as many. */
export function ticksUpTo(max: number, wanted: number): number[] {
  const step = niceStep(max / wanted);
  const steps = Math.min(2 * wanted, Math.max(1, Math.ceil(max / step - 1e-9)));
  return Array.from({ length: steps + 1 }, (_, index) => index * step);
}

const [SECOND, MINUTE, HOUR, DAY] = [1000, 60_000, 3_600_000, 86_400_000] as const;
const TIME_STEPS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 7].map((days) => days * DAY),
];

/** From `fromMs` to `toMs`, inclusive, in clock or calendar units, so that there are at most `wanted` steps. */
export function timeTicks(fromMs: number, toMs: number, wanted = 8): number[] {
  const spanMs = toMs - fromMs;
  const step = TIME_STEPS.find((step) => spanMs / step <= wanted) ?? niceStep(spanMs / wanted / DAY) * DAY;
  const first = Math.ceil(fromMs / step - 1e-9);
  const last = Math.floor(toMs / step + 1e-9);
  return Array.from(
    { length: Math.max(0, Math.min(last - first, 2 * wanted) + 1) },
    (_, index) => (first + index) * step,
  );
}

const LOG_TICKS = [1, 10, 100, SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, DAY, 10 * DAY, 100 * DAY];

const FINE_LOG_TICKS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 20].map((seconds) => seconds * SECOND),
  ...[1, 2, 5, 10, 20].map((minutes) => minutes * MINUTE),
  ...[1, 2, 5, 10].map((hours) => hours * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * DAY),
];

/** Round durations for a logarithmic axis; a short axis gets finer ones. */
export function logTimeTicks(fromMs: number, toMs: number): number[] {
  const isWithin = (ms: number): boolean => ms >= fromMs * (1 - 1e-9) && ms <= toMs * (1 + 1e-9);
  const ticks = LOG_TICKS.filter(isWithin);
  return ticks.length >= 4 ? ticks : FINE_LOG_TICKS.filter(isWithin);
}
