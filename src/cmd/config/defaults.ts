import { join } from 'node:path'
import type { Config, Role } from './config.ts'
import { configSchema } from './schema.ts'
import type { SectionNode } from './schema-node.ts'
import { isTree, valueAt, type Tree } from './tree.ts'

/** Defaults that differ from the schema's, per role. */
export const roleDefaults: Readonly<Record<Role, Readonly<Record<string, unknown>>>> = {
  api: {},
  dev: { listen: '127.0.0.1', dataDir: './.taproot', 'selfService.rootGroups': true, 'rateLimit.enabled': false },
}

/** Defaults that follow from other keys: in words, for the documentation, and as a function of what is known before. In order of dependence. */
export const derivedDefaults = {
  baseUrl: {
    words: '`http://localhost:<api.port>`, `https` with `api.tls`',
    derive: (draft) => `${draft.api.tls === undefined ? 'http' : 'https'}://localhost:${draft.api.port}`,
  },
  'registry.host': { words: '`localhost:<registry.port>`', derive: (draft) => `localhost:${draft.registry.port}` },
  'store.sqlite.path': { words: '`<dataDir>/taproot.db`', derive: (draft) => join(draft.dataDir, 'taproot.db') },
  'tokens.audiences': { words: '`<baseUrl>`, `<registry.host>`', derive: (draft) => [draft.baseUrl, draft.registry.host] },
} as const satisfies Readonly<Record<string, { readonly words: string; readonly derive: (draft: Config) => unknown }>>

/** Fills a valid tree with defaults. A section inside another, none of whose keys has a value, is left out. */
export function completeConfig(tree: Tree, role: Role): Config {
  let config = fill(configSchema, tree, { path: [], fixed: roleDefaults[role] })
  for (const [key, { derive }] of Object.entries(derivedDefaults)) {
    const path = key.split('.')
    // A rule reads only keys that are always there or were derived before it.
    if (valueAt(config, path) === undefined) config = setAt(config, path, derive(config as unknown as Config))
  }
  return config as unknown as Config // validated against the schema, which NodeFor<Config> ties to the type
}

function fill(section: SectionNode, given: Tree, at: { readonly path: readonly string[]; readonly fixed: Readonly<Record<string, unknown>> }): Tree {
  const filled: Record<string, unknown> = {}
  for (const [name, node] of Object.entries(section.properties)) {
    const path = [...at.path, name]
    const value = Object.hasOwn(given, name) ? given[name] : undefined
    if (node.type === 'object') {
      const below = fill(node, isTree(value) ? value : {}, { ...at, path })
      if (at.path.length === 0 || Object.keys(below).length > 0) filled[name] = below
    } else {
      const effective = value ?? at.fixed[path.join('.')] ?? node.default
      if (effective !== undefined) filled[name] = effective
    }
  }
  return filled
}

function setAt(tree: Tree, path: readonly string[], value: unknown): Tree {
  const [name = '', ...rest] = path
  const below = tree[name]
  return { ...tree, [name]: rest.length === 0 ? value : setAt(isTree(below) ? below : {}, rest, value) }
}
