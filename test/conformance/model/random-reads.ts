import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { one, type Pick } from '../../cache/records.ts'
import { compareBy, type NaiveQuery, type NaiveTerm, type NaiveUidp } from './naive-list.ts'
import { modelKinds, type Deed, type ModelKind, type ModelRecord } from './naive-world.ts'
import { change } from './random-changes.ts'
import { expectCode, expectShown, listRpcs, names, plurals, relationships, someCaller, someUid, type Real } from './real-world.ts'

const orders: readonly (readonly [text: string, field: NaiveTerm['field']])[] = [
  ['uid', 'uid'],
  ['name', 'name'],
  ['created_at', 'createMs'],
  ['createTime', 'createMs'],
  ['create_time', 'createMs'],
  ['updated_at', 'updateMs'],
  ['updateTime', 'updateMs'],
]

/** Reads one record, and expects the answer that the model gives. */
export async function getOne(pick: Pick, real: Real): Promise<void> {
  const caller = someCaller(pick, real)
  const kind = one(pick, modelKinds)
  const uid = someUid(pick, real, kind)
  const deed: Deed = 'LIST'
  const { reply } = await real.call(pick, caller, { rpc: `Get${kind}`, request: { uid } })
  expectCode(reply, real.world.mayTouch(caller, { kind, uid, deed }), { caller: caller.title, kind, uid })
  const record = real.world.get(kind, uid)
  if (reply.code === 0 && record !== undefined) expectShown(real, record, reply.body)
}

function someFilters(pick: Pick, real: Real, kind: ModelKind): { uidp: NaiveUidp; filters: [string, string][] } {
  const group = (): string => someUid(pick, real, 'Group')
  const ids = (): string[] => Array.from({ length: 1 + pick(4) }, () => someUid(pick, real, kind))
  const uidp: NaiveUidp = {
    ...(pick(3) === 0 ? { descendantsOf: group() } : {}),
    ...(pick(4) === 0 ? { childrenOf: group() } : {}),
    ...(pick(8) === 0 ? { inRoot: true } : {}),
    ...(kind === 'Group' && pick(6) === 0 ? { ancestorsOf: someUid(pick, real, one(pick, modelKinds)) } : {}),
    ...(pick(8) === 0 ? { ids: ids() } : {}),
  }
  const filters: [string, string][] = []
  if (kind !== 'RoleBinding' && pick(4) === 0) filters.push(['name', one(pick, names)])
  if (kind === 'Identity' && pick(4) === 0) filters.push(['relationship_type', relationships[one(pick, ['claimMatch', 'awsIdentity'] as const)].type])
  if (kind !== 'RoleBinding') return { uidp, filters }
  if (pick(5) === 0) filters.push(['identity', someUid(pick, real, 'Identity')])
  if (pick(5) === 0) filters.push(['role', someUid(pick, real, 'Role')])
  if (pick(8) === 0) filters.push(['group', group()])
  return { uidp, filters }
}

/** Reads a list page by page to its end; between pages the world may change. */
export async function listSome(pick: Pick, real: Real): Promise<void> {
  const { world } = real
  const caller = one(pick, real.callers)
  const kind = one(pick, modelKinds)
  const sortable = orders.filter(([, field]) => kind !== 'RoleBinding' || field !== 'name')
  const terms = Array.from({ length: pick(4) }, () => ({ spelling: one(pick, sortable), direction: one(pick, ['', ' asc', ' desc']) }))
  const order = terms.map(({ spelling, direction }): NaiveTerm => ({ field: spelling[1], descending: direction === ' desc' }))
  const { uidp, filters } = someFilters(pick, real, kind)
  const pageSize = one(pick, [0, 1, 2, 3, 5, 7, 20, 500])
  const size = pageSize === 0 ? 50 : Math.min(pageSize, 200)
  const request: JsonObject = {
    // A plain copy of JSON values.
    uidp: JSON.parse(JSON.stringify(uidp)) as JsonObject,
    ...Object.fromEntries(filters.map(([filter, value]) => [filter === 'relationship_type' ? 'relationshipType' : filter, value])),
    orderBy: terms.map(({ spelling, direction }) => `${spelling[0]}${direction}`).join(pick(2) === 0 ? ',' : ', '),
    pageSize,
  }
  let pageToken = ''
  let after: ModelRecord | undefined
  for (let page = 0; page < 12; page++) {
    const skip = pick(4) === 0 ? pick(6) : 0
    // Rights may have changed between pages: they are live.
    const query: NaiveQuery = { kind, uidp, filters, order, visibility: world.visibility(caller, kind) }
    const all = world.list(query)
    const last = after
    const rest = last === undefined ? all : all.filter((record) => compareBy(order)(record, last) > 0)
    const expected = rest.slice(skip, skip + size)
    const { reply, transport } = await real.call(pick, caller, {
      rpc: listRpcs[kind],
      request: { ...request, skip, ...(pageToken === '' ? {} : { pageToken }) },
    })
    const what = { caller: caller.title, transport, request, page, skip }
    expectCode(reply, 0, what)
    // Every list answer has the kind's plural.
    const items = (reply.body[plurals[kind]] ?? []) as JsonObject[]
    const shown = { totalCount: reply.body['totalCount'], skipped: reply.body['skipped'], uids: items.map((item) => item['uid']) }
    expect({ what, ...shown }).toEqual({ what, totalCount: String(all.length), skipped: skip, uids: expected.map((record) => record.uid) })
    items.forEach((item, at) => {
      const record = world.get(kind, expected[at]?.uid ?? '')
      if (record !== undefined) expectShown(real, record, item)
    })
    real.pages += 1
    pageToken = String(reply.body['nextPageToken'] ?? '')
    expect({ what, more: pageToken !== '' }).toEqual({ what, more: rest.length > skip + size })
    if (pageToken === '') return
    const end = expected.at(-1)
    after = end === undefined ? undefined : world.get(kind, end.uid)
    if (pick(3) === 0) await change(pick, real)
  }
}
