import type { ComponentType } from "preact";
import type { PageProps } from "./app/page-props.ts";
import { Audit } from "./pages/audit/audit.tsx";
import { Changesets } from "./pages/changesets/changesets.tsx";
import { Fleets } from "./pages/fleets/fleets.tsx";
import { Inbox } from "./pages/inbox/inbox.tsx";
import { Machine } from "./pages/machine/machine.tsx";
import { Overview } from "./pages/overview/overview.tsx";
import { Runs } from "./pages/runs/runs.tsx";
import { Workers } from "./pages/workers/workers.tsx";

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
  { name: "runs", title: "Runs", key: "r", Page: Runs },
  { name: "inbox", title: "Inbox", key: "i", Page: Inbox },
  { name: "changesets", title: "Changesets", key: "c", Page: Changesets },
  { name: "fleets", title: "Fleets", key: "f", Page: Fleets },
  { name: "workers", title: "Workers", key: "w", Page: Workers },
  { name: "audit", title: "Audit", key: "a", Page: Audit },
  { name: "machine", title: "Machine", key: "m", Page: Machine },
];
