import { createSocket } from 'node:dgram'
import { promises } from 'node:dns'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { LookupAddress } from 'node:dns'
import { expect, onTestFinished, test } from 'vitest'
import { createResolverLookup } from '../../src/auth/resolver-lookup.ts'

/** A name server on the loopback address that never answers. */
async function silentNameServer(): Promise<{ address: string; asked: () => number }> {
  const socket = createSocket('udp4').on('message', () => (asked += 1))
  let asked = 0
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  onTestFinished(() => void socket.close())
  return { address: `127.0.0.1:${socket.address().port}`, asked: () => asked }
}

function lookUp(lookup: ReturnType<typeof createResolverLookup>, name: string): Promise<readonly LookupAddress[]> {
  return new Promise((resolve, reject) =>
    lookup(name, { all: true }, (error, addresses) => (error === null ? resolve(addresses as LookupAddress[]) : reject(error))),
  )
}

test('look-ups at a silent name server block no thread of the process: file reads continue', async () => {
  const server = await silentNameServer()
  const resolver = new promises.Resolver({ timeout: 1_000, tries: 1 })
  resolver.setServers([server.address])
  const lookup = createResolverLookup(resolver)
  let failed = 0
  const names = Array.from({ length: 32 }, (_, number) => lookUp(lookup, `silent-${number}.example.com`).catch(() => (failed += 1)))
  for (let number = 0; number < 50; number += 1) await readFile(import.meta.filename)
  // All file reads ended before the first look-up failed.
  expect(failed).toBe(0)
  await Promise.all(names)
  expect(failed).toBe(32)
  expect(server.asked()).toBeGreaterThanOrEqual(32)
})

test('local names are resolved by the system', async () => {
  expect((await lookUp(createResolverLookup(), 'localhost')).map(({ address }) => address)).toContain('127.0.0.1')
})
