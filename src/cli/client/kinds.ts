import { methods, resources } from '../../base/schema/schema.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { nearestName } from '../../base/nearest-name.ts'
import { shortNames } from './columns.ts'
import { UsageError } from '../exit-codes.ts'

/** A kind of record that the API can list, with its names and paths for commands. */
export interface ClientKind {
  /** The method that lists the records. */
  readonly list: MethodRow
  /** Name of the kind, such as `RoleBinding`. */
  readonly kind: string
  /** Accepted names: plural, singular, short; such as `rolebindings`, `rolebinding`, `prb`. In lower case, without `-` and `_`. */
  readonly names: readonly string[]
  /** The plural in words, for messages, such as `role bindings`. */
  readonly words: string
  /**
   * Path of the list, such as `/iam/v2/roleBindings`. With a variable, as in `/iam/v2/terms/{group=**}`, each list is of one group or repo
   * only.
   */
  readonly listPath: string
  /** The variable in `listPath`; undefined if there is none. */
  readonly listVariable: string | undefined
  /** Path to read one record by uid; undefined if the API cannot do that. */
  readonly getPath: string | undefined
  /** The field of a list's response that contains the records, such as `roleBindings`. */
  readonly member: string
  /** Query parameters that filter the list by a value, in snake_case. */
  readonly filters: readonly string[]
  /** The query parameter that selects records by name; undefined if records have no names. */
  readonly nameFilter: 'name' | 'id' | undefined
  /** Kinds of the direct parent of a record; `/` if a record may be a root. */
  readonly parents: readonly string[]
}

/** Query parameters of every list that are not filters. */
const paging: ReadonlySet<string> = new Set(['page_size', 'page_token', 'order_by', 'skip', 'uidp'])

/** All kinds that the API can list, by plural name. */
export const clientKinds: readonly ClientKind[] = [
  ...methods.filter((method) => method.verb === 'list' && method.kind !== undefined).map(clientKind),
  ...methods.filter(({ input }) => input.name === 'ListDeliveriesRequest').map(deliveriesKind),
].toSorted((one, other) => (one.words < other.words ? -1 : 1))

/**
 * Returns the kind with this plural, singular or short name, in any letter case, with or without `-`. Throws UsageError; `program` is the
 * name on the command line, for the message.
 */
export function findKind(name: string, program: string): ClientKind {
  const wanted = name.toLowerCase().replaceAll(/[-_]/g, '')
  const found = clientKinds.find(({ names }) => names.includes(wanted))
  if (found !== undefined) return found
  const near = nearestName(
    wanted,
    clientKinds.flatMap(({ names }) => names),
  )
  throw new UsageError(`there is no kind "${name}": ${near === undefined ? '' : `did you mean ${near}? `}${program} get --help lists all`)
}

/** Returns the kind with exactly this name, for use in code. */
export function kindNamed(kind: string): ClientKind {
  const found = clientKinds.find((candidate) => candidate.kind === kind)
  if (found === undefined) throw new TypeError(`the API has no list of ${kind}`)
  return found
}

function clientKind(method: MethodRow): ClientKind {
  const row = resources.get(method.kind ?? '')
  const [list] = method.http
  if (row === undefined || list === undefined) throw new TypeError(`schema: the list method ${method.rpc} has no resource kind or no REST route`)
  const fields = method.input.fields.map(({ name }) => name)
  const listVariable = variableIn(list.template)
  const getPath = methods.find(({ verb, kind }) => verb === 'get' && kind === row.kind)?.http[0]?.template
  const plain = row.plural.replaceAll('_', '')
  return {
    list: method,
    kind: row.kind,
    names: [...new Set([plain, row.collection.toLowerCase(), row.kind.toLowerCase(), ...[shortNames[row.kind] ?? []].flat()])],
    words: row.plural.replaceAll('_', ' '),
    listPath: list.template,
    listVariable,
    getPath,
    member: row.plural.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    filters: fields.filter((name) => !paging.has(name) && name !== listVariable),
    nameFilter: (['name', 'id'] as const).find((name) => fields.includes(name)),
    parents: row.parents,
  }
}

/** Returns the deliveries of a subscription as a kind. They have neither uids nor names. */
function deliveriesKind(method: MethodRow): ClientKind {
  const listPath = method.http[0]?.template ?? ''
  return {
    list: method,
    kind: 'Delivery',
    names: ['deliveries', 'delivery'],
    words: 'deliveries',
    listPath,
    listVariable: variableIn(listPath),
    getPath: undefined,
    member: 'deliveries',
    filters: ['state'],
    nameFilter: undefined,
    parents: ['Subscription'],
  }
}

function variableIn(template: string): string | undefined {
  return /\{(\w+)/.exec(template)?.[1]
}
