import { afterAll, beforeAll, expect, test } from 'vitest'
import { describeOnStores } from '../../support/parts/require-part.ts'
import { ok } from '../../support/test-server.ts'
import { startDiskUpstreamAt } from '../oci/test-host.ts'
import { startCollectingHost, soon, type CollectingHost } from './collecting-host.ts'

const prefixes = ['x/unscanned/', 'x/rescan/', 'x/scanned/'] as const

describeOnStores('a garbage collection', (store) => {
  let host: CollectingHost
  beforeAll(async () => void (host = await startCollectingHost(startDiskUpstreamAt, store)))
  afterAll(() => host.stop())

  const keysOf = async (repo: string): Promise<string[]> => {
    const found = await Promise.all(prefixes.map((prefix) => host.services.store.range({ prefix, limit: 1_000 }, soon())))
    return found.flatMap(({ entries }) => entries.map(({ key }) => key)).filter((key) => key.includes(repo))
  }
  const note = (keys: readonly string[]): Promise<unknown> =>
    host.services.store.transact({ guards: [], writes: keys.map((key) => ({ kind: 'put', key, value: Buffer.from('{"dueMs":1,"tries":1}') })) }, soon())

  test('removes what scanners know of manifests and repos that are gone, and nothing else', async () => {
    const [path, other] = [host.freshRepository(), host.freshRepository()]
    const gone = await host.client.pushImage(path, 'gone')
    const left = await host.client.pushImage(path, 'left')
    const elsewhere = await host.client.pushImage(other, 'left')
    const [repo, otherRepo] = [host.repoOf(path), host.repoOf(other)]
    const keyOf = (prefix: string, scanner: string, digest: string, of: string = repo): string => `${prefix}${scanner}/${of}/${digest}`
    const scanned = ['grype', 'trivy'].flatMap((scanner) => [gone, left].map(({ digest }) => keyOf('x/scanned/', scanner, digest)))
    const kept = ['grype', 'trivy'].map((scanner) => keyOf('x/scanned/', scanner, elsewhere.digest, otherRepo))
    const waiting = [keyOf('x/unscanned/', 'trivy', left.digest), keyOf('x/rescan/', 'grype', left.digest)]
    await note([...scanned, ...kept, ...waiting])
    expect((await host.client.send('DELETE', `/v2/${path}/manifests/${gone.digest}`)).status).toBe(202)
    await host.forgetHistory(repo)
    await host.collect()
    await host.collectAfterGrace()
    expect((await keysOf(repo)).filter((key) => key.endsWith(gone.digest))).toEqual([])
    // The worker may forget at any time who waits for a scanner that is not configured.
    const leftOf = scanned.filter((key) => key.endsWith(left.digest))
    expect((await keysOf(repo)).filter((key) => key.startsWith('x/scanned/'))).toEqual(leftOf)
    ok(await host.server.rest.call('DeleteRepo', { uid: repo }, { token: await host.server.operatorToken() }))
    await host.collectAfterGrace()
    expect(await keysOf(repo)).toEqual([])
    expect(await keysOf(otherRepo)).toEqual(kept)
  })
})
