import { readFileSync } from 'node:fs'
import { LineCounter, parseDocument } from 'yaml'
import { errorMessage } from '../base/error-text.ts'
import { nameIssuers, type ClusterIssuer } from './cluster-issuer.ts'
import type { Config, Role } from './config.ts'
import { completeConfig } from './defaults.ts'
import { readEnvironment, type Environment } from './environment.ts'
import { checkRequirements } from './requirements.ts'
import { withValue, isTree, withoutNulls, type Tree } from './tree.ts'
import { validateTree } from './validate-tree.ts'

/** Reads a configuration file. `errors` has one line for each fault. Keys without a value are omitted. */
function readConfigFile(file: string): { readonly tree: Tree; readonly errors: readonly string[] } {
  let source: string
  try {
    source = readFileSync(file, 'utf8')
  } catch (cause) {
    return { tree: {}, errors: [`${file}: can't be read: ${errorMessage(cause, file)}`] }
  }
  const lines = new LineCounter()
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false })
  if (document.errors.length > 0) {
    return { tree: {}, errors: document.errors.map((error) => `${file}: line ${lines.linePos(error.pos[0]).line}: not YAML: ${error.message}`) }
  }
  const content: unknown = withoutNulls(document.toJS({ maxAliasCount: 100 }) ?? {})
  return isTree(content)
    ? { tree: content, errors: [] }
    : { tree: {}, errors: [`${file}: expected a mapping of keys, e.g. "baseUrl: https://platform.example.com"`] }
}

/** The error for an invalid configuration. `errors` has one line for each fault, with the key or variable and the expected value. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly errors: readonly string[]
  constructor(errors: readonly string[]) {
    super(errors.join('\n'))
    this.errors = errors
  }
}

/** The sources of a configuration. */
export interface ConfigSources {
  /** Path of a YAML file. */
  readonly file?: string | undefined
  /** Environment variables. Those that start with `TAPROOT_` override the file. */
  readonly env: Environment
  /** The role, which determines the defaults and the required settings. */
  readonly role: Role
}

/** A configuration that was read and validated. */
export interface LoadedConfig {
  readonly config: Config
  /** One line for each variable with the prefix `TAPROOT_` that is not a setting. */
  readonly warnings: readonly string[]
  /** The issuer of the cluster, if it was read from a token to fill in missing issuers. */
  readonly clusterIssuer?: ClusterIssuer
}

/** Reads the configuration. Environment variables override the file, which overrides the defaults. Throws ConfigError with all faults. */
export function loadConfig({ file, env, role }: ConfigSources): LoadedConfig {
  const fromFile = file === undefined ? { tree: {}, errors: [] } : readConfigFile(file)
  const { values, warnings } = readEnvironment(env)
  const given = [...values].reduce((merged, [setting, value]) => withValue(merged, setting.path, value), fromFile.tree)
  const errors = [...fromFile.errors, ...validateTree(given, { file, fromEnvironment: values })]
  const { tree, clusterIssuer, ...unnamed } = nameIssuers(given, role)
  // If the file cannot be read, all required settings would be reported as missing.
  if (fromFile.errors.length === 0) errors.push(...unnamed.errors, ...checkRequirements(tree, role))
  if (errors.length > 0) throw new ConfigError(errors)
  return { config: completeConfig(tree, role), warnings, ...(clusterIssuer !== undefined && { clusterIssuer }) }
}
