import { OUTCOMES } from "../measures/outcome.ts";
import { at, TOP } from "./frame.ts";

export interface StackedBar {
  readonly x: number;
  readonly width: number;
  /** By outcome, in the order of `OUTCOMES`. */
  readonly values: readonly number[];
  /** Shown where somebody points at it: escaped already. */
  readonly title: string;
}

/** Bars of outcomes one on another; `max` is as high as the figure. */
export function stackedBar({ x, width, values, title }: StackedBar, max: number, height: number): string {
  let y = TOP + height;
  const parts = OUTCOMES.map(({ outcome }, index) => {
    const part = (height * (values[index] ?? 0)) / max;
    if (part <= 0) return "";
    y -= part;
    return `<rect class="${outcome}" x="${at(x)}" y="${at(y)}" width="${at(width)}" height="${at(part)}"/>`;
  });
  return `<g class="stack"><title>${title}</title>${parts.join("")}</g>\n`;
}

export function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
