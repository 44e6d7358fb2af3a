import { readdir, readFile, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { unreadFiles } from '../../../tools/unread-files.js'

const root = resolve(import.meta.dirname, '../../..')
/** What `npm start` may install, in bytes on the disk: all, and all but Node. */
const most = { all: 200_000_000, packages: 50_000_000 }
/** Files take whole blocks of a disk. */
const blockBytes = 4096
const nodePackage = /^node_modules\/node-(?:bin-)?(?:linux|darwin)-\w+\//

interface Lock {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean; readonly devOptional?: boolean }>>
}

/** Returns the folders of the packages of production, relative to the checkout, such as `node_modules/koa`. */
async function productionFolders(): Promise<ReadonlySet<string>> {
  const { packages } = JSON.parse(await readFile(join(root, 'package-lock.json'), 'utf8')) as Lock
  return new Set(Object.keys(packages).filter((path) => path !== '' && packages[path]?.dev !== true && packages[path]?.devOptional !== true))
}

test('npm start installs less than 200 MB', async () => {
  const folders = await productionFolders()
  const unread = new Set([...unreadFiles(join(root, 'node_modules'))].map((path) => `node_modules/${path}`))
  const isUnread = (path: string): boolean => path !== '.' && (unread.has(path) || isUnread(dirname(path)))
  const sizes = { all: 0, packages: 0 }
  for (const entry of await readdir(join(root, 'node_modules'), { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name).slice(root.length + 1)
    const [, folder = ''] = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path) ?? []
    if (!entry.isFile() || !folders.has(folder) || isUnread(path)) continue
    const bytes = Math.ceil((await stat(join(root, path))).size / blockBytes) * blockBytes
    sizes.all += bytes
    if (!nodePackage.test(path)) sizes.packages += bytes
  }
  expect(sizes.packages).toBeGreaterThan(10_000_000)
  expect(sizes.packages).toBeLessThan(most.packages)
  expect(sizes.all).toBeLessThan(most.all)
})
