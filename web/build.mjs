// How does src/ become static/?  One bundle of script, one of style, and the page, no address outside.
import { copyFile, mkdir, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const source = join(here, "src");
const output = join(here, "static");
const staging = join(here, "node_modules", ".static"); // ignored by git, same file system

await rm(staging, { recursive: true, force: true });
await mkdir(staging, { recursive: true });
await esbuild.build({
  entryPoints: [
    { in: join(source, "app.ts"), out: "app" },
    { in: join(source, "style.css"), out: "app" },
  ],
  bundle: true,
  minify: true,
  format: "esm",
  target: ["es2022"],
  outdir: staging,
  banner: { js: "/*! Contains uPlot (MIT), see uplot-license.txt */" },
  logLevel: "warning",
});
for (const name of ["index.html", "favicon.svg"]) {
  await copyFile(join(source, name), join(staging, name));
}
// The licence of uPlot asks to travel with its code.
await copyFile(join(here, "node_modules", "uplot", "LICENSE"), join(staging, "uplot-license.txt"));
// A failed build leaves the last good bundle in place; a finished one replaces it whole.
await rm(output, { recursive: true, force: true });
await rename(staging, output);
