import { present } from "../../text/present.ts";
import { type Network, type NetworkRule, PACKAGE_KINDS, type PackageKind } from "./rule.ts";

/** What a cell needs so that package tools use the hosts of its presets. */
export interface PackageSetup {
  /** Variables that the tools read. */
  readonly env: Readonly<Record<string, string>>;
  /** Files for tools that read no variables, by their absolute paths in the cell. They are read-only there. */
  readonly files: Readonly<Record<string, string>>;
}

/** A text of an answer that names a host in a way that the cell cannot reach, and how the cell reaches it. */
export interface Rewrite {
  /** `https://files.example.org`, without a final slash. */
  readonly from: string;
  /** `http://files.example.org` */
  readonly to: string;
}

const APT_CONFIG = "/.corral/apt.conf";
const APT_SOURCES = "/.corral/apt.list";
/** Cargo reads this file for every working directory. */
const CARGO_CONFIG = "/.cargo/config.toml";

/**
 * The set-up of the tools for which a network has rules of presets. The variables come after the image's and before the
 * worker's own, which may therefore replace them. Pure: `explain` shows the same that a cell gets.
 *
 * The words of `use`, by kind:
 * - npm: `http://HOST/PATH/`, or `@scope http://HOST/PATH/`
 * - pypi: `http://HOST/PATH/simple/`; pip treats all indexes alike
 * - debian: a line of `sources.list`, or `image` for those that the image has
 * - crates: `sparse+http://HOST/PATH/`
 * - go: `http://HOST/PATH,http://HOST/PATH` for the proxies in their order, `sumdb NAME[+KEY] http://HOST` for the checksum database or `sumdb off`, `nosumdb PATTERNS`
 */
export function packageSetup(network: Network): PackageSetup {
  const used = PACKAGE_KINDS.map((kind) => ({ kind, words: wordsOf(network, kind) }));
  const parts = used.filter(({ words }) => words.length > 0).map(({ kind, words }) => SETUPS[kind](words));
  return {
    env: Object.assign({}, ...parts.map(({ env }) => env)),
    files: Object.assign({}, ...parts.map(({ files }) => files)),
  };
}

/**
 * How absolute addresses in an index become addresses that work in the cell. Only for answers of hosts of presets, and never
 * for a file whose digest is checked.
 */
export function packageRewrites(network: Network): readonly Rewrite[] {
  const hosts = rulesOf(network).flatMap((rule) =>
    rule.packages === undefined || hasPlainText(rule) ? [] : [rule.to],
  );
  return [...new Set(hosts)].map((to) => {
    const host = to.replace(/:443$/, "");
    return { from: `https://${host}`, to: `http://${host}` };
  });
}

function hasPlainText({ to, tls }: NetworkRule): boolean {
  return tls === false || to.endsWith(":80");
}

function rulesOf(network: Network): readonly NetworkRule[] {
  return typeof network === "boolean" ? [] : network.allow;
}

function wordsOf(network: Network, kind: PackageKind): string[] {
  const words = rulesOf(network).flatMap(({ packages }) => (packages?.kind === kind ? packages.use : []));
  return [...new Set(words)];
}

type Setup = (words: readonly string[]) => Partial<PackageSetup>;

const SETUPS: Readonly<Record<PackageKind, Setup>> = {
  npm(words) {
    const scoped = words.map((word) => word.split(" ")).filter(([, url]) => url !== undefined);
    const registry = words.find((word) => !word.includes(" "));
    return {
      env: {
        // Lock files and indexes name registries by their https addresses, which npm then replaces.
        ...(registry === undefined
          ? {}
          : { npm_config_registry: registry, npm_config_replace_registry_host: "always" }),
        ...Object.fromEntries(scoped.map(([scope, url = ""]) => [`npm_config_${scope}:registry`, url])),
        // Both are requests that no preset allows.
        npm_config_audit: "false",
        npm_config_update_notifier: "false",
      },
    };
  },
  pypi([index = "", ...further]) {
    const hosts = [...new Set([index, ...further].map((url) => new URL(url).host))];
    return {
      env: {
        PIP_INDEX_URL: index,
        ...(further.length === 0 ? {} : { PIP_EXTRA_INDEX_URL: further.join(" ") }),
        PIP_TRUSTED_HOST: hosts.join(" "),
        PIP_DISABLE_PIP_VERSION_CHECK: "1",
      },
    };
  },
  debian(words) {
    const lines = words.filter((word) => word !== "image");
    const list: Record<string, string> = lines.length === 0 ? {} : { [APT_SOURCES]: `${lines.join("\n")}\n` };
    const settings = lines.length === 0 ? APT_DIRECTORIES : `${APT_LIST}${APT_DIRECTORIES}`;
    return { env: { APT_CONFIG }, files: { [APT_CONFIG]: settings, ...list } };
  },
  crates([registry]) {
    const text = `[source.crates-io]\nreplace-with = "corral"\n\n[source.corral]\nregistry = "${registry}"\n`;
    return { files: { [CARGO_CONFIG]: text } };
  },
  go(words) {
    const proxies = words.find((word) => !word.includes(" "));
    const named = (name: string) => words.find((word) => word.startsWith(`${name} `))?.slice(name.length + 1);
    const sumdb = named("sumdb");
    const none = named("nosumdb");
    return {
      env: {
        ...present({ GOPROXY: proxies, GOSUMDB: sumdb, GONOSUMDB: none }),
      },
    };
  },
};

const APT_LIST = `Dir::Etc::sourcelist "${APT_SOURCES}";
Dir::Etc::sourceparts "/dev/null";
`;

/**
 * The image's own directories are read-only and belong to root, so lists and packages are below `/tmp`, in memory. Without its
 * two caches apt-get uses a tenth of that.
 */
const APT_DIRECTORIES = `Dir::State "/tmp";
Dir::State::lists "apt-lists";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "/tmp";
Dir::Cache::archives "apt-archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Log "/tmp";
APT::Sandbox::User "";
`;
