/** Network access: none, all of it, or only these `host:port` pairs. `*` stands for every port; `*.example.org` for every host below. */
export type Network = boolean | { readonly allow: readonly string[] };
