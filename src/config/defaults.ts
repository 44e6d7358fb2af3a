import { join } from 'node:path'
import type { Config, Role } from './config.ts'
import { configSchema } from './schema.ts'
import type { ListNode, SectionNode } from './schema-node.ts'
import { isTree, valueAt, type Tree } from './tree.ts'

/** The defaults that differ for a role from those in the schema. */
export const roleDefaults: Readonly<Record<Role, Readonly<Record<string, unknown>>>> = {
  api: {},
  registry: {},
  controller: {},
  worker: {},
  dev: { listen: '127.0.0.1', dataDir: './.taproot', 'selfService.rootGroups': true, 'rateLimit.enabled': false, 'registry.catalog': true },
}

interface DerivedDefault {
  readonly words: string
  readonly derive: (draft: Config, role: Role) => unknown
}

/**
 * Defaults that depend on other keys, in order of dependence. Each has a description for the documentation, and a function of the keys known so far. The
 * function returns undefined if there is no default.
 */
export const derivedDefaults = {
  baseUrl: {
    words: '`http://localhost:<api.port>`, `https` with `api.tls`',
    derive: (draft) => `${draft.api.tls === undefined ? 'http' : 'https'}://localhost:${draft.api.port}`,
  },
  'registry.host': { words: '`localhost:<registry.port>`', derive: (draft) => `localhost:${draft.registry.port}` },
  'registry.scheme': {
    words: '`https` if `registry.tls` is set or `baseUrl` uses https; otherwise `http`',
    derive: (draft) => (draft.registry.tls !== undefined || draft.baseUrl.startsWith('https:') ? 'https' : 'http'),
  },
  'registry.upstream.directory': {
    words: 'in `dev` without `registry.upstream.url`: `<dataDir>/registry`',
    derive: (draft, role) => (role === 'dev' && draft.registry.upstream?.url === undefined ? join(draft.dataDir, 'registry') : undefined),
  },
  'registry.upstream.redirects': {
    words: '`follow`, with `registry.upstream.url`',
    derive: (draft) => (draft.registry.upstream?.url === undefined ? undefined : 'follow'),
  },
  'store.sqlite.path': { words: '`<dataDir>/taproot.db`', derive: (draft) => join(draft.dataDir, 'taproot.db') },
  'aws.audiences': { words: '`<baseUrl>`', derive: (draft) => [draft.baseUrl] },
  'tokens.audiences': { words: '`<baseUrl>`, `<registry.host>`', derive: (draft) => [draft.baseUrl, draft.registry.host] },
} as const satisfies Readonly<Record<string, DerivedDefault>>

/** Adds all defaults to a valid tree. Omits a nested section without any values. */
export function completeConfig(tree: Tree, role: Role): Config {
  let config = fill(configSchema, tree, { path: [], fixed: roleDefaults[role] })
  for (const [key, { derive }] of Object.entries<DerivedDefault>(derivedDefaults)) {
    const path = key.split('.')
    if (valueAt(config, path) !== undefined) continue
    // A function reads only keys that always exist or whose defaults were added before.
    const value: unknown = derive(config as unknown as Config, role)
    if (value !== undefined) config = setAt(config, path, value)
  }
  return config as unknown as Config // The tree was validated against the schema, and NodeFor<Config> ties the schema to the type.
}

/** Where a section lies, and the defaults of the role by path. */
interface FillPlace {
  readonly path: readonly string[]
  readonly fixed: Readonly<Record<string, unknown>>
}

function fill(section: SectionNode, given: Tree, at: FillPlace): Tree {
  const filled: Record<string, unknown> = {}
  for (const [name, node] of Object.entries(section.properties)) {
    const path = [...at.path, name]
    const value = Object.hasOwn(given, name) ? given[name] : undefined
    if (node.type === 'object') {
      const below = fill(node, isTree(value) ? value : {}, { ...at, path })
      if (at.path.length === 0 || Object.keys(below).length > 0) filled[name] = below
    } else {
      const effective = value ?? at.fixed[path.join('.')] ?? node.default
      if (effective !== undefined) filled[name] = node.type === 'array' && Array.isArray(effective) ? rowsOf(node, effective, { ...at, path }) : effective
    }
  }
  return filled
}

/** Adds the defaults of the rows of a list. */
function rowsOf({ items }: ListNode, rows: readonly unknown[], at: FillPlace): readonly unknown[] {
  return items.type === 'object' ? rows.map((row) => (isTree(row) ? fill(items, row, at) : row)) : rows
}

function setAt(tree: Tree, path: readonly string[], value: unknown): Tree {
  const [name = '', ...rest] = path
  const below = tree[name]
  return { ...tree, [name]: rest.length === 0 ? value : setAt(isTree(below) ? below : {}, rest, value) }
}
