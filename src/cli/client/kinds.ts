import { isServedDomain, methods, resources } from '../../base/schema/schema.ts'
import type { MethodRow } from '../../base/schema/method.ts'
import { nearestName } from '../../base/nearest-name.ts'
import { shortNames } from './columns.ts'
import { UsageError } from '../exit-codes.ts'

/** A kind of record that the server has a list of, as the command names and reaches it. */
export interface ClientKind {
  /** `RoleBinding` */
  readonly kind: string
  /** What a person may call it: plural, singular, short; `rolebindings`, `rolebinding`, `prb`. Lower case, without `-` and `_`. */
  readonly names: readonly string[]
  /** The plural in words, for messages: `role bindings`. */
  readonly words: string
  /** `/iam/v2/roleBindings`; where it has a variable, as `/iam/v2/terms/{group=**}`, lists are of one place only. */
  readonly listPath: string
  /** The variable of `listPath`. */
  readonly listVariable: string | undefined
  /** Undefined where single records are not read by uid. */
  readonly getPath: string | undefined
  /** The member of a list's answer that holds the records: `roleBindings`. */
  readonly member: string
  /** Parameters of the list that narrow it by value, in snake_case. */
  readonly filters: readonly string[]
  /** The parameter of the list by which a person names a record; undefined where records have no names. */
  readonly nameFilter: 'name' | 'id' | undefined
  /** Kinds that it lies directly below; `/` where it may be a root. */
  readonly parents: readonly string[]
}

/** Parameters of every list that are no filters. */
const paging: ReadonlySet<string> = new Set(['page_size', 'page_token', 'order_by', 'skip', 'uidp'])

/** All that are served, by plural name. */
export const clientKinds: readonly ClientKind[] = methods
  .filter((method) => method.verb === 'list' && method.kind !== undefined && isServedDomain(method.domain))
  .map(clientKind)
  .toSorted((one, other) => (one.words < other.words ? -1 : 1))

/** The kind that a person means by a plural, singular or short name, in any case, with or without `-`. Throws UsageError, which names `program` as what the command is called by. */
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

/** A kind that the program itself names. */
export function kindNamed(kind: string): ClientKind {
  const found = clientKinds.find((candidate) => candidate.kind === kind)
  if (found === undefined) throw new TypeError(`no list of ${kind}`)
  return found
}

function clientKind(method: MethodRow): ClientKind {
  const row = resources.get(method.kind ?? '')
  const [list] = method.http
  if (row === undefined || list === undefined) throw new TypeError(`${method.rpc} has no kind or route`)
  const fields = method.input.fields.map(({ name }) => name)
  const listVariable = /\{(\w+)/.exec(list.template)?.[1]
  const getPath = methods.find(({ verb, kind }) => verb === 'get' && kind === row.kind)?.http[0]?.template
  const plain = row.plural.replaceAll('_', '')
  return {
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
