import { configSchema } from './schema.ts'
import type { SchemaNode } from './schema-node.ts'

/** A key of the configuration that has a value: a text, number, boolean or list. */
export interface Setting {
  /** The path of keys, e.g. ['store', 'etcd', 'endpoints']. */
  readonly path: readonly string[]
  /** The dotted key, e.g. `store.etcd.endpoints`. */
  readonly key: string
  /** The environment variable, e.g. `TAPROOT_STORE_ETCD_ENDPOINTS`. */
  readonly variable: string
  readonly node: Exclude<SchemaNode, { readonly type: 'object' }>
}

/** The prefix of the environment variables of Taproot. */
export const variablePrefix = 'TAPROOT_'

/** All settings in the order of the schema. */
export const settings: readonly Setting[] = [...settingsOf(configSchema, [])]

/** Returns the setting of a dotted key. Throws TypeError for an unknown key, which is a programming error. */
export function settingOf(key: string): Setting {
  const found = settings.find((setting) => setting.key === key)
  if (found === undefined) throw new TypeError(`no such setting: ${key}`)
  return found
}

function* settingsOf(node: SchemaNode, path: readonly string[]): Generator<Setting> {
  if (node.type === 'object') {
    for (const [name, child] of Object.entries(node.properties)) yield* settingsOf(child, [...path, name])
    return
  }
  const variable = variablePrefix + path.map((name) => name.replaceAll(/([A-Z])/g, '_$1').toUpperCase()).join('_')
  yield { path, key: path.join('.'), variable, node }
}
