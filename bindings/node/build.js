// Compiles addon.c with the system's C compiler and the headers that come with node, without a network or other packages.
// Node-API keeps its binary interface: what is built here also runs in later versions of node. Arguments: where it goes.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));

function folderWith(file, folders) {
  const found = folders.find((folder) => folder && fs.existsSync(path.join(folder, file)));
  if (!found) throw new Error(`tilewright: expected ${file} in one of ${folders.filter(Boolean).join(", ")}`);
  return found;
}

const base = path.resolve(fs.realpathSync(process.execPath), "../..");
const nodedir = process.env.npm_config_nodedir;
const headers = [
  folderWith("node_api.h", [nodedir && path.join(nodedir, "include/node"), path.join(base, "include/node"), "/usr/include/node"]),
  folderWith("tilewright_dl.h", [here, path.join(here, "../../tilewright/deploy/native")]),
];
const out = path.resolve(process.argv[2] ?? path.join(here, "build/tilewright.node"));
fs.mkdirSync(path.dirname(out), { recursive: true });
const flags = ["-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-fvisibility=hidden"];
const link = process.platform === "darwin" ? ["-bundle", "-undefined", "dynamic_lookup"] : ["-shared", "-ldl"];
const includes = headers.map((folder) => `-I${folder}`);
const command = [...flags, ...includes, "-o", out, path.join(here, "addon.c"), ...link];
const [compiler, ...words] = (process.env.CC ?? "cc").split(" ");
execFileSync(compiler, [...words, ...command], { stdio: "inherit" });
