import type { PageProps } from "../../app/page-props.ts";
import { ChangesetList } from "./changeset-list.tsx";
import { ChangesetView } from "./changeset-view.tsx";

export function Changesets({ parts: [id] }: PageProps) {
  return id === undefined ? <ChangesetList /> : <ChangesetView key={id} id={id} />;
}
