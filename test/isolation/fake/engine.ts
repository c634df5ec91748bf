import type { ImageFacts } from "../../../src/isolation/plan/plan-for.ts";

/** What stands in for a container: its labels are real ones, so that it is told apart and reaped by the real rules. */
export interface FakeContainer {
  readonly name: string;
  readonly id: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly createdAt: string;
  state: "created" | "running" | "exited";
  /** Ends what runs in it, and takes it off its engine. */
  remove(): void;
}

/** What several fake drivers have in common, as orchestrators have an Engine: the containers, by name, and the images. */
export interface FakeEngine {
  readonly containers: Map<string, FakeContainer>;
  /** Null: every name is an image, without variables and volumes. */
  readonly images: readonly ImageFacts[] | null;
}

export function fakeEngine(images: readonly ImageFacts[] | null = null): FakeEngine {
  return { containers: new Map(), images };
}
