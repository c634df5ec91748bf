import { type DestinationStream, type Logger, pino } from "pino";

export const LOG_LEVELS = ["trace", "debug", "info", "warn", "error", "silent"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** What the service says of itself. It holds no content of any request or run, and no path of the host. */
export type Log = Pick<Logger, "debug" | "info" | "warn" | "error">;

/** `pretty`: lines for people; otherwise each line is JSON. */
export function openLog({
  level,
  pretty,
  write,
}: {
  readonly level: LogLevel;
  readonly pretty: boolean;
  readonly write: (line: string) => void;
}): Log {
  const stream: DestinationStream = { write: (line) => write(pretty ? prettyLine(line) : line) };
  const formatters = { level: (label: string) => ({ level: label }) };
  return pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime, formatters }, stream);
}

function prettyLine(line: string): string {
  const { level, time, msg, ...rest } = JSON.parse(line) as Record<string, unknown>;
  const facts = Object.entries(rest).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  const [, clock = ""] = /T(\d\d:\d\d:\d\d)/.exec(String(time)) ?? [];
  return `${[clock, String(level).padEnd(5), msg, ...facts].join(" ")}\n`;
}
