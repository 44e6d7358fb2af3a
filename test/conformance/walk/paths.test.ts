import type { JsonValue, JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { pathPrefix, uidFieldsOf } from '../../../src/base/schema/uid-fields.ts'
import { isUid, lineage, rootOf, trustedUid } from '../../../src/base/uid.ts'
import { failNext } from '../../support/fail-next.ts'
import { describeOnStoresOfTier } from '../../support/parts/require-part.ts'
import { freshName, ok, type TestServer } from '../../support/test-server.ts'
import { walk, type Walked } from './cases/cases.ts'
import { makeWorld, startWalkServer, type World } from './world.ts'

/** Returns the path of a record of one of these kinds; undefined if none has this uid. */
function pathOf({ server }: World, kinds: readonly string[], uid: string): string | undefined {
  const { tables } = server.running.engine.cache
  const record = kinds.map((kind) => tables.get(kind, uid)).find((one) => one !== undefined)
  if (record === undefined || !isUid(uid)) return undefined
  const groups = [...lineage(uid)].slice(1).map((group) => tables.get('Group', group)?.name ?? '')
  return `${pathPrefix}${[record.name, ...groups].reverse().join('/')}`
}

function replaced(value: JsonValue | undefined, members: readonly string[], replace: (uid: string) => string): JsonValue | undefined {
  if (typeof value === 'string') return replace(value)
  if (Array.isArray(value)) return value.map((item) => replaced(item, members, replace) ?? null)
  const [member, ...rest] = members
  if (typeof value !== 'object' || value === null || member === undefined || value[member] === undefined) return value
  return { ...value, [member]: replaced(value[member], rest, replace) ?? null }
}

/** Returns the request with paths for the uids in it, and the uids that were replaced. */
function withPaths(world: World, { method }: Walked, request: JsonObject): { request: JsonObject; uids: string[] } {
  const uids: string[] = []
  let changed = request
  for (const { members, kinds } of uidFieldsOf(method)) {
    changed = replaced(changed, members, (uid) => {
      const path = pathOf(world, kinds, uid)
      if (path !== undefined) uids.push(uid)
      return path ?? uid
    }) as JsonObject
  }
  return { request: changed, uids }
}

/** Methods whose requests in the walk name no record with a path. */
const pathless: ReadonlySet<string> = new Set(['PullPoliciesService/UpdatePullPolicy', 'ContentsService/ListPackageImages'])

const rows = walk.filter(({ name, method, access }) => access !== 'list' && !pathless.has(name) && uidFieldsOf(method).some(({ kinds }) => kinds.length > 0))

describeOnStoresOfTier('paths in place of uids', (store) => {
  let server: TestServer
  let world: World
  beforeAll(async () => {
    server = await startWalkServer(store)
    world = await makeWorld(server)
  })
  afterAll(() => server.stop())

  /** Returns a valid request with paths, and who sends it. */
  async function prepared(walked: Walked): Promise<{ request: JsonObject; uids: string[]; token: string }> {
    const request = await walked.row.request(world)
    const token = (await walked.row.caller?.(world)) ?? (await server.operatorToken())
    return { ...withPaths(world, walked, request), token }
  }

  describe.each(['rest', 'grpc'] as const)('over %s', (transport) => {
    test.each(rows)('$name finds what a path names', async (walked) => {
      const { request, uids, token } = await prepared(walked)
      const reply = await server[transport].call(walked.name, request, { token })
      ok(reply)
      expect(uids.length).toBeGreaterThan(0)
    })
  })

  describe('a name on a path that changes', () => {
    // What the calls above did would leave some methods nothing to do.
    beforeAll(async () => {
      world = await makeWorld(server)
    })

    test.each(rows.filter(({ method }) => method.mutation))('$name changes nothing', async (walked) => {
      const { request, uids, token } = await prepared(walked)
      const root = rootOf(trustedUid(uids[0] ?? ''))
      const outcomes: boolean[] = []
      failNext(server, async (real, call) => {
        ok(await server.rest.call('UpdateGroup', { group: { uid: root, name: freshName('renamed') } }, { token: await server.operatorToken() }))
        const outcome = await real.transact(...call)
        outcomes.push(outcome.committed)
        return outcome
      })
      const { code, message, details } = await server.rest.call(walked.name, request, { token })
      expect({ code, message, reason: details['ErrorInfo']?.['reason'], outcomes }).toMatchObject({ code: 10, reason: 'PATH_CHANGED', outcomes: [false] })
    })
  })
})
