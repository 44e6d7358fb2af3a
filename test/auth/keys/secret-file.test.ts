import { mkdir, open, readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, onTestFinished, test, vi } from 'vitest'
import { createDevIssuer } from '../../../src/auth/oidc/dev-issuer.ts'
import { makeSecretFile, readSecretFile } from '../../../src/auth/keys/secret-file.ts'
import type { Config } from '../../../src/config/config.ts'
import { readEncryptionKey } from '../../../src/server/read-encryption-key.ts'
import { random, temporaryDirectory, testClock } from '../parts.ts'

/** Counts the flushes of files and folders to the disk. */
async function countSyncs(directory: string): Promise<() => number> {
  const handle = await open(directory)
  const spy = vi.spyOn(Object.getPrototypeOf(handle) as typeof handle, 'sync') // a cast: the prototype of a handle
  await handle.close()
  onTestFinished(() => spy.mockRestore())
  return () => spy.mock.calls.length
}

test('a secret file is created once, complete and readable by its owner only; a second caller gets the same secret', async () => {
  const directory = await temporaryDirectory()
  const path = join(directory, 'secret')
  expect(await readSecretFile(path)).toBeUndefined()
  const made = await Promise.all(['one', 'two', 'three'].map((content) => makeSecretFile(path, content)))
  expect(new Set(made.map(String)).size).toBe(1)
  expect(await readSecretFile(path)).toEqual(made[0])
  expect((await stat(path)).mode & 0o777).toBe(0o600)
  expect(await readdir(directory)).toEqual(['secret'])
})

test('a secret file that can not be written leaves no partial file', async () => {
  const directory = await temporaryDirectory()
  await expect(makeSecretFile(join(directory, 'missing', 'secret'), 'x')).rejects.toThrow('ENOENT')
  await mkdir(join(directory, 'folder'))
  await expect(makeSecretFile(join(directory, 'folder'), 'x')).rejects.toThrow('EISDIR')
  expect(await readdir(directory)).toEqual(['folder'])
})

test.each<[string, (directory: string) => Promise<unknown>, string]>([
  [
    "a development issuer's key",
    (directory) => createDevIssuer({ keyFile: join(directory, 'dev.json'), issuer: 'http://localhost', clock: testClock() }),
    'dev.json',
  ],
  ['the encryption key', (directory) => readEncryptionKey({ encryption: {}, dataDir: directory } as Config, random), 'encryption.key'], // a cast: what it reads of a configuration
])('%s is flushed to disk, file and folder, before it is used', async (_name, make, file) => {
  const directory = await temporaryDirectory()
  const syncs = await countSyncs(directory)
  await make(directory)
  expect(syncs()).toBe(2)
  const content = await readFile(join(directory, file), 'utf8')
  await make(directory)
  expect([syncs(), await readFile(join(directory, file), 'utf8')]).toEqual([2, content])
})
