import type { JsonObject } from '@bufbuild/protobuf'
import { expect } from 'vitest'
import { freshName } from '../../support/test-server.ts'
import { one, type Pick } from '../../cache/records.ts'
import { modelKinds, type ModelRecord } from './naive-world.ts'
import { capabilities, expectCode, expectShown, fields, modelled, names, parentOf, relationships, someCaller, someUid, type Real } from './real-world.ts'

/** An identity and a role: mostly such that they may be bound on `group`. */
function somePair(pick: Pick, real: Real, group: string): { identity: string; role: string } {
  const { world } = real
  const role = someUid(pick, real, 'Role')
  if (pick(4) === 0) return { identity: someUid(pick, real, 'Identity'), role }
  const identities = world.all('Identity').filter(({ uid }) => group === parentOf(uid) || group.startsWith(`${parentOf(uid)}/`))
  const roles = world.all('Role').filter(({ uid }) => !uid.includes('/') || group === parentOf(uid) || group.startsWith(`${parentOf(uid)}/`))
  return {
    identity: identities.length === 0 ? someUid(pick, real, 'Identity') : one(pick, identities).uid,
    role: roles.length === 0 ? role : one(pick, roles).uid,
  }
}

async function createOne(pick: Pick, real: Real): Promise<void> {
  const { world } = real
  const caller = someCaller(pick, real)
  const kind = one(pick, ['Group', 'Group', 'Identity', 'Identity', 'Role', 'RoleBinding', 'RoleBinding', 'RoleBinding'] as const)
  const place = someUid(pick, real, 'Group')
  const isRoot = kind === 'Group' && pick(40) === 0
  // Four levels deep, not more.
  const parent = isRoot ? '' : place.split('/').length > 4 ? parentOf(place) : place
  const name = pick(15) === 0 ? 'Not A Name' : isRoot ? freshName('root') : one(pick, names)
  const description = pick(2) === 0 ? '' : `text ${pick(9)}`
  const { identity, role } = somePair(pick, real, parent)
  const held = capabilities.filter(() => pick(3) === 0)
  const granted = held.length === 0 ? ['CAP_IAM_GROUPS_LIST'] : held
  const relationship = one(pick, ['claimMatch', 'awsIdentity'] as const)
  const resource: JsonObject = {
    Group: { name, description },
    Identity: { name, description, [relationship]: relationships[relationship].value },
    Role: { name, description, capabilities: granted },
    RoleBinding: { identityUid: identity, roleUid: role },
  }[kind]
  const wanted = (): number => {
    const may = world.mayCreate(caller, kind, parent)
    if (may !== 0) return may
    if (kind !== 'RoleBinding' && name === 'Not A Name') return 3
    if (kind === 'RoleBinding') {
      if (!world.canBind(caller, parent, { identity, role })) return 3
      if (!world.canGrant(caller, parent, world.get('Role', role)?.capabilities ?? [])) return 7
      return world.isBound(parent, { identity, role }) ? 6 : 0
    }
    if (kind === 'Role' && !world.canGrant(caller, parent, granted)) return 7
    return kind !== 'Identity' && world.nameTaken(kind, parent, name) ? 6 : 0
  }
  const expected = wanted()
  const request = { parent, [fields[kind]]: resource }
  const { reply } = await real.call(pick, caller, { rpc: `Create${kind}`, request })
  expectCode(reply, expected, { caller: caller.title, kind, request })
  if (reply.code !== 0) return
  const made = modelled(kind, reply.body)
  expect(parentOf(made.uid)).toBe(parent === '' ? '/' : parent)
  expect(made.updateMs).toBe(made.createMs)
  if (kind === 'RoleBinding') expect(made.filters).toEqual({ identity, role, group: parent })
  else expect(made).toMatchObject({ name, description })
  world.put(made)
  expectShown(real, made, reply.body)
  // The person who creates a root group owns it from the start.
  if (isRoot) await real.learn('RoleBinding')
}

type Mask = undefined | '*' | 'name' | 'description' | 'name,description'

/** A record after an update, as docs/spec/conventions.md#update-masks has it. */
function patched(
  record: ModelRecord,
  patch: { name?: string; description?: string },
  by: { mask: Mask; transport: 'rest' | 'grpc' },
): { name: string; description: string } {
  const next = { name: record.name, description: record.description }
  for (const field of ['name', 'description'] as const) {
    const value = patch[field]
    const isNamed = by.mask === '*' || by.mask?.split(',').includes(field) === true
    // Without a mask: over REST the keys of the body, over gRPC what is set.
    const isPresent = by.mask === undefined && value !== undefined && (by.transport === 'rest' || value !== '')
    if (isNamed || isPresent) next[field] = value ?? ''
  }
  return next
}

async function updateOne(pick: Pick, real: Real): Promise<void> {
  const { world } = real
  const caller = someCaller(pick, real)
  const kind = one(pick, ['Group', 'Identity', 'Role'] as const)
  const uid = someUid(pick, real, kind)
  const patch = {
    ...(pick(4) === 0 ? {} : { name: pick(15) === 0 ? 'Not A Name' : one(pick, names) }),
    ...(pick(2) === 0 ? {} : { description: pick(3) === 0 ? '' : `text ${pick(9)}` }),
  }
  // A wildcard also replaces what this model does not send: relationship and capabilities.
  const masks: readonly Mask[] = [undefined, undefined, 'name', 'description', 'name,description', ...(kind === 'Group' ? (['*'] as const) : [])]
  const mask = one(pick, masks)
  const record = world.get(kind, uid)
  const etag = record === undefined || pick(4) > 0 ? undefined : pick(2) === 0 ? record.etag : 'stale'
  const request = { [fields[kind]]: { uid, ...patch }, ...(mask === undefined ? {} : { updateMask: mask }) }
  const { reply, transport } = await real.call(pick, caller, { rpc: `Update${kind}`, request, ...(etag === undefined ? {} : { ifMatch: etag }) })
  const next = record === undefined ? undefined : patched(record, patch, { mask, transport })
  const wanted = (): number => {
    const may = world.mayTouch(caller, { kind, uid, deed: 'UPDATE' })
    if (may !== 0 || next === undefined) return may
    if (etag === 'stale') return 10
    if (next.name === '' || next.name === 'Not A Name') return 3
    if (kind === 'Role' && !world.canGrant(caller, parentOf(uid), record?.capabilities ?? [])) return 7
    return kind !== 'Identity' && world.nameTaken(kind, parentOf(uid), next.name, uid) ? 6 : 0
  }
  expectCode(reply, wanted(), { caller: caller.title, transport, request, etag, record })
  if (reply.code !== 0 || record === undefined || next === undefined) return
  const changed = modelled(kind, reply.body)
  expect(changed).toMatchObject({ ...next, uid, createMs: record.createMs, filters: record.filters, capabilities: record.capabilities })
  expect(changed.updateMs).toBeGreaterThan(record.updateMs)
  expect(changed.etag).not.toBe(record.etag)
  world.put(changed)
}

async function changeBinding(pick: Pick, real: Real): Promise<void> {
  const { world } = real
  const caller = someCaller(pick, real)
  const uid = someUid(pick, real, 'RoleBinding')
  const wished = somePair(pick, real, parentOf(uid))
  const patch = {
    ...(pick(3) === 0 ? {} : { identityUid: wished.identity }),
    ...(pick(3) === 0 ? {} : { roleUid: wished.role }),
  }
  const record = world.get('RoleBinding', uid)
  // What lets the test's own callers in stays.
  if (record !== undefined && real.protected.has(record.filters['identity'] ?? '')) return
  const pair = { identity: patch.identityUid ?? record?.filters['identity'] ?? '', role: patch.roleUid ?? record?.filters['role'] ?? '' }
  const wanted = (): number => {
    const may = world.mayTouch(caller, { kind: 'RoleBinding', uid, deed: 'UPDATE' })
    if (may !== 0 || record === undefined) return may
    const group = parentOf(uid)
    if (!world.canBind(caller, group, { ...pair, current: record })) return 3
    if (!world.canGrant(caller, group, world.get('Role', pair.role)?.capabilities ?? [])) return 7
    if (pair.role !== record.filters['role'] && world.leavesNoOwner(caller, [record])) return 9
    return world.isBound(group, pair, uid) ? 6 : 0
  }
  const expected = wanted()
  const request = { roleBinding: { uid, ...patch } }
  const { reply } = await real.call(pick, caller, { rpc: 'UpdateRoleBinding', request })
  expectCode(reply, expected, { caller: caller.title, request, record })
  if (reply.code !== 0 || record === undefined) return
  const changed = modelled('RoleBinding', reply.body)
  expect(changed).toMatchObject({ uid, createMs: record.createMs, filters: pair })
  expect(changed.updateMs).toBeGreaterThan(record.updateMs)
  world.put(changed)
  expectShown(real, changed, reply.body)
}

async function deleteOne(pick: Pick, real: Real): Promise<void> {
  const { world } = real
  const caller = someCaller(pick, real)
  const kind = one(pick, modelKinds)
  const uid = someUid(pick, real, kind)
  const record = world.get(kind, uid)
  if (real.protected.has(uid) || real.protected.has(record?.filters['identity'] ?? '')) return
  const may = world.mayTouch(caller, { kind, uid, deed: 'DELETE' })
  const expected = may !== 0 || record === undefined ? may : world.canRemove(caller, record)
  const { reply } = await real.call(pick, caller, { rpc: `Delete${kind}`, request: { uid } })
  expectCode(reply, expected, { caller: caller.title, kind, uid })
  if (reply.code !== 0 || record === undefined) return
  expect(reply.body).toEqual({})
  world.remove(record)
}

/** Makes one random change, and expects the answer that the model gives. */
export async function change(pick: Pick, real: Real): Promise<void> {
  const deeds = [createOne, createOne, createOne, createOne, createOne, updateOne, updateOne, changeBinding, changeBinding, deleteOne, deleteOne]
  await one(pick, deeds)(pick, real)
}
