import { explainCi } from "../../operations/ci/run-ci.ts";
import { ServiceFault } from "../http/fault.ts";
import { type Handlers, permits } from "../http/router.ts";
import { fileToSave, refuseStopping, type Served, waited } from "./owned.ts";

export function ciHandlers({ ci: runs, projects, over }: Served): Handlers<"ci"> {
  return {
    async "ci.start"({ body: { project, base, head, jobs, matrix }, caller }) {
      refuseStopping(over);
      // ci.yaml of any other commit could be a stranger's.
      if (base !== undefined && !permits(caller, "admin"))
        throw new ServiceFault(403, "FORBIDDEN", "another base than HEAD needs a token with the role admin");
      const selection = { matrix, ...(jobs === undefined ? {} : { jobs }) };
      return { ci: runs.start({ project: projects.named(project), base: base ?? "HEAD", head, selection }) };
    },
    async "ci.list"({ query: { project } }) {
      const names = projects.chosen(project).map(({ name }) => name);
      return { ci: runs.all.filter((one) => names.includes(one.project)).map(({ steps: _, ...one }) => one) };
    },
    async "ci.show"({ params: { ci }, query: { wait = 0 }, gone }) {
      const ending = runs.ending(ci);
      if (ending !== null) await waited(ending, wait, gone);
      return runs.find(ci);
    },
    async "ci.file"({ params: { ci }, query: { path } }) {
      return fileToSave(path, runs.file(ci, path));
    },
    async "ci.stop"({ params: { ci } }) {
      await runs.remove(ci);
      return { id: ci, outcome: "removed" };
    },
    async "ci.explain"({ params: { project, job }, gone }) {
      // Paths of the host are not for clients: the folder of the project is the root here.
      const { workers } = await explainCi(projects.named(project).dir, job, { signal: gone, shownIn: "/" });
      return { workers: Object.fromEntries(workers) };
    },
  };
}
