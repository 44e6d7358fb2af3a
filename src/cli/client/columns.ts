import { isJson, textOf, type Json } from './client-error.ts'

/** Returns the width of each column, in characters. */
export function columnWidths(rows: readonly (readonly string[])[]): readonly number[] {
  return (rows[0] ?? []).map((_, at) => Math.max(...rows.map((row) => row[at]?.length ?? 0)))
}

/** Aligns a row's cells to the columns. A cell that is too long shifts the following ones. */
export function alignedLine(cells: readonly string[], widths: readonly number[]): string {
  return cells
    .map((cell, at) => (at === cells.length - 1 ? cell : cell.padEnd(widths[at] ?? 0)))
    .join('  ')
    .trimEnd()
}

/** One column of a table. */
export interface Column {
  readonly head: string
  /** Paths of the value in the record's JSON, such as `claimMatch.issuer`. The first path with a value is used. */
  readonly at: readonly string[]
  readonly form: keyof typeof forms
  /** True for a column of the format `wide` only. */
  readonly wide?: true
}

/** How records of a kind are displayed. */
interface Presentation {
  /** The short name of its Kubernetes objects. */
  readonly short?: string
  readonly columns: readonly Column[]
}

const longestText = 60

/** Functions that format the value of a cell. */
const forms = {
  text: (value: unknown) => plainText(value),
  /** Free text, shortened if long. */
  words: (value: unknown) => cut(plainText(value), longestText),
  /** Age, as `5m`. */
  age: (value: unknown, nowMs: number) => ageText(nowMs - Date.parse(textOf(value))),
  /** Age, or `never` for an identity that was not used since it was made. People are made when they sign in. */
  seen: (value: unknown, nowMs: number, { uid, createTime }: Json) =>
    value === createTime && textOf(uid).includes('/') ? 'never' : ageText(nowMs - Date.parse(textOf(value))),
  /** The time until then, as `5m`; `now` if it has passed. */
  until: (value: unknown, nowMs: number) => {
    const leftMs = Date.parse(textOf(value)) - nowMs
    return leftMs < 1_000 ? 'now' : ageText(leftMs)
  },
  /** A number; empty for 0. */
  number: (value: unknown) => (value === 0 ? '' : plainText(value)),
  count: (value: unknown) => String(Array.isArray(value) ? value.length : 0),
  /** `python` of `ECOSYSTEM_PYTHON`. */
  ecosystem: (value: unknown) => textOf(value).replace('ECOSYSTEM_', '').toLowerCase(),
  /** The first part of a digest, which is enough to distinguish builds. */
  digest: (value: unknown) => textOf(value).slice(0, 'sha256:'.length + 12),
} as const satisfies Record<string, (value: unknown, nowMs: number, record: Json) => string>

const column = (head: string, at: string | readonly string[], form: Column['form'] = 'text'): Column => ({ head, at: [at].flat(), form })

const name = column('NAME', 'name')
/** The path of a record with a name. People have no name. */
const path = column('PATH', ['path', 'email', 'uid'])
/** The path of the group of a record without a name. */
const group = column('GROUP', ['path', 'group.name'])
const uid = column('UID', 'uid')
const wideUid: Column = { ...uid, wide: true }
const age = column('AGE', 'createTime', 'age')
const description = column('DESCRIPTION', 'description', 'words')
const issuer = column('ISSUER', ['claimMatch.issuer', 'claimMatch.issuerPattern', 'staticKeys.issuer'])
const subject = column('SUBJECT', ['claimMatch.subject', 'claimMatch.subjectPattern', 'staticKeys.subject', 'awsIdentity.awsAccount', 'servicePrincipal'])
/** The identity of a role binding: people may have no name. */
const bound = column('IDENTITY', ['identity.name', 'identity.email', 'identity.subject', 'identity.uid'])

/** Display settings by kind. Kinds without an entry have only the common columns. */
const presentations: Readonly<Record<string, Presentation>> = {
  Group: { short: 'pg', columns: [path, age, description, wideUid] },
  Identity: { short: 'pid', columns: [path, issuer, subject, column('LAST SEEN', 'lastSeenTime', 'seen'), age, wideUid] },
  Role: { short: 'prole', columns: [path, column('CAPABILITIES', 'capabilities', 'count'), age, description, wideUid] },
  RoleBinding: {
    short: 'prb',
    columns: [group, column('ROLE', 'role.name'), bound, uid, age],
  },
  Repo: { short: 'prepo', columns: [path, age, description, wideUid] },
  Tag: {
    short: 'ptag',
    columns: [path, column('DIGEST', 'digest', 'digest'), column('DEPRECATED', 'deprecated'), column('UPDATED', 'updateTime', 'age'), wideUid],
  },
  IdentityProvider: { short: 'pidp', columns: [path, column('ISSUER', 'oidc.issuer'), age, wideUid] },
  GroupInvite: { short: 'pinv', columns: [group, uid, column('ROLE', 'role.name'), column('EMAIL', 'email'), column('EXPIRES', 'expirationTime'), age] },
  Advisory: {
    short: 'padv',
    columns: [
      column('ADVISORY', 'advisoryId'),
      column('ARTIFACT', 'artifactName', 'words'),
      column('TYPE', 'artifactType'),
      column('UPDATED', 'updateTime', 'age'),
      uid,
    ],
  },
  VulnerabilityMetadata: { columns: [column('ID', 'id'), column('SUMMARY', 'summary', 'words')] },
  Artifact: {
    short: 'part',
    columns: [
      name,
      column('ECOSYSTEM', 'ecosystem', 'ecosystem'),
      column('LATEST', 'latestVersion', 'words'),
      column('VERSIONS', 'versionCount'),
      column('UPDATED', 'updateTime', 'age'),
      description,
    ],
  },
  ArtifactVersion: { columns: [column('VERSION', 'version', 'words'), column('BYTES', 'sizeBytes'), age, description] },
  Subscription: {
    short: 'psub',
    columns: [
      group,
      uid,
      column('SINK', 'sink', 'words'),
      column('STATE', 'state'),
      column('PENDING', 'pendingCount'),
      column('DELIVERED', 'lastDeliveryTime', 'age'),
      age,
      column('REASON', ['stateReason', 'lastError'], 'words'),
    ],
  },
  Delivery: {
    columns: [
      column('EVENT ID', 'eventId'),
      column('TYPE', 'eventType'),
      column('AGE', 'eventTime', 'age'),
      column('STATE', 'state'),
      column('ATTEMPTS', 'attempts', 'number'),
      column('STATUS', 'lastStatus', 'number'),
      column('NEXT', 'nextAttemptTime', 'until'),
      column('ERROR', 'lastError', 'words'),
    ],
  },
  Access: { columns: [bound, column('ROLE', 'role.name'), group, age] },
  TagHistoryRecord: { columns: [column('TIME', 'updateTimestamp'), column('DIGEST', 'digest')] },
  TermsAcceptance: { columns: [column('DOCUMENT', 'docId'), column('GROUP UID', 'orgUid'), column('ACCEPTED BY', 'acceptedBy'), age] },
  ExternalGroupRoleMapping: { columns: [group, uid, column('EXTERNAL GROUP', 'externalGroupId', 'words'), column('ROLE UID', 'roleUid'), age] },
}

const others: readonly Column[] = [name, column('UID', ['uid', 'id']), age]

/** The short name of each kind that has one. */
export const shortNames: Readonly<Record<string, string | undefined>> = Object.fromEntries(
  Object.entries(presentations).map(([kind, { short }]) => [kind, short]),
)

/** Returns the columns of a kind's table. `isWide` adds those of the format `wide`. */
export function columnsOf(kind: string, isWide = false): readonly Column[] {
  return (presentations[kind]?.columns ?? others).filter(({ wide }) => isWide || wide !== true)
}

/** Formats the cell of a record. Replaces terminal control characters by spaces. */
export function cellOf(record: Json, { at, form }: Column, nowMs: number): string {
  const value = at.map((path) => valueAt(record, path)).find((found) => found !== undefined && found !== null && found !== '')
  return value === undefined ? '' : forms[form](value, nowMs, record)
}

/** Replaces terminal control characters and text direction characters, since names and messages may come from untrusted users. */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu, ' ')
}

/** Formats a duration in one unit: `45s`, `5m`, `20h`, `12d`. Empty if it is not a number. */
export function ageText(ms: number): string {
  if (Number.isNaN(ms)) return ''
  const seconds = Math.max(0, Math.floor(ms / 1000))
  if (seconds < 120) return `${seconds}s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 180) return `${minutes}m`
  const hours = Math.floor(minutes / 60)
  if (hours < 48) return `${hours}h`
  return `${Math.floor(hours / 24)}d`
}

function valueAt(record: Json, path: string): unknown {
  return path.split('.').reduce<unknown>((at, step) => (isJson(at) ? at[step] : undefined), record)
}

function plainText(value: unknown): string {
  return printable(typeof value === 'string' ? value : JSON.stringify(value))
}

function cut(text: string, length: number): string {
  const characters = [...text]
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join('')}…`
}
