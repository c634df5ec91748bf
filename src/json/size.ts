/**
 * The characters of all texts and field names of a value, plus one for each value: about its length as JSON, without
 * serializing it. It goes level by level, so it cannot overflow the stack.
 */
export function charactersIn(json: unknown): number {
  let characters = 0;
  for (let level: readonly unknown[] = [json]; level.length > 0; ) {
    const next: unknown[] = [];
    for (const value of level) {
      characters += typeof value === "string" ? value.length + 1 : 1;
      if (typeof value !== "object" || value === null) continue;
      if (Array.isArray(value)) for (const part of value) next.push(part);
      else
        for (const [name, part] of Object.entries(value)) {
          characters += name.length;
          next.push(part);
        }
    }
    level = next;
  }
  return characters;
}
