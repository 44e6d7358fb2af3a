/** The content of a configuration file: sections and values by key. */
export type Tree = Readonly<Record<string, unknown>>

/** True for a section; false for a list or any other value. */
export function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns the value at `path`; undefined if the path does not exist. */
export function valueAt(tree: unknown, path: readonly string[]): unknown {
  let at = tree
  for (const name of path) at = isTree(at) && Object.hasOwn(at, name) ? at[name] : undefined
  return at
}

/** Returns a copy of `tree` with `value` at `path`. If a plain value is on the path where a section belongs, that value stays and `value` is dropped. */
export function withValue(tree: Tree, path: readonly string[], value: unknown): Tree {
  const [name, ...rest] = path
  if (name === undefined) return tree
  if (rest.length === 0) return { ...tree, [name]: value }
  const below = valueAt(tree, [name]) ?? {}
  return isTree(below) ? { ...tree, [name]: withValue(below, rest, value) } : tree
}

/** Returns a copy without null values, because a key without a value (`api:`) counts as absent. */
export function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (!isTree(value)) return value
  return Object.fromEntries(Object.entries(value).flatMap(([key, child]) => (child === null ? [] : [[key, withoutNulls(child)]])))
}
