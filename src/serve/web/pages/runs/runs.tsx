import type { PageProps } from "../../app/page-props.ts";
import { RunList } from "./run-list.tsx";
import { RunView } from "./run-view.tsx";

export function Runs({ parts: [id], query }: PageProps) {
  return id === undefined ? <RunList query={query} /> : <RunView key={id} id={id} />;
}
