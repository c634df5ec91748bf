import { Descriptor } from "../../files/host/descriptor.ts";
import { explainCi } from "../../operations/ci/run-ci.ts";
import { conversionOperations } from "../../operations/contract/conversions.ts";
import type { AnswerOf, Given } from "../../operations/contract/table.ts";
import { folderOfFile } from "../../operations/convert/layout.ts";
import { present } from "../../text/present.ts";
import { ownerOf } from "../http/admission.ts";
import { tarOf } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import { jsonIn, readForm } from "../http/multipart.ts";
import { checkedInput, type Handlers, permits } from "../http/router.ts";
import { fileToSave, refuseStopping, type Served, waited } from "./owned.ts";

type Order = Given<"conversions.start", "body">;

export function conversionHandlers({ conversions, uploads, uploadShares, over }: Served): Handlers<"conversions"> {
  return {
    async "conversions.start"({ body, caller, request, take }) {
      refuseStopping(over);
      if (body !== undefined)
        throw new ServiceFault(
          400,
          "WRONG_REQUEST",
          "send the files with it, as a form whose part `request` is this JSON",
        );
      conversions.refuseMore();
      const { socket } = request;
      const part = uploadShares.open(ownerOf(caller), () => socket.destroy());
      const batch = await uploads.batch(part);
      try {
        let order: Order | null = null;
        const begin = async (json: string): Promise<void> => {
          const schema = conversionOperations["conversions.start"].body;
          order = checkedInput(schema, jsonIn(json, "the part `request`"), "request") as Order;
        };
        const sent = await readForm(request, { begin, keep: (content) => batch.keep(content), take });
        if (sent.length === 0) throw new ServiceFault(400, "WRONG_REQUEST", "the form has no file");
        // From now on they belong to the conversion.
        part.keep();
        const { passwords = [], ...asked } = order as unknown as Order;
        const passwordFile =
          passwords.length === 0 ? undefined : await batch.keep(inOnePiece(`${passwords.join("\n")}\n`));
        const files = sent.map(({ name, path }) => {
          using file = Descriptor.name(path);
          const { size: bytes } = file.stat();
          const folder = folderOfFile([Buffer.from(name)]);
          return { path: Buffer.from(path), folder, shown: name, bytes, isNameable: true };
        });
        const { to, ...more } = asked;
        return { conversion: await conversions.start({ to, ...present({ ...more, passwordFile }), files, batch }) };
      } catch (error) {
        await batch[Symbol.asyncDispose]();
        throw error;
      }
    },
    "conversions.list": async () => ({ conversions: conversions.all.map(withoutFiles) }),
    async "conversions.show"({ params: { conversion }, query: { wait = 0 }, gone }) {
      const ending = conversions.ending(conversion);
      if (ending !== null) await waited(ending, wait, gone);
      return conversions.find(conversion);
    },
    async "conversions.file"({ params: { conversion }, query: { path } }) {
      return fileToSave(path, conversions.file(conversion, path));
    },
    async "conversions.files"({ params: { conversion } }) {
      const headers = { "content-disposition": `attachment; filename="${conversion}.tar"` };
      return { headers, pieces: tarOf(conversions.files(conversion)) };
    },
    async "conversions.remove"({ params: { conversion } }) {
      await conversions.remove(conversion);
      return { id: conversion, outcome: "removed" };
    },
  };
}

async function* inOnePiece(text: string): AsyncGenerator<Buffer> {
  yield Buffer.from(text);
}

function withoutFiles({
  files: _,
  ...rest
}: AnswerOf<"conversions.show">): AnswerOf<"conversions.list">["conversions"][number] {
  return rest;
}

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
