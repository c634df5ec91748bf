import { DeclarationError } from "../../declarations/yaml/problem.ts";

/** A mistake in a manifest, at its place. It ends the reading. */
export function manifestFault(file: string, line: number, column: number, message: string): DeclarationError {
  return new DeclarationError([{ file, line, column, path: "", message }]);
}
