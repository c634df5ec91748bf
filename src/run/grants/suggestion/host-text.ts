import { relative } from "node:path";

/** A host directory as a project's files name it: relative to the project. */
export function hostText(projectDir: string, host: string): string {
  const text = relative(projectDir, host);
  if (text === "") return ".";
  return text.startsWith("..") ? text : `./${text}`;
}
