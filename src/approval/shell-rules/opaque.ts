import type { ParameterExpansionPart, SyntaxNode } from "unbash";

/**
 * Why the text alone does not determine which commands the shell runs; null if it does.
 *
 * Two dangers: in arithmetic and indirect expansion bash evaluates the *value* of a variable and runs the `$(…)` in it; and
 * `sh` may be another shell (dash), which reads bash's own syntax as other commands.
 */
export function opaqueness(node: SyntaxNode, text: string): string | null {
  switch (node.type) {
    case "Script":
      return "errors" in node && node.errors !== undefined && node.errors.length > 0
        ? `the syntax is incomplete: ${node.errors[0]?.message}`
        : null;
    case "CommandExpansion":
    case "ProcessSubstitution":
    case "ArithmeticCommandExpansion":
      return node.script === undefined ? "it has a substitution that cannot be parsed" : null;
    case "TestCommand":
      return "`[[ … ]]` evaluates arithmetic, and sh reads it as other commands; write `[ … ]`";
    case "ArithmeticCommand":
    case "ArithmeticFor":
      return "`(( … ))` evaluates arithmetic, and sh reads it as other commands";
    case "AnsiCQuoted":
      return "`$'…'` has another meaning in sh; write `'…'`";
    case "ExtendedGlob":
      return "not every shell supports its extended glob";
    case "Redirect":
      return node.operator.startsWith("&") ? "in sh `&>` ends the command; write `>FILE 2>&1`" : null;
    case "ArithmeticExpansion":
      if (text.startsWith("$[")) return "sh reads `$[…]` as several words; write `$((…))`";
      return /[A-Za-z_$]/.test(text.slice(1)) ? "its arithmetic uses a variable, whose text the shell could run" : null;
    case "ParameterExpansion":
      return isIndirect(node) ? "it evaluates the text of a variable, which the shell could run" : null;
    case "Assignment":
      return node.index !== undefined && !isNumber(node.index.text) ? "it evaluates a subscript" : null;
    default:
      return null;
  }
}

function isIndirect({ prefix, index, operation }: ParameterExpansionPart): boolean {
  if (prefix === "!" || (index !== undefined && !isNumber(index.text) && !/^[@*]$/.test(index.text))) return true;
  switch (operation?.type) {
    case "Transform":
    case "Names":
    case "Unknown":
      return true;
    case "Slice":
      return ![operation.offset, operation.length].every((bound) => bound === undefined || isNumber(bound.text));
    default:
      return false;
  }
}

function isNumber(text: string): boolean {
  return /^\s*-?\d+\s*$/.test(text);
}
