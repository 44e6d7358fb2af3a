/** A configuration as a file has it: sections within sections. */
export type Tree = Readonly<Record<string, unknown>>

/** True for a section, false for lists and plain values. */
export function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** The value at `path`, or undefined where the path leaves the tree. */
export function valueAt(tree: unknown, path: readonly string[]): unknown {
  let at = tree
  for (const name of path) at = isTree(at) && Object.hasOwn(at, name) ? at[name] : undefined
  return at
}

/** A copy of `tree` with `value` at `path`; what stands in the way (a plain value where a section belongs) is kept and `value` dropped. */
export function withValue(tree: Tree, path: readonly string[], value: unknown): Tree {
  const [name, ...rest] = path
  if (name === undefined) return tree
  if (rest.length === 0) return { ...tree, [name]: value }
  const below = valueAt(tree, [name]) ?? {}
  return isTree(below) ? { ...tree, [name]: withValue(below, rest, value) } : tree
}

/** A copy without null values: a key that is there without a value (`api:`) is as if absent. */
export function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls)
  if (!isTree(value)) return value
  return Object.fromEntries(Object.entries(value).flatMap(([key, child]) => (child === null ? [] : [[key, withoutNulls(child)]])))
}
