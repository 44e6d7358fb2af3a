import type { AuditSinkConfig, Role } from './config.ts'
import { roleDefaults } from './defaults.ts'
import { settingOf } from './setting.ts'
import { isTree, valueAt, type Tree } from './tree.ts'
import { expectation } from './validate-tree.ts'

interface Requirement {
  /** The key that must be set if `because` has the value `equals` in one of the `roles`. */
  readonly key: string
  /** The key on which the requirement depends. */
  readonly because: string
  /** The value that `because` must have for the requirement to apply. If absent, any value. */
  readonly equals?: string
  /** The roles in which the requirement applies. If absent, all roles. */
  readonly roles?: readonly Role[]
}

/** Keys that must be set because of other keys. */
const requirements: readonly Requirement[] = [
  { key: 'store.etcd.endpoints', because: 'store.kind', equals: 'etcd' },
  { key: 'encryption.keyFile', because: 'store.kind', equals: 'etcd', roles: ['api', 'registry', 'controller', 'worker'] },
  { key: 'store.etcd.passwordFile', because: 'store.etcd.username' },
  { key: 'store.etcd.username', because: 'store.etcd.passwordFile' },
  { key: 'store.etcd.tls.keyFile', because: 'store.etcd.tls.certFile' },
  { key: 'store.etcd.tls.certFile', because: 'store.etcd.tls.keyFile' },
  { key: 'registry.upstream.passwordFile', because: 'registry.upstream.username' },
  { key: 'registry.upstream.username', because: 'registry.upstream.passwordFile' },
]

const portKeys = ['api.port', 'ops.port', 'registry.port'] as const

/** Checks the keys of a configuration tree against each other. Returns one line for each fault. Values that are invalid by themselves are not reported here. */
export function checkRequirements(tree: Tree, role: Role): string[] {
  return [
    ...requirements.flatMap((requirement) => missing(tree, requirement, role)),
    ...sharedStoreErrors(tree, role),
    ...samePorts(tree),
    ...upstreamErrors(tree, role),
    ...issuerErrors(tree),
    ...repeatedRows(tree),
    ...auditSinkErrors(tree),
    ...scannerErrors(tree, role),
  ]
}

/**
 * Returns an error if the controller or the worker is to use the embedded store. They need the same store as the API, and only one process can use the
 * embedded one.
 */
function sharedStoreErrors(tree: Tree, role: Role): string[] {
  const { variable } = settingOf('store.kind')
  const kind = effective(tree, 'store.kind', role)
  if ((role !== 'controller' && role !== 'worker') || kind !== 'sqlite') return []
  return [`store.kind (${variable}): expected etcd, got sqlite: only one process can use the embedded store, and the ${role} is another one`]
}

function missing(tree: Tree, { key, because, equals, roles }: Requirement, role: Role): string[] {
  if (roles !== undefined && !roles.includes(role)) return []
  const cause = effective(tree, because, role)
  if (equals === undefined ? cause === undefined : cause !== equals) return []
  const value = effective(tree, key, role)
  if (value !== undefined && !(Array.isArray(value) && value.length === 0)) return []
  const { variable, node } = settingOf(key)
  return [`${key} (${variable}) is missing: expected ${expectation(node)}, because ${because} is ${equals ?? 'set'}`]
}

function samePorts(tree: Tree): string[] {
  const seen = new Map<unknown, string>()
  const errors: string[] = []
  for (const key of portKeys) {
    const { variable, node, path } = settingOf(key)
    const value = valueAt(tree, path) ?? node.default
    const other = seen.get(value)
    if (other !== undefined) errors.push(`${key} (${variable}): expected a port that no other setting uses, got ${String(value)}, the port of ${other}`)
    else seen.set(value, key)
  }
  return errors
}

/** Checks the upstream, which is a registry or a folder, not both. Role `registry` needs one of them; role `dev` has a folder by default. */
function upstreamErrors(tree: Tree, role: Role): string[] {
  const [url, directory] = ['registry.upstream.url', 'registry.upstream.directory'].map((key) => ({ ...settingOf(key), value: effective(tree, key, role) }))
  if (url === undefined || directory === undefined) return []
  const ofUrl = ['prefix', 'username', 'passwordFile', 'caFile', 'redirects'].map((name) => settingOf(`registry.upstream.${name}`))
  if (url.value !== undefined) {
    if (directory.value === undefined) return []
    return [`${directory.key} (${directory.variable}): expected no folder, because ${url.key} is set`]
  }
  const stray = ofUrl.filter(({ path }) => valueAt(tree, path) !== undefined)
  const because =
    stray.length > 0
      ? `${stray[0]?.key ?? ''} is set`
      : role === 'registry' && directory.value === undefined
        ? 'the registry host needs an upstream'
        : undefined
  if (because === undefined) return []
  return [`${url.key} (${url.variable}) is missing: expected ${expectation(url.node)}, because ${because}`]
}

/** Checks that each issuer is configured once, and uses https unless `allowPrivate` is set for it. */
function issuerErrors(tree: Tree): string[] {
  const rows = valueAt(tree, ['issuers'])
  if (!Array.isArray(rows)) return []
  const { variable } = settingOf('issuers')
  const seen = new Set<unknown>()
  return rows.filter(isTree).flatMap(({ issuer, allowPrivate }) => {
    const errors: string[] = []
    if (seen.has(issuer)) errors.push(`issuers (${variable}): ${String(issuer)} is listed twice`)
    seen.add(issuer)
    if (typeof issuer === 'string' && issuer.startsWith('http://') && allowPrivate !== true) {
      errors.push(`issuers (${variable}): ${issuer}: expected https, or allowPrivate: true`)
    }
    return errors
  })
}

/** The maximum number of scanners: one transaction asks all of them for an image. */
const maxScanners = 100

/** Checks that pushed images are read if there are scanners, and that each has a file for its authorization. */
function scannerErrors(tree: Tree, role: Role): string[] {
  const { path, variable } = settingOf('scanners')
  const rows = valueAt(tree, path)
  if (!Array.isArray(rows) || rows.length === 0) return []
  const [url, directory] = ['registry.upstream.url', 'registry.upstream.directory'].map((key) => ({ ...settingOf(key), value: effective(tree, key, role) }))
  const isMissing = role === 'worker' && url?.value === undefined && directory?.value === undefined
  const isRead = valueAt(tree, settingOf('registry.readContents').path) !== false
  const isLong = rows.length > maxScanners
  return [
    ...(isLong ? [`scanners (${variable}): expected at most ${maxScanners}`] : []),
    ...(isRead ? [] : [`scanners (${variable}): expected none, because registry.readContents is false: images are scanned once they are read`]),
    ...(isMissing && url !== undefined ? [`${url.key} (${url.variable}) is missing: expected ${expectation(url.node)}, because scanners is set`] : []),
    ...rows.filter(isTree).flatMap(({ name, authorization, tokenFile }) => {
      if (authorization === undefined || tokenFile !== undefined) return []
      return [`scanners (${variable}): ${String(name)}: tokenFile is missing, because authorization is set`]
    }),
  ]
}

/** Lists in which each row has a unique name, and the key of that name. */
const namedRows = [
  ['terms', 'id'],
  ['catalogues.feeds', 'name'],
  ['scanners', 'name'],
  ['limits.selfService', 'limit'],
  ['limits.organizations', 'limit'],
] as const

function repeatedRows(tree: Tree): string[] {
  return namedRows.flatMap(([key, name]) => {
    const { path, variable } = settingOf(key)
    const rows = valueAt(tree, path)
    if (!Array.isArray(rows)) return []
    const names = rows.filter(isTree).map((row) => row[name])
    const twice = new Set(names.filter((one, at) => names.indexOf(one) !== at))
    return [...twice].map((one) => `${key} (${variable}): ${String(one)} is listed twice`)
  })
}

/** The keys of each kind of audit sink in addition to `kind` and `name`: those that it must have, and those that it may have. */
const auditSinkKeys = {
  log: { needs: [], takes: [] },
  file: { needs: ['path'], takes: ['maxMegabytes', 'maxFiles'] },
  syslog: { needs: ['address'], takes: ['caFile', 'certFile', 'keyFile', 'spoolMegabytes'] },
  https: { needs: ['url'], takes: ['tokenFile', 'caFile', 'spoolMegabytes'] },
  otlp: { needs: ['url'], takes: ['tokenFile', 'caFile', 'spoolMegabytes'] },
} as const satisfies Record<AuditSinkConfig['kind'], { readonly needs: readonly string[]; readonly takes: readonly string[] }>

/** Checks that each audit sink has only the keys of its kind and a unique name. Sinks of kind `https` must use https. */
function auditSinkErrors(tree: Tree): string[] {
  const { path, variable } = settingOf('audit.sinks')
  const rows = valueAt(tree, path)
  if (!Array.isArray(rows)) return []
  const names = new Set<unknown>()
  return rows.filter(isTree).flatMap((row, at) => {
    const { kind, name = kind, url, certFile, keyFile } = row
    // Another check reports an unknown kind.
    if (typeof kind !== 'string' || !Object.hasOwn(auditSinkKeys, kind)) return []
    const { needs, takes } = auditSinkKeys[kind as AuditSinkConfig['kind']]
    const known: readonly string[] = ['kind', 'name', ...needs, ...takes]
    const errors = [
      ...needs.filter((key) => row[key] === undefined).map((key) => `${key} is missing`),
      ...Object.keys(row)
        .filter((key) => !known.includes(key))
        .map((key) => `${key} does not apply to the kind ${kind}`),
    ]
    if (names.has(name)) errors.push('another sink has the same name: set a unique name')
    names.add(name)
    if (kind === 'https' && typeof url === 'string' && !url.startsWith('https://')) errors.push('expected an https:// URL')
    if (typeof url === 'string' && (URL.parse(url)?.username ?? '') !== '') errors.push('expected a URL without a user name: set tokenFile instead')
    if ((certFile === undefined) !== (keyFile === undefined)) errors.push('certFile and keyFile must both be set, or neither')
    return errors.map((fault) => `audit.sinks (${variable}): row ${at + 1} (${String(name)}): ${fault}`)
  })
}

function effective(tree: Tree, key: string, role: Role): unknown {
  const { path, node } = settingOf(key)
  return valueAt(tree, path) ?? roleDefaults[role][key] ?? node.default
}
