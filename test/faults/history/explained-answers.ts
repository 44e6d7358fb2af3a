import type { JsonObject } from '@bufbuild/protobuf'
import type { Reply } from '../../support/api-clients.ts'
import { reasonOf } from './api-calls.ts'
import type { Operation } from './history.ts'

/** The parts of a call that decide which answers it may have. */
export type Asked = Pick<Operation, 'action' | 'kind' | 'parent' | 'uid' | 'name' | 'guard'> & {
  /** A create that an earlier attempt may have made. */
  readonly isDoubted?: boolean
}

type Rule = (asked: Asked, reply: Reply) => boolean

const always: Rule = () => true
const isWrite: Rule = ({ action }) => action !== 'read' && action !== 'list' && action !== 'use'

/** References of a role binding may be deleted in between (docs/spec/iam.md#references-in-bodies); all other requests are valid. */
const namesWhatIsGone: Rule = (asked, reply) => {
  const violations = (reply.details['BadRequest']?.['fieldViolations'] ?? []) as JsonObject[]
  const fields = violations.map((violation) => String(violation['field']))
  const isBound = asked.kind === 'RoleBinding' && (asked.action === 'create' || asked.action === 'update')
  return isBound && fields.length > 0 && fields.every((field) => /(?:^|\.)(?:identity|role)(?:_uid|Uid)$/.test(field))
}

/** The missing record is the subject; for a create or use its group, or the record of an earlier attempt. A list is never missing. */
const misses: Rule = ({ action, parent, uid, isDoubted = false }, reply) => {
  const missing = missingOf(reply)
  if (action === 'create') return missing === parent || (isDoubted && missing.startsWith(parent === '/' ? '' : `${parent}/`))
  return action !== 'list' && missing === (action === 'use' ? parent : uid)
}

/** The reasons that prevent the removal of a record. The caller is an operator, for whom the last-owner rule does not apply. */
const inUse: Rule = ({ action, kind }, reply) => {
  if (action !== 'delete') return false
  if (kind === 'Role') return reasonOf(reply) === 'ROLE_IN_USE'
  const violations = (reply.details['PreconditionFailure']?.['violations'] ?? []) as JsonObject[]
  return kind === 'Group' && violations.length > 0 && violations.every((violation) => violation['type'] === 'RESOURCE_NOT_EMPTY')
}

/** The allowed answers of the workload's calls while processes and stores fail, by code (docs/errors.md). Every other one is a fault. */
const rules: Readonly<Partial<Record<number, Rule>>> = {
  0: always,
  2: (asked, reply) => isWrite(asked, reply) && reasonOf(reply) === 'OUTCOME_UNKNOWN',
  3: namesWhatIsGone,
  // The call of a process that was suspended in between was too late.
  4: always,
  5: misses,
  6: ({ action, name }) => name !== undefined && (action === 'create' || action === 'update'),
  // All other calls are an operator's.
  7: ({ action }) => action === 'use',
  // Reads continue without space, and no rate is limited.
  8: (asked, reply) => isWrite(asked, reply) && reasonOf(reply) === 'STORE_FULL',
  9: inUse,
  10: (asked, reply) => isWrite(asked, reply) && (reasonOf(reply) === 'ABORTED' || (reasonOf(reply) === 'ETAG_MISMATCH' && asked.guard !== undefined)),
  14: always,
  // Tokens and keys expire when clocks jump.
  16: always,
}

/** Returns whether the call may have this answer, whatever fails behind the server. */
export function isExplained(asked: Asked, reply: Reply): boolean {
  return rules[reply.code]?.(asked, reply) ?? false
}

/** Returns the uid of the missing record; empty if the answer names none. */
export function missingOf(reply: Reply): string {
  return String(reply.details['ResourceInfo']?.['resourceName'] ?? '')
}
