import type { SeededRandom } from '../schedules/random.ts'
import type { Operation } from './history.ts'

/** Changes an observation of a client so that no server could have given it. Returns undefined if the history has no suitable operation. */
export type Damage = (operations: readonly Operation[], random: SeededRandom) => readonly Operation[] | undefined

const endOf = (operation: Operation): number => operation.return ?? Number.POSITIVE_INFINITY
/** Returns whether one operation ended before the other began. */
const isBefore = (one: Operation, other: Operation): boolean => endOf(one) < other.call
const isOk = (operation: Operation): boolean => operation.outcome === 'ok'

/** Replaces one of the candidates, chosen at random. */
function replaceOne<T>(
  operations: readonly Operation[],
  random: SeededRandom,
  how: { candidates: readonly (readonly [Operation, T])[]; to: (operation: Operation, by: T) => Operation },
): readonly Operation[] | undefined {
  if (how.candidates.length === 0) return undefined
  const [chosen, by] = random.pick(how.candidates)
  return operations.map((operation) => (operation === chosen ? how.to(operation, by) : operation))
}

/** Returns every pair of an operation and an earlier acknowledged one for which `holds` is true. */
function pairs(operations: readonly Operation[], holds: (later: Operation, earlier: Operation) => boolean): (readonly [Operation, Operation])[] {
  return operations.flatMap((later) =>
    operations.filter((earlier) => isOk(earlier) && isBefore(earlier, later) && holds(later, earlier)).map((earlier) => [later, earlier] as const),
  )
}

/** Returns whether nothing could have removed the record before the operation ended. */
function isSurelyThere(operations: readonly Operation[], operation: Operation, creation: Operation): boolean {
  return !operations.some(
    (other) =>
      other.action === 'delete' && (other.uid === creation.uid || other.uid === creation.identity) && isOkOrUnknown(other) && other.call <= endOf(operation),
  )
}

function isOkOrUnknown(operation: Operation): boolean {
  return isOk(operation) || operation.outcome === 'unknown'
}

function membersOf(operation: Operation): readonly string[] {
  return (operation.members ?? []).map((member) => member.uid)
}

/** Named damages. Each makes a history that no order explains, whatever else it contains. */
export const damages: Readonly<Record<string, Damage>> = {
  'a list lacks an acknowledged creation': (operations, random) =>
    replaceOne(operations, random, {
      candidates: pairs(
        operations,
        (list, creation) =>
          list.action === 'list' && creation.action === 'create' && membersOf(list).includes(creation.uid ?? '') && isSurelyThere(operations, list, creation),
      ),
      to: (list, creation) => ({ ...list, members: (list.members ?? []).filter((member) => member.uid !== creation.uid) }),
    }),
  'a list shows an acknowledged removal': (operations, random) =>
    replaceOne(operations, random, {
      candidates: pairs(operations, (list, removal) => list.action === 'list' && isOk(list) && removal.action === 'delete' && removal.kind === list.kind),
      to: (list, removal) => ({ ...list, members: [...(list.members ?? []), { uid: removal.uid ?? '', value: 'v', etag: 'e' }] }),
    }),
  'a list shows a record that was never made': (operations, random) =>
    replaceOne(operations, random, {
      candidates: operations.filter((operation) => operation.action === 'list').map((list) => [list, undefined] as const),
      to: (list) => ({ ...list, members: [...(list.members ?? []), { uid: 'phantom', value: 'v', etag: 'e' }] }),
    }),
  'a read shows an overwritten state': (operations, random) =>
    replaceOne(operations, random, {
      candidates: pairs(operations, (read, update) => read.action === 'read' && isOk(read) && update.action === 'update' && update.uid === read.uid).flatMap(
        ([read, update]) =>
          operations
            .filter((older) => older.action === 'create' && isOk(older) && older.uid === read.uid && isBefore(older, update))
            .map((older) => [read, older] as const),
      ),
      to: (read, { value = '', etag = '' }) => ({ ...read, value, etag }),
    }),
  'a read does not find an acknowledged creation': (operations, random) =>
    replaceOne(operations, random, {
      candidates: pairs(
        operations,
        (read, creation) =>
          read.action === 'read' && isOk(read) && creation.action === 'create' && creation.uid === read.uid && isSurelyThere(operations, read, creation),
      ),
      to: ({ client, call, return: ended, kind, parent, uid = '' }) => ({ client, call, return: ended, kind, parent, uid, action: 'read', outcome: 'absent' }),
    }),
  'a read finds an acknowledged removal': (operations, random) =>
    replaceOne(operations, random, {
      candidates: pairs(
        operations,
        (read, removal) => read.action === 'read' && read.outcome === 'absent' && removal.action === 'delete' && removal.uid === read.uid,
      ),
      to: (read) => ({ ...read, outcome: 'ok', value: 'v', etag: 'e' }),
    }),
  'a write on an outdated etag is accepted': (operations, random) =>
    replaceOne(operations, random, {
      candidates: operations.filter((operation) => operation.outcome === 'stale').map((stale) => [stale, undefined] as const),
      to: (stale) => ({ ...stale, outcome: 'ok', etag: 'accepted' }),
    }),
  'a current etag is refused': (operations, random) =>
    replaceOne(operations, random, {
      candidates: operations
        .filter((operation) => operation.action === 'update' && isOk(operation) && operation.guard !== undefined)
        // No other client could have changed it in between, and a read showed that this write took effect.
        .filter((write) =>
          operations.every(
            (other) => other === write || other.uid !== write.uid || other.action === 'create' || other.action === 'read' || other.outcome !== 'unknown',
          ),
        )
        .filter((write) => operations.some((read) => read.action === 'read' && read.uid === write.uid && read.etag === write.etag))
        .map((write) => [write, undefined] as const),
      to: (write) => ({ ...write, outcome: 'stale' }),
    }),
  'a taken name is given': (operations, random) =>
    replaceOne(operations, random, {
      candidates: pairs(
        operations,
        (refused, creation) =>
          refused.outcome === 'taken' &&
          creation.action === 'create' &&
          creation.kind === refused.kind &&
          creation.name === refused.name &&
          isSurelyThere(operations, refused, creation),
      ),
      to: (refused) => ({ ...refused, outcome: 'ok', uid: 'second', etag: 'e' }),
    }),
  'a free name is refused': (operations, random) =>
    replaceOne(operations, random, {
      candidates: operations
        .filter((operation) => operation.action === 'create' && operation.outcome === 'taken')
        .map((refused) => [refused, undefined] as const),
      to: (refused) => ({ ...refused, name: 'an unused name' }),
    }),
}
