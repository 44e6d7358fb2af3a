import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { decodeToken } from '../auth/access-tokens/decoded-token.ts'
import type { Log } from '../base/log.ts'
import { SettingError } from './setting-error.ts'
import type { Role } from './config.ts'
import { valueFormats } from './formats.ts'
import { settingOf } from './setting.ts'
import { isTree, valueAt, withValue, type Tree } from './tree.ts'

/** Lists in the configuration whose rows name an issuer. */
const rowKeys = ['issuers', 'bootstrap.operators'] as const
const issuerSetting = settingOf('kubernetes.issuer')

/** The issuer of the cluster's service account tokens, and the file with the token from which it was read. */
export interface ClusterIssuer {
  readonly issuer: string
  readonly tokenFile: string
}

/** A configuration tree in which every issuer is named, or the errors because of which one is not. `clusterIssuer` is set if a token was read for it. */
export interface NamedIssuers {
  readonly tree: Tree
  readonly errors: readonly string[]
  readonly clusterIssuer?: ClusterIssuer
}

/**
 * Fills in the issuer of rows in `issuers` and `bootstrap.operators` that name none: it is the issuer of the cluster. That is `kubernetes.issuer`, or the
 * claim `iss` of the service account token in `kubernetes.tokenFile`, which becomes `kubernetes.issuer`. The token is read only if such a row exists, or the
 * role is `controller`.
 */
export function nameIssuers(tree: Tree, role: Role): NamedIssuers {
  const unnamed = unnamedRows(tree)
  const known = valueAt(tree, issuerSetting.path)
  if (known !== undefined) return { tree: nameRows(tree, known), errors: [] }
  if (unnamed.length === 0 && role !== 'controller') return { tree, errors: [] }
  const { key, path, node } = settingOf('kubernetes.tokenFile')
  const tokenFile = valueAt(tree, path) ?? node.default
  // The validation reports a value of another type.
  if (typeof tokenFile !== 'string') return { tree, errors: [] }
  try {
    const issuer = issuerOf(readFileSync(tokenFile, 'utf8'))
    return { tree: nameRows(withValue(tree, issuerSetting.path, issuer), issuer), errors: [], clusterIssuer: { issuer, tokenFile } }
  } catch (error) {
    const needs = unnamed.length === 0 ? '' : `, because ${unnamed.join(' and ')} ${unnamed.length > 1 ? 'name' : 'names'} no issuer`
    const expected = `expected ${valueFormats['http-url'].expected}, or a service account token with such an issuer${needs}`
    const { message } = new SettingError(key, tokenFile, error)
    return { tree, errors: [`${issuerSetting.key} (${issuerSetting.variable}) is missing: ${expected}; ${message}`] }
  }
}

/**
 * Resolves when the token in the file names another issuer, for example because the flags of the API server changed, or when `signal` aborts. Reads the file
 * every `everyMs` milliseconds.
 */
export async function otherIssuer({ issuer, tokenFile }: ClusterIssuer, options: { log: Log; everyMs: number }, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await delay(options.everyMs, undefined, { signal, ref: false }).catch(() => undefined)
    // The file may be missing while it is replaced. The next read finds it.
    const found = await readFile(tokenFile, 'utf8')
      .then(issuerOf)
      .catch(() => issuer)
    if (found === issuer) continue
    options.log.warn('the cluster has another issuer of service account tokens: this process stops, and uses the new issuer after its restart', {
      issuer,
      next: found,
    })
    return
  }
}

/** Returns the issuer of a token. Throws if the text is not a token, or its issuer is not a URL. */
function issuerOf(token: string): string {
  const { issuer } = decodeToken(token.trim())
  if (!valueFormats['http-url'].test(issuer)) throw new Error(`the claim iss of the token is not ${valueFormats['http-url'].expected}`)
  return issuer
}

/** Returns the rows that name no issuer, e.g. `issuers[0]`. */
function unnamedRows(tree: Tree): string[] {
  return rowKeys.flatMap((key) => rowsOf(tree, key).flatMap((row, at) => (isUnnamed(row) ? [`${key}[${at}]`] : [])))
}

function rowsOf(tree: Tree, key: (typeof rowKeys)[number]): readonly unknown[] {
  const rows = valueAt(tree, settingOf(key).path)
  return Array.isArray(rows) ? rows : []
}

function isUnnamed(row: unknown): row is Tree {
  return isTree(row) && row['issuer'] === undefined
}

function nameRows(tree: Tree, issuer: unknown): Tree {
  return rowKeys.reduce((named, key) => {
    const rows = rowsOf(named, key)
    if (!rows.some(isUnnamed)) return named
    const filled = rows.map((row) => (isUnnamed(row) ? { ...row, issuer } : row))
    return withValue(named, settingOf(key).path, filled)
  }, tree)
}
