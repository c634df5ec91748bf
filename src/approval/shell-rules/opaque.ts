import type { ParameterExpansionPart, SyntaxNode } from "unbash";

/**
 * Why nobody can say, from the text alone, which commands this makes the shell run; null where that can be said.
 *
 * Two dangers stand behind most of them: bash evaluates the *value* of a variable where it calculates or expands
 * indirectly, and runs the `$(…)` in it; and `sh` is another shell (dash), to which bash's own syntax is other commands.
 */
export function opaqueness(node: SyntaxNode, text: string): string | null {
  switch (node.type) {
    case "Script":
      return "errors" in node && node.errors !== undefined && node.errors.length > 0
        ? `it is not whole: ${node.errors[0]?.message}`
        : null;
    case "CommandExpansion":
    case "ProcessSubstitution":
    case "ArithmeticCommandExpansion":
      return node.script === undefined ? "a substitution in it cannot be read" : null;
    case "TestCommand":
      return "`[[ … ]]` calculates, and is other commands to sh; write `[ … ]`";
    case "ArithmeticCommand":
    case "ArithmeticFor":
      return "`(( … ))` calculates, and is other commands to sh";
    case "AnsiCQuoted":
      return "`$'…'` ends at another place for sh; write `'…'`";
    case "ExtendedGlob":
      return "its extended glob is not known to every shell";
    case "Redirect":
      return node.operator.startsWith("&") ? "`&>` ends the command for sh; write `>FILE 2>&1`" : null;
    case "ArithmeticExpansion":
      if (text.startsWith("$[")) return "`$[…]` is several words to sh; write `$((…))`";
      return /[A-Za-z_$]/.test(text.slice(1)) ? "it calculates with text that the shell would run" : null;
    case "ParameterExpansion":
      return isIndirect(node) ? "it evaluates a variable's text, which the shell could run" : null;
    case "Assignment":
      return node.index !== undefined && !isNumber(node.index.text) ? "it calculates a subscript" : null;
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
