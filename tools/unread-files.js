// Removes the files of installed packages that no server reads: half of what npm installs. The folder is an argument, such as `node_modules`.
// It also runs in the build of the image. Plain JavaScript for Node 20, without packages.
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** Source maps, TypeScript, which Node does not load from packages, libraries of the runtime Bare, and pages for people. */
const unreadName = /\.(?:map|[cm]?ts|bare|flow|md)$/
const legalName = /^(?:licen[cs]e|notice|copying)/i
/** Folders below the one of all packages: the C++ headers and manual pages of Node, a third of it, and the tests of packages. */
const unreadFolder = /^(?:node-(?:bin-)?(?:linux|darwin)-\w+\/(?:include|share)|(?:@[^/]+\/)?[^/]+\/test|@bufbuild\/cel-spec\/dist\/\w+\/testdata)$/

/** Yields the paths of files and folders in a folder of packages that no server reads. `path` is relative to the folder, with slashes. */
export function* unreadFiles(folder, path = '') {
  for (const entry of readdirSync(join(folder, path), { withFileTypes: true })) {
    const inner = path === '' ? entry.name : `${path}/${entry.name}`
    if (entry.isDirectory()) {
      if (unreadFolder.test(inner)) yield inner
      else yield* unreadFiles(folder, inner)
    } else if (unreadName.test(entry.name) && !legalName.test(entry.name)) yield inner
  }
}

/** Removes those files. */
export function removeUnreadFiles(folder) {
  for (const path of [...unreadFiles(folder)]) rmSync(join(folder, path), { recursive: true, force: true })
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) removeUnreadFiles(process.argv[2] ?? 'node_modules')
