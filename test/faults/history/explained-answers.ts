import type { JsonObject } from '@bufbuild/protobuf'
import type { Reply } from '../../support/api-clients.ts'
import { reasonOf } from './api-calls.ts'
import type { Operation } from './history.ts'

/** A call, as far as it decides which answers it may have. */
export type Asked = Pick<Operation, 'action' | 'kind' | 'parent' | 'uid' | 'name' | 'guard'> & {
  /** A creation that an earlier attempt may have done. */
  readonly isDoubted?: boolean
}

type Rule = (asked: Asked, reply: Reply) => boolean

const always: Rule = () => true
const isWrite: Rule = ({ action }) => action !== 'read' && action !== 'list' && action !== 'use'

/** What a role binding names may be gone meanwhile (docs/spec/iam.md#references-in-bodies); nothing else that is asked for is invalid. */
const namesWhatIsGone: Rule = (asked, reply) => {
  const violations = (reply.details['BadRequest']?.['fieldViolations'] ?? []) as JsonObject[]
  const fields = violations.map((violation) => String(violation['field']))
  const isBound = asked.kind === 'RoleBinding' && (asked.action === 'create' || asked.action === 'update')
  return isBound && fields.length > 0 && fields.every((field) => /(?:^|\.)(?:identity|role)(?:_uid|Uid)$/.test(field))
}

/** The record itself is missing, of a creation or use its group, or what an earlier attempt made. A list is never missing. */
const misses: Rule = ({ action, parent, uid, isDoubted = false }, reply) => {
  const missing = missingOf(reply)
  if (action === 'create') return missing === parent || (isDoubted && missing.startsWith(parent === '/' ? '' : `${parent}/`))
  return action !== 'list' && missing === (action === 'use' ? parent : uid)
}

/** What keeps records of a kind from being removed; the caller is an operator, whom the last owner does not stop. */
const inUse: Rule = ({ action, kind }, reply) => {
  if (action !== 'delete') return false
  if (kind === 'Role') return reasonOf(reply) === 'ROLE_IN_USE'
  const violations = (reply.details['PreconditionFailure']?.['violations'] ?? []) as JsonObject[]
  return kind === 'Group' && violations.length > 0 && violations.every((violation) => violation['type'] === 'RESOURCE_NOT_EMPTY')
}

/** Which answers a call of the workload may have while processes and stores fail, by code (docs/errors.md). Every other one is a fault. */
const rules: Readonly<Partial<Record<number, Rule>>> = {
  0: always,
  2: (asked, reply) => isWrite(asked, reply) && reasonOf(reply) === 'OUTCOME_UNKNOWN',
  3: namesWhatIsGone,
  // A process that was suspended meanwhile had its call too late.
  4: always,
  5: misses,
  6: ({ action, name }) => name !== undefined && (action === 'create' || action === 'update'),
  // All others are an operator's.
  7: ({ action }) => action === 'use',
  // Reads go on without room, and no rate is limited.
  8: (asked, reply) => isWrite(asked, reply) && reasonOf(reply) === 'STORE_FULL',
  9: inUse,
  10: (asked, reply) => isWrite(asked, reply) && (reasonOf(reply) === 'ABORTED' || (reasonOf(reply) === 'ETAG_MISMATCH' && asked.guard !== undefined)),
  14: always,
  // Tokens and keys run out where clocks jump.
  16: always,
}

/** True for an answer of the server that the call may have, whatever fails behind it. */
export function isExplained(asked: Asked, reply: Reply): boolean {
  return rules[reply.code]?.(asked, reply) ?? false
}

/** The uid of what was not found; empty where the answer names none. */
export function missingOf(reply: Reply): string {
  return String(reply.details['ResourceInfo']?.['resourceName'] ?? '')
}
