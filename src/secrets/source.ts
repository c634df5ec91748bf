/** Where a secret is: a variable of Corral's own environment, or the first line that a program prints. */
export type SecretSource =
  | { readonly kind: "env"; readonly name: string }
  | { readonly kind: "command"; readonly program: string; readonly args: readonly string[] };
