import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { Element, Nodes } from 'hast'
import { fromParse5 } from 'hast-util-from-parse5'
import { defaultSchema, sanitize, type Schema } from 'hast-util-sanitize'
import MarkdownIt from 'markdown-it'
import { defaultTreeAdapter, parse, type DefaultTreeAdapterMap, type TreeAdapter } from 'parse5'

const markdown = new MarkdownIt({ html: true })
// All links are rendered, so that the policy below decides which are allowed.
markdown.validateLink = () => true

const alignment: [string, RegExp] = ['style', /^text-align:(?:center|left|right)$/]

/**
 * The allowed HTML (docs/spec/registry.md#readmes): GitHub's policy for readmes, without form fields. Comments are allowed, and the names
 * of elements are not prefixed.
 */
const policy: Schema = {
  ...defaultSchema,
  tagNames: (defaultSchema.tagNames ?? []).filter((name) => name !== 'input'),
  attributes: { ...defaultSchema.attributes, td: [alignment], th: [alignment] },
  allowComments: true,
  clobber: [],
  required: {},
}

/**
 * Maximum number of elements in one readme. Text of the largest size makes at most one per two characters. Only unclosed tags that are repeated in each
 * paragraph make more.
 */
const maxElements = 300_000

/** Thrown if the HTML has more elements than allowed. */
class TooManyElements extends Error {}

/** Builds the tree, and throws TooManyElements at the first element over the limit. */
function countingAdapter(): TreeAdapter<DefaultTreeAdapterMap> {
  let elements = 0
  return {
    ...defaultTreeAdapter,
    createElement(...args) {
      elements += 1
      if (elements > maxElements) throw new TooManyElements()
      return defaultTreeAdapter.createElement(...args)
    },
  }
}

function childrenOf(node: Nodes): readonly Nodes[] {
  return 'children' in node ? node.children : []
}

/** Returns the type and attributes of a node, without its children. */
function headOf(node: Nodes): unknown[] {
  if (node.type === 'element') return [node.tagName, node.properties]
  return [node.type, 'value' in node ? node.value : '']
}

function isSame(one: Nodes, other: Nodes): boolean {
  const [mine, theirs] = [childrenOf(one), childrenOf(other)]
  if (mine.length !== theirs.length || !isDeepStrictEqual(headOf(one), headOf(other))) return false
  return mine.every((child, at) => {
    const twin = theirs[at]
    return twin !== undefined && isSame(child, twin)
  })
}

/** Returns true if the tree has an element with this id. */
function hasElement(node: Nodes, id: string): boolean {
  return (node.type === 'element' && node.properties['id'] === id) || childrenOf(node).some((child) => hasElement(child, id))
}

/**
 * Parses the HTML inside the body of a page that has more content after it. Returns undefined if the HTML changes the surrounding page.
 * Also returns undefined if an unclosed tag, comment or text absorbs the following content.
 */
function shownIn(html: string): Nodes | undefined {
  // An id that the HTML cannot contain: a text cannot contain its own digest.
  const next = createHash('sha256').update(html).digest('hex')
  const page = fromParse5(parse(`<!doctype html><html><head></head><body>${html}<hr id="${next}">`, { treeAdapter: countingAdapter() }))
  const root = childrenOf(page).find((node): node is Element => node.type === 'element')
  const [head, body] = root?.children.filter((node): node is Element => node.type === 'element') ?? []
  const isUntouched = [root, head, body].every((element) => Object.keys(element?.properties ?? {}).length === 0) && head?.children.length === 0
  const shown: Nodes = { type: 'root', children: body?.children ?? [] }
  return isUntouched && hasElement(shown, next) ? shown : undefined
}

/**
 * Returns the fault of a readme, or undefined if it is valid. Its Markdown is rendered to HTML, which must stay the same when it is
 * sanitized (docs/spec/registry.md#readmes).
 */
export function readmeError(content: string): string | undefined {
  try {
    const shown = shownIn(markdown.render(content))
    if (shown === undefined) return 'must not affect the page around it: close all comments, tags and attributes, and remove tags of the page itself'
    return isSame(sanitize(shown, policy), shown) ? undefined : 'holds HTML that is not allowed: scripts, forms, frames, styles, event handlers, unusual links'
  } catch (error) {
    if (error instanceof RangeError) return 'is nested too deeply: use fewer levels'
    if (error instanceof TooManyElements) return 'has too many elements: close the tags that it opens'
    throw error
  }
}
