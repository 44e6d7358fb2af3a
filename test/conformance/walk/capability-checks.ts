import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { setOf } from '../../../src/base/capability.ts'
import { makeMember, ok } from '../../support/test-server.ts'
import { movedTo, placeIn, type Access, type ListCase, type ExternalCase } from './cases/method-case.ts'
import { confinedToken, missingSibling, once, restrictedToken, tokenWith } from './world.ts'
import { garbage, unsigned, useless, needs, call, refused, shapeOf, listed, expectDenied, expectHidden, type Subject, type Check } from './checked-call.ts'
import { isMapped } from '../../support/api-clients.ts'

/** The four cases that are tried for every method and every kind of caller. */
export const aspects = ['allowed', 'denied', 'no token', 'other tenant'] as const
type Aspect = (typeof aspects)[number]

const noToken: Check = async (subject) => {
  const request = await subject.row.request(subject.world)
  expect((await refused(subject, request, {})).code).toBe(16)
  for (const token of garbage) expect((await refused(subject, request, { token })).code, token).toBe(16)
  // At the exchange the token is the subject of the request: a bad one is refused like one that does not match (docs/spec/tokens.md#exchange-errors).
  const { code, message } = await refused(subject, request, { token: unsigned })
  expect(code, message).toBe(subject.access === 'external' ? externalOf(subject).codes.unsigned : 16)
  if (subject.access === 'external') expect(message).toMatch(/^verifying token: /)
}

const scoped = {
  async allowed(subject) {
    const { world, row } = subject
    const request = await row.request(world)
    ok(await call(subject, request, { token: await tokenWith(world, needs(subject)) }))
  },
  async denied(subject) {
    const { world, row } = subject
    const request = await row.request(world)
    for (const missing of needs(subject)) {
      const token = await tokenWith(
        world,
        needs(subject).filter((held) => held !== missing),
      )
      expectDenied(subject, request, { reply: await refused(subject, request, { token }), missing: [missing] })
    }
  },
  'no token': noToken,
  async 'other tenant'(subject) {
    const { world, row, method } = subject
    const request = await row.request(world)
    await expectHidden(subject, request, world.other.token)
    // A missing record looks the same to permitted callers.
    const uid = placeIn(method, request)
    if (uid === world.group) return
    const missing = missingSibling(uid)
    const toOwner = await refused(subject, movedTo(method, request, missing), { token: world.token })
    const toStranger = await refused(subject, request, { token: world.other.token })
    expect(shapeOf(toOwner, missing)).toEqual(shapeOf(toStranger, uid))
  },
  async 'an identity of a subgroup'(subject) {
    const { world, row } = subject
    await expectHidden(subject, await row.request(world), await confinedToken(world))
  },
  async 'a token narrowed to another capability'(subject) {
    const { world, row, method } = subject
    const token = await restrictedToken(world, { capabilities: setOf([useless]) })
    const request = await row.request(world)
    expectDenied(subject, request, { reply: await refused(subject, request, { token }), missing: method.capabilities })
  },
  async 'a token narrowed to a subgroup'(subject) {
    const { world, row } = subject
    await expectHidden(subject, await row.request(world), await restrictedToken(world, { scopes: [world.subgroup] }))
  },
  async 'a dry run'(subject) {
    const { world, row, method } = subject
    if (!method.mutation) return
    const request = await row.request(world)
    const token = await tokenWith(world, needs(subject))
    ok(await refused(subject, request, { token, validateOnly: true }))
    const denied = await refused(subject, request, { token: await tokenWith(world, []), validateOnly: true })
    expect(denied.code).toBe(7)
    // The dry run left nothing behind: the same request still succeeds.
    ok(await call(subject, request, { token }))
  },
  async 'a token narrowed to what is needed'(subject) {
    const { world, row } = subject
    const token = await restrictedToken(world, { capabilities: setOf(needs(subject)), scopes: [world.group] })
    ok(await call(subject, await row.request(world), { token }))
  },
} satisfies Record<Aspect, Check> & Record<string, Check>

const operators = {
  allowed: async (subject) => answersAnyone(subject, await subject.world.server.operatorToken()),
  async denied(subject) {
    const request = await subject.row.request(subject.world)
    const scope = placeIn(subject.method, request)
    const { token } = await makeMember(subject.world.server, scope, { role: 'owner' })
    expect(await refused(subject, request, { token })).toMatchObject({ code: 7, details: { ErrorInfo: { metadata: { scope } } } })
  },
  'no token': noToken,
  'other tenant': async (subject) => expectHidden(subject, await subject.row.request(subject.world), subject.world.other.token),
} satisfies Record<Aspect, Check>

/** Creates a record in the root group, in the subgroup and in the other organisation. The checks of a method share them. */
function fill({ world, row: { list }, name }: Subject): Promise<ListCase> {
  return once(world, `records of ${name}`, async () => {
    if (list === undefined) throw new Error(`${name} needs \`list\``)
    for (const parent of [world.group, world.subgroup, world.other.group]) await list.item(world, parent)
    return list
  })
}

function isBelow(uid: string, group: string): boolean {
  return uid.startsWith(`${group}/`)
}

/** Expects that no answer contains a record of the organisation, with any filter. */
async function expectNothing(subject: Subject, token: string): Promise<void> {
  const { world, row } = subject
  const { filters } = await fill(subject)
  const valid = await row.request(world)
  // A query has room for 200 uids, and lists of version 1 have more.
  const known = listed(subject, await call(subject, valid, { token: world.token })).slice(-200)
  const [some = ''] = known
  const hasPlaces = subject.method.input.fields.some((field) => field.name === 'uidp')
  const places: JsonObject[] = [{ childrenOf: world.group }, { descendantsOf: world.subgroup }, { ids: known }, { ancestorsOf: `${some}/${'0'.repeat(16)}` }]
  for (const request of [valid, ...(hasPlaces ? places : []).map((uidp) => ({ uidp })), ...filters(world)]) {
    const reply = await refused(subject, request, { token })
    // Without a place, a list has the caller's own records.
    const found = listed(subject, reply).filter((uid) => hasPlaces || uid === world.group || isBelow(uid, world.group))
    expect(found, JSON.stringify(request)).toEqual([])
    if (!isMapped(subject.method)) expect(reply.body['totalCount'], JSON.stringify(request)).toBe('0')
  }
  const all = listed(subject, await refused(subject, isMapped(subject.method) ? {} : { pageSize: 200 }, { token }))
  expect(all.filter((uid) => uid === world.group || isBelow(uid, world.group))).toEqual([])
}

/** Expects exactly the records of the subgroup. */
async function expectSubgroupOnly(subject: Subject, token: string): Promise<void> {
  const { world, row } = subject
  const uids = listed(subject, await refused(subject, await row.request(world), { token }))
  expect(uids.length).toBeGreaterThan(0)
  expect(uids.filter((uid) => uid !== world.subgroup && !isBelow(uid, world.subgroup))).toEqual([])
}

const list = {
  async allowed(subject) {
    const { world, row } = subject
    const { filters } = await fill(subject)
    const token = await tokenWith(world, needs(subject))
    const uids = listed(subject, await call(subject, await row.request(world), { token }))
    expect(uids.some((uid) => isBelow(uid, world.subgroup))).toBe(true)
    expect(uids.some((uid) => isBelow(uid, world.group) && !isBelow(uid, world.subgroup))).toBe(true)
    expect(uids.filter((uid) => !isBelow(uid, world.group))).toEqual([])
    for (const filter of filters(world)) {
      const found = listed(subject, await call(subject, filter, { token }))
      expect(found.length, JSON.stringify(filter)).toBeGreaterThan(0)
      expect(found.filter((uid) => !isBelow(uid, world.group))).toEqual([])
    }
  },
  async denied(subject) {
    await expectNothing(subject, await tokenWith(subject.world, []))
  },
  'no token': noToken,
  async 'other tenant'(subject) {
    const { world, row, apiClient } = subject
    await expectNothing(subject, world.other.token)
    // A filter by a group out of reach answers like one by a missing group.
    const found = await call(subject, await row.request(world), { token: world.other.token })
    if (!subject.method.input.fields.some((field) => field.name === 'uidp')) return
    const absent = await call(subject, { uidp: { descendantsOf: missingSibling(world.group) } }, { token: world.other.token })
    expect(found.body, apiClient.name).toEqual(absent.body)
  },
  async 'an identity of a subgroup'(subject) {
    await fill(subject)
    await expectSubgroupOnly(subject, await confinedToken(subject.world))
  },
  async 'a token narrowed to another capability'(subject) {
    await expectNothing(subject, await restrictedToken(subject.world, { capabilities: setOf([useless]) }))
  },
  async 'a token narrowed to a subgroup'(subject) {
    await fill(subject)
    await expectSubgroupOnly(subject, await restrictedToken(subject.world, { scopes: [subject.world.subgroup] }))
  },
} satisfies Record<Aspect, Check> & Record<string, Check>

/** Expects code 7 with all capabilities of the method. */
async function expectDeniedAnywhere(subject: Subject, token: string): Promise<void> {
  const reply = await refused(subject, await subject.row.request(subject.world), { token })
  expect(reply.code, reply.message).toBe(7)
  expect(reply.details['ErrorInfo']).toMatchObject({ metadata: { missingCapabilities: subject.method.capabilities.join(',') } })
}

const anywhere = {
  async allowed(subject) {
    const { world, row } = subject
    const request = await row.request(world)
    const { body } = await call(subject, request, { token: await tokenWith(world, needs(subject)) })
    // The rights of a subgroup are enough, and all callers get the same answer.
    expect(ok(await call(subject, request, { token: await confinedToken(world) }))).toEqual(body)
  },
  async denied(subject) {
    await expectDeniedAnywhere(subject, await tokenWith(subject.world, []))
  },
  'no token': noToken,
  async 'other tenant'(subject) {
    const { world, row } = subject
    const request = await row.request(world)
    const [mine, theirs] = [await call(subject, request, { token: world.token }), await call(subject, request, { token: world.other.token })]
    expect(ok(theirs)).toEqual(ok(mine))
  },
  async 'a token narrowed to another capability'(subject) {
    await expectDeniedAnywhere(subject, await restrictedToken(subject.world, { capabilities: setOf([useless]) }))
  },
  async 'a token narrowed to a subgroup'(subject) {
    const { world, row } = subject
    ok(await call(subject, await row.request(world), { token: await restrictedToken(world, { scopes: [world.subgroup] }) }))
  },
} satisfies Record<Aspect, Check> & Record<string, Check>

async function expectOutsider(subject: Subject, token: string): Promise<void> {
  const { world, row } = subject
  const reply = await call(subject, await row.request(world), { token })
  expect(reply.code, reply.message).toBe(row.outsider?.code ?? 0)
  if (row.outsider?.body !== undefined) expect(reply.body).toEqual(row.outsider.body)
}

const signedIn = {
  async allowed(subject) {
    const { world, row } = subject
    const request = await row.request(world)
    ok(await call(subject, request, { token: await (row.caller?.(world) ?? tokenWith(world, [])) }))
  },
  // No capability can be missing: an identity without any role gets the answer for its standing.
  async denied(subject) {
    await expectOutsider(subject, (await makeMember(subject.world.server, subject.world.group)).token)
  },
  'no token': noToken,
  async 'other tenant'(subject) {
    const { world, row } = subject
    await expectOutsider(subject, world.other.token)
    const reply = await call(subject, await row.request(world), { token: world.other.token })
    // The answer contains nothing of the organisation, except the text of the question.
    const question = JSON.stringify(await row.request(world))
    if (!question.includes(world.group)) expect(JSON.stringify([reply.body, reply.details])).not.toContain(world.group)
  },
  async 'a deleted identity'(subject) {
    const { world, row } = subject
    const member = await makeMember(world.server, world.group)
    const request = await row.request(world)
    ok(await world.server.rest.call('DeleteIdentity', { uid: member.uid }, { token: world.token }))
    expect((await refused(subject, request, { token: member.token })).code).toBe(16)
  },
} satisfies Record<Aspect, Check> & Record<string, Check>

function externalOf({ row, name }: Subject): ExternalCase {
  if (row.external === undefined) throw new Error(`${name} verifies its credential itself, and its row does not say how that is tried`)
  return row.external
}

const external = {
  async allowed(subject) {
    const { world, row } = subject
    const request = await row.request(world)
    const body = ok(await call(subject, request, { token: (await row.caller?.(world)) ?? '' }))
    const secret = externalOf(subject).secretIn(body)
    expect(secret.length).toBeGreaterThan(20)
    expect(JSON.stringify(world.server.logs)).not.toContain(secret.slice(-20))
  },
  async denied(subject) {
    const { world, row } = subject
    const { stranger, codes } = externalOf(subject)
    const request = await row.request(world)
    expect((await refused(subject, request, { token: await stranger(world) })).code).toBe(codes.stranger)
  },
  'no token': noToken,
  // Records of another tenant and missing records get the same answer (docs/spec/tokens.md#exchange-errors).
  async 'other tenant'(subject) {
    const { world, row } = subject
    await row.request(world)
    const shapes: unknown[] = []
    for (const { request, token, about } of await externalOf(subject).alike(world)) shapes.push(shapeOf(await refused(subject, request, { token }), about))
    expect(shapes).toHaveLength(2)
    expect(shapes[0]).toEqual(shapes[1])
  },
  async 'a token of this platform'(subject) {
    const { world, row } = subject
    expect((await refused(subject, await row.request(world), { token: world.token })).code).toBe(externalOf(subject).codes.ours)
  },
} satisfies Record<Aspect, Check> & Record<string, Check>

async function answersAnyone(subject: Subject, token: string | undefined): Promise<void> {
  ok(await call(subject, await subject.row.request(subject.world), { token }))
}

const open = {
  allowed: async (subject) => answersAnyone(subject, await tokenWith(subject.world, [])),
  denied: async (subject) => answersAnyone(subject, (await makeMember(subject.world.server, subject.world.group)).token),
  // The token is ignored (docs/spec/conventions.md#public-methods).
  async 'no token'(subject) {
    await answersAnyone(subject, undefined)
    for (const token of garbage) await answersAnyone(subject, token)
  },
  'other tenant': (subject) => answersAnyone(subject, subject.world.other.token),
} satisfies Record<Aspect, Check> & Record<string, Check>

/** The checks for each kind of access. The type requires all four cases for each. */
export const capabilityChecks: Readonly<Record<Access, Readonly<Record<Aspect, Check> & Record<string, Check>>>> = {
  scoped,
  operators,
  list,
  anywhere,
  signedIn,
  external,
  public: open,
}
