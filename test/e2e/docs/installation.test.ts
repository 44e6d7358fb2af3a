import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cp, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { expect, onTestFinished, test } from 'vitest'
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

test('an installation for developers that fails leaves the packages of production', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'taproot-setup-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  await cp(join(root, 'tools'), join(folder, 'tools'), { recursive: true })
  const lock = '{"lockfileVersion":3}'
  const packages = join(folder, 'node_modules')
  const stamp = `${createHash('sha256').update(lock).digest('hex')} production`
  const files = { 'package-lock.json': lock, 'node_modules/koa/index.js': 'koa', 'node_modules/.taproot-setup': stamp, 'npm-cli.js': 'process.exit(1)' }
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), text)
  }
  const setup = (): Promise<unknown> =>
    promisify(execFile)(process.execPath, [join(folder, 'tools', 'setup.js')], { env: { ...process.env, npm_execpath: join(folder, 'npm-cli.js') } })
  await mkdir(join(packages, '.bin'))
  await writeFile(join(packages, '.bin', 'node'), '')
  await expect(setup()).rejects.toThrow('npm could not install the packages')
  expect(await readFile(join(packages, 'koa', 'index.js'), 'utf8')).toBe('koa')
  expect(await readFile(join(packages, '.taproot-setup'), 'utf8')).toBe(stamp)
  // One that was killed has put them aside.
  await mkdir(join(packages, '.taproot-replaced'))
  await rename(join(packages, 'koa'), join(packages, '.taproot-replaced', 'koa'))
  await writeFile(join(packages, '.taproot-setup'), ' production')
  await expect(setup()).rejects.toThrow('npm could not install the packages')
  expect((await readdir(packages)).sort()).toEqual(['.bin', '.taproot-setup', 'koa'])
})
