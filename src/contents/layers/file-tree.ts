import { ContentError, contentLimits } from '../package.ts'

/** The most folders and files that lead to files with findings. Real images have a few for each package. */
const maxNodes = 500_000

interface TreeNode<T> {
  children: Map<string, TreeNode<T>> | undefined
  /** What the file here says, how many packages that are, and the layer that it is in. */
  kept: { readonly value: T; readonly packages: number; readonly layer: number } | undefined
  /** Nothing at or below this node is of a layer before this one. */
  since: number
}

function newNode<T>(since: number): TreeNode<T> {
  return { children: undefined, kept: undefined, since }
}

/**
 * The files with findings in the file system of an image, as layers are put on it one by one. It has only the folders that lead to such files,
 * so its size follows what is kept and not what the layers have. Paths are lists of names.
 */
export class FileTree<T> {
  readonly #root = newNode<T>(0)
  #packages = 0
  #nodes = 0

  /** Keeps what a file says. Throws ContentError TOO_LARGE if the image has too many packages, or files in too many folders. */
  keep(path: readonly string[], value: T, { packages, layer }: { readonly packages: number; readonly layer: number }): void {
    let node = this.#root
    for (const name of path) {
      node.children ??= new Map()
      let next = node.children.get(name)
      if (next === undefined) {
        next = newNode(layer)
        node.children.set(name, next)
        this.#nodes += 1
      }
      node = next
    }
    this.#forget(node)
    node.kept = { value, packages, layer }
    this.#packages += packages
    if (this.#packages > contentLimits.packages) throw new ContentError('TOO_LARGE', `the image has more than ${contentLimits.packages} packages`)
    if (this.#nodes > maxNodes) throw new ContentError('TOO_LARGE', 'the image has packages in too many folders')
  }

  /** Returns what the file at the path says, if it is kept. */
  get(path: readonly string[]): { readonly value: T; readonly packages: number } | undefined {
    return this.#find(path)?.kept
  }

  /** Returns whether a file is kept at the path or below. */
  has(path: readonly string[]): boolean {
    const node = this.#find(path)
    return node !== undefined && !this.#files(node, '').next().done
  }

  /** Puts an entry at the path. A folder replaces a file, any other entry replaces all that was at the path and below. */
  replace(path: readonly string[], isFolder: boolean): void {
    let node: TreeNode<T> | undefined = this.#root
    let parent: TreeNode<T> | undefined
    for (const name of path) {
      // A file cannot have entries below it.
      this.#forget(node)
      parent = node
      node = node.children?.get(name)
      if (node === undefined) return
    }
    if (isFolder) this.#forget(node)
    else this.#remove(parent, path.at(-1), node)
  }

  /** Removes what earlier layers have at the path and below: a whiteout. */
  hide(path: readonly string[], layer: number): void {
    const node = this.#find(path)
    if (node !== undefined) this.#hide(node, layer)
  }

  /** Removes what earlier layers have below the path: an opaque whiteout. */
  hideBelow(path: readonly string[], layer: number): void {
    const node = this.#find(path)
    if (node === undefined || node.since >= layer) return
    for (const child of node.children?.values() ?? []) this.#hide(child, layer)
    if (node.kept === undefined) node.since = layer
  }

  /** Yields what is kept, with its path. */
  *files(): Generator<{ readonly path: string; readonly value: T }, void, undefined> {
    yield* this.#files(this.#root, '')
  }

  *#files(node: TreeNode<T>, path: string): Generator<{ readonly path: string; readonly value: T }, void, undefined> {
    if (node.kept !== undefined) yield { path, value: node.kept.value }
    for (const [name, child] of node.children ?? []) yield* this.#files(child, path === '' ? name : `${path}/${name}`)
  }

  #find(path: readonly string[]): TreeNode<T> | undefined {
    let node: TreeNode<T> | undefined = this.#root
    for (const name of path) node = node?.children?.get(name)
    return node
  }

  #forget(node: TreeNode<T>): void {
    this.#packages -= node.kept?.packages ?? 0
    node.kept = undefined
  }

  #remove(parent: TreeNode<T> | undefined, name: string | undefined, node: TreeNode<T>): void {
    this.#empty(node)
    if (parent === undefined || name === undefined) return
    parent.children?.delete(name)
    this.#nodes -= 1
  }

  #empty(node: TreeNode<T>): void {
    this.#forget(node)
    for (const child of node.children?.values() ?? []) {
      this.#empty(child)
      this.#nodes -= 1
    }
    node.children = undefined
  }

  #hide(node: TreeNode<T>, layer: number): void {
    if (node.since >= layer) return
    if (node.kept !== undefined && node.kept.layer < layer) this.#forget(node)
    for (const [name, child] of node.children ?? []) {
      this.#hide(child, layer)
      if (child.kept !== undefined || (child.children?.size ?? 0) > 0) continue
      node.children?.delete(name)
      this.#nodes -= 1
    }
    node.since = layer
  }
}
