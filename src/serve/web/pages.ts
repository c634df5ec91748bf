import type { ComponentType } from "preact";
import type { PageProps } from "./app/page-props.ts";
import { Fleets } from "./pages/fleets/fleets.tsx";
import { Overview } from "./pages/overview/overview.tsx";

export interface PageEntry {
  /** The first part of its address; empty for the overview. */
  readonly name: string;
  readonly title: string;
  /** Goes there after `g`. */
  readonly key: string;
  readonly Page: ComponentType<PageProps>;
}

/** In the order of the navigation. */
export const PAGES: readonly PageEntry[] = [
  { name: "", title: "Overview", key: "o", Page: Overview },
  { name: "fleets", title: "Fleets", key: "f", Page: Fleets },
];
