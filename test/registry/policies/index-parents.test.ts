import { create, toBinary } from '@bufbuild/protobuf'
import { setImmediate } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { digestOf } from '../../../src/base/digest.ts'
import { trustedUid, type Uid } from '../../../src/base/uid.ts'
import { ManifestRecordSchema, type ManifestRecord } from '../../../src/gen/taproot/store/v1/registry_pb.ts'
import { IndexParents } from '../../../src/registry/policies/index-parents.ts'
import { manifestKey } from '../../../src/registry/records/manifest-keys.ts'
import { indexesKey } from '../../../src/store/keys.ts'
import type { Store } from '../../../src/store/store.ts'
import { slowness } from '../../budgets.ts'
import { longestTurn } from '../../support/longest-turn.ts'
import { startTestServer, type TestServer } from '../../support/test-server.ts'
import { alive } from '../../contents/reading-repo.ts'

let server: TestServer
beforeAll(async () => void (server = await startTestServer()))
afterAll(() => server.stop())

/** 10 ms on the reference machine. */
const boundMs = 10 * slowness()
const image = digestOf(Buffer.from('image'))
const long = digestOf(Buffer.from('image'), 'sha512')

let repos = 0
const freshRepo = (): Uid => trustedUid(`${'e'.repeat(40)}/${String(repos++).padStart(16, '0')}`)

const digestAt = (at: number): string => digestOf(Buffer.from(String(at)))

type Manifests = ReadonlyMap<string, { readonly children?: ManifestRecord['children']; readonly upstreamDigest?: string }>

/** Writes manifests, and says that the repo has other indexes. */
async function put(repo: Uid, manifests: Manifests): Promise<void> {
  const { store, cache } = server.running.engine
  const all = [...manifests].map(([digest, record]) => {
    const value = toBinary(ManifestRecordSchema, create(ManifestRecordSchema, { children: [], upstreamDigest: digest, ...record }))
    return { kind: 'put', key: manifestKey(repo, digest), value } as const
  })
  const generation = { kind: 'put', key: indexesKey(repo), value: Buffer.from(String(repos++)) } as const
  for (let at = 0; at < all.length; at += 2) {
    const done = await store.transact({ guards: [], writes: [...all.slice(at, at + 2), generation] }, alive)
    if (done.committed) await cache.reached(done.revision, alive)
  }
}

const childrenOf = (digests: readonly string[], architecture = 'amd64') => digests.map((digest) => ({ digest, architecture })) as ManifestRecord['children']

test('indexes that repeat an image count once, and are read without a long turn', async () => {
  const repo = freshRepo()
  const repeated = childrenOf(Array.from({ length: 5_000 }, () => image))
  const indexes = Array.from({ length: 40 }, (_, at) => [digestAt(at), { children: repeated }] as const)
  await put(repo, new Map<string, { children?: ManifestRecord['children']; upstreamDigest?: string }>([...indexes, [image, {}]]))
  const longest: number[] = []
  // Three times: a garbage collection in a turn says nothing about the code.
  for (let round = 0; round < 3; round++) {
    const parents = new IndexParents(server.running.engine.services)
    const { result, longestMs } = await longestTurn(() => parents.of({ repo, upstreamDigest: image }, alive))
    expect(result.map(({ digest }) => digest)).toEqual(indexes.map(([digest]) => digest).sort())
    longest.push(longestMs)
  }
  expect(Math.min(...longest)).toBeLessThan(boundMs)
})

test('pulls at the same time and later ones share one look at all manifests of the repo', async () => {
  const repo = freshRepo()
  const many = Array.from({ length: 40 }, (_, at) => Array.from({ length: 100 }, (__, child) => digestAt(at * 100 + child)))
  await put(repo, new Map(many.map((digests, at) => [digestAt(-1 - at), { children: childrenOf(digests) }])))
  const { services } = server.running.engine
  const asked: (string | undefined)[] = []
  const store: Store = Object.assign(Object.create(services.store) as Store, {
    range: (...range: Parameters<Store['range']>) => {
      asked.push(range[0].after)
      return services.store.range(...range)
    },
  })
  const parents = new IndexParents({ ...services, store }, 1_000)
  const of = (at: number) => parents.of({ repo, upstreamDigest: digestAt(at) }, alive)
  const found = await Promise.all([of(0), of(1), of(3_999)])
  expect(found.map((indexes) => indexes.map(({ digest }) => digest))).toEqual([[digestAt(-1)], [digestAt(-1)], [digestAt(-40)]])
  expect(await of(100)).toHaveLength(1)
  expect(asked).toEqual([...new Set(asked)])
})

/** A store in which scans wait for `release`. `begun` has the repos whose scans began, in their order. */
function heldStore(): { readonly store: Store; readonly begun: string[]; readonly release: () => void } {
  const { store } = server.running.engine.services
  const begun: string[] = []
  const held = Promise.withResolvers<void>()
  const range: Store['range'] = async (asked, signal) => {
    if (asked.after === undefined) begun.push(asked.prefix)
    await held.promise
    return store.range(asked, signal)
  }
  return { store: Object.assign(Object.create(store) as Store, { range }), begun, release: held.resolve }
}

test('pushes during a scan of a repo start no second scan at the same time: pulls after them share the next one', async () => {
  const repo = freshRepo()
  const { store, begun, release } = heldStore()
  const parents = new IndexParents({ ...server.running.engine.services, store })
  const pulls: Promise<unknown>[] = []
  for (let at = 0; at < 5; at++) {
    await put(repo, new Map([[digestAt(at), { children: childrenOf([image]) }]]))
    for (let pull = 0; pull < 2; pull++) pulls.push(parents.of({ repo, upstreamDigest: image }, alive))
  }
  expect(begun).toHaveLength(1)
  release()
  const counts = (await Promise.all(pulls)).map((found) => (found as readonly unknown[]).length)
  expect(counts.slice(2)).toEqual(counts.slice(2).map(() => 5))
  expect(begun).toHaveLength(2)
})

test('an organisation with many repos to scan does not hold up another', async () => {
  const [mine, other] = [Array.from({ length: 20 }, freshRepo), trustedUid(`${'d'.repeat(40)}/${'0'.repeat(16)}`)]
  const { store, begun, release } = heldStore()
  const parents = new IndexParents({ ...server.running.engine.services, store })
  const pulls = [...mine, other].map((repo) => parents.of({ repo, upstreamDigest: image }, alive))
  await setImmediate()
  expect(begun).toEqual([mine[0], mine[1], other].map((repo) => manifestKey(repo ?? '', '')))
  release()
  await Promise.all(pulls)
  expect(begun).toHaveLength(mine.length + 1)
})

test('an index is found by the SHA-256 digest of what it contains, and says whether that is an image', async () => {
  const repo = freshRepo()
  const named = { children: [...childrenOf([long]), ...childrenOf([image], 'unknown')] }
  const hiding = { children: childrenOf([image], 'unknown') }
  await put(
    repo,
    new Map<string, { children?: ManifestRecord['children']; upstreamDigest?: string }>([
      ['sha256:a', named],
      ['sha256:b', hiding],
      [long, { upstreamDigest: image }],
    ]),
  )
  const parents = new IndexParents(server.running.engine.services)
  const of = async (): Promise<unknown> => (await parents.of({ repo, upstreamDigest: image }, alive)).map(({ digest, asImage }) => [digest, asImage]).sort()
  expect(await of()).toEqual([
    ['sha256:a', false],
    ['sha256:a', true],
    ['sha256:b', false],
  ])
  await put(repo, new Map([['sha256:c', { children: childrenOf([image]) }]]))
  expect(await of()).toContainEqual(['sha256:c', true])
})
