import type { DescMessage, JsonValue, JsonObject } from '@bufbuild/protobuf'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { methods } from '../../../src/base/schema/schema.ts'
import { pathPrefix, uidFieldsOf } from '../../../src/base/schema/uid-fields.ts'
import { isUid, lineage, rootOf, trustedUid } from '../../../src/base/uid.ts'
import { failNext } from '../../support/fail-next.ts'
import { describeOnStoresOfTier } from '../../support/parts/require-part.ts'
import { freshName, ok, type TestServer } from '../../support/test-server.ts'
import { references } from '../matrix/references.ts'
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

/** Fields that name a record, and that take no path. */
const withoutPaths: Readonly<Record<string, string>> = {
  'advisory.v2.ImageRef.repo': 'a reference to images has paths of its own',
  'iam.v2.AccountAssociation.Platform.service_bindings': 'identities have no paths',
  'registry.v2.SyncConfig.source': 'a source has paths of its own, also to public repos out of reach',
}

/** Methods whose requests in the walk name no record with a path. */
const pathless: ReadonlySet<string> = new Set(['PullPoliciesService/UpdatePullPolicy', 'ContentsService/ListPackageImages'])

/** Returns the field at the end of a path of members: `iam.v2.RoleBinding.role_uid`. */
function fieldAt(desc: DescMessage, [member, ...rest]: readonly string[]): string {
  const field = desc.fields.find(({ localName }) => localName === member)
  if (field?.message !== undefined && rest.length > 0) return fieldAt(field.message, rest)
  return `${desc.typeName.replace(/^taproot\./, '')}.${field?.name ?? ''}`
}

const rows = walk.filter(({ name, method, access }) => access !== 'list' && !pathless.has(name) && uidFieldsOf(method).some(({ kinds }) => kinds.length > 0))

test('every field that names a record takes paths, or refuses them', () => {
  const named = references.filter(({ field, names }) => field.includes('.v2.') && names !== 'digest' && names !== 'repoPath').map(({ field }) => field)
  const fields = methods.flatMap((method) => uidFieldsOf(method).map(({ members }) => fieldAt(method.input, members)))
  expect([...new Set(named)].filter((field) => !fields.includes(field))).toEqual(Object.keys(withoutPaths))
})

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

  // Each method over one transport: the paths are replaced behind them.
  test.each(rows.map((walked, at) => ({ ...walked, transport: at % 2 === 0 ? ('rest' as const) : ('grpc' as const) })))(
    '$name finds what a path names, over $transport',
    async (walked) => {
      const { request, uids, token } = await prepared(walked)
      ok(await server[walked.transport].call(walked.name, request, { token }))
      expect(uids.length).toBeGreaterThan(0)
    },
  )

  test.each(rows)('$name tells a stranger nothing about a path', async (walked) => {
    const { request, uids } = await prepared(walked)
    const text = JSON.stringify(request)
    const { name } = server.running.engine.cache.tables.get('Group', rootOf(trustedUid(uids[0] ?? ''))) ?? { name: '' }
    // A name of the same length that no group has.
    const missing = `${name.slice(0, -1)}_`
    const { token } = world.other
    const ask = async (body: string, about: string): Promise<string> => {
      const { code, message, details } = await server.rest.call(walked.name, JSON.parse(body) as JsonObject, { token, validateOnly: walked.method.mutation })
      const { ErrorInfo, ...others } = details
      return JSON.stringify([code, message, ErrorInfo?.['reason'], others]).replaceAll(about, '<name>')
    }
    expect(text).toContain(`path:${name}`)
    const found = await ask(text, name)
    expect(found).toBe(await ask(text.replaceAll(`path:${name}`, `path:${missing}`), missing))
    expect(found).not.toMatch(/^.0,/)
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
