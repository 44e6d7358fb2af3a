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

/** What a configuration file says, or why it can't be read: one line per fault. Keys without a value are left out. */
function readConfigFile(file: string): { readonly tree: Tree; readonly errors: readonly string[] } {
  let source: string
  try {
    source = readFileSync(file, 'utf8')
  } catch (cause) {
    return { tree: {}, errors: [`${file}: can't be read: ${errorMessage(cause)}`] }
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

/** The configuration is at fault. `errors`: every fault that was found, one line each, naming key or variable and what is expected. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError'
  readonly errors: readonly string[]
  constructor(errors: readonly string[]) {
    super(errors.join('\n'))
    this.errors = errors
  }
}

/** Where a configuration comes from. */
export interface ConfigSources {
  /** A YAML file. */
  readonly file?: string | undefined
  /** `TAPROOT_*` variables of it win over the file. */
  readonly env: Environment
  /** Decides defaults and what is required. */
  readonly role: Role
}

/** A configuration that was read. */
export interface LoadedConfig {
  readonly config: Config
  /** One line for each variable with our prefix that is no setting. */
  readonly warnings: readonly string[]
  /** The issuer that stands for those without a name, where there are any. */
  readonly clusterIssuer?: ClusterIssuer
}

/** Reads the configuration: environment over file over defaults. Throws ConfigError with all faults at once. */
export function loadConfig({ file, env, role }: ConfigSources): LoadedConfig {
  const fromFile = file === undefined ? { tree: {}, errors: [] } : readConfigFile(file)
  const { values, warnings } = readEnvironment(env)
  const given = [...values].reduce((merged, [setting, value]) => withValue(merged, setting.path, value), fromFile.tree)
  const errors = [...fromFile.errors, ...validateTree(given, { file, fromEnvironment: values })]
  const { tree, clusterIssuer, ...unnamed } = nameIssuers(given, role)
  // A file that can't be read would make everything look missing.
  if (fromFile.errors.length === 0) errors.push(...unnamed.errors, ...checkRequirements(tree, role))
  if (errors.length > 0) throw new ConfigError(errors)
  return { config: completeConfig(tree, role), warnings, ...(clusterIssuer !== undefined && { clusterIssuer }) }
}
