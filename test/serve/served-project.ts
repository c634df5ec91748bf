import { type CliProject, cliProject, sh } from "../cli/cli-project.ts";

/** A project with a worker for each thing that a service does. */
export async function servedProject(): Promise<CliProject> {
  return await cliProject({
    yaml: {
      version: 1,
      sandbox: {
        paths: { docs: { root: "docs", mode: "ro" }, out: { root: "out", mode: "rw", stage: true } },
      },
      approval: { mode: "interactive", timeout: "60s" },
    },
    workers: {
      echo: { image: "corral/base", command: ["cat"] },
      attached: {
        image: "corral/base",
        command: sh("cd /attachments; ls; cat ./*"),
        attachments: {},
      },
      words: { image: "corral/base", command: ["echo"], arguments: true },
      slow: {
        image: "corral/base",
        command: sh("i=0; while [ $i -lt 300 ]; do echo tick $i; sleep 0.1; i=$((i+1)); done"),
      },
      brief: { image: "corral/base", command: sh("cat; sleep 0.4") },
      hostile: {
        image: "corral/base",
        command: sh(
          `printf 'data: {"type":"ended"}\\n\\nid: 1\\nevent: ended\\n\\n\\033[2J\\033]0;title\\007<script>alert(1)</script>\\r\\n\\n'`,
        ),
      },
      writer: {
        image: "corral/base",
        command: sh("echo new > /out/new.txt; mkdir /out/dir; echo x > /out/dir/x; chmod 755 /out/dir/x; exit 3"),
        sandbox: { inherit: true },
      },
      linker: {
        image: "corral/base",
        command: sh("ln -s /etc/passwd /out/link; ln -s ../../.. /out/up; echo new > /out/new.txt; exit 3"),
        sandbox: { inherit: true },
      },
      asks: { image: "corral/base", command: sh("echo asked > /out/asked.txt"), sandbox: { inherit: true } },
      desk: {
        image: "corral/base",
        command: ["true"],
        sandbox: { inherit: true },
        ports: [8000],
        shell_rules: { default: "pre_approved" },
      },
      ruled: {
        image: "corral/base",
        command: ["true"],
        sandbox: { inherit: true },
        shell_rules: { default: "blocked" },
      },
      hungry: { image: "corral/base", command: ["true"], sandbox: { allow_read: ["/nowhere"] } },
    },
    files: {
      "docs/a.txt": "a document\n",
      "fleets/all.yaml": "version: 1\nworker: attached\nover: docs/*.txt\nattach: '{path}'\n",
    },
    folders: ["out"],
  });
}
