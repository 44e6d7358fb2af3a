import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import type { Element, Nodes } from 'hast'
import { fromParse5 } from 'hast-util-from-parse5'
import { defaultSchema, sanitize, type Schema } from 'hast-util-sanitize'
import MarkdownIt from 'markdown-it'
import { defaultTreeAdapter, parse, type DefaultTreeAdapterMap, type TreeAdapter } from 'parse5'

const markdown = new MarkdownIt({ html: true })
// Links of any sort become links: the policy below judges them, not the renderer.
markdown.validateLink = () => true

const alignment: [string, RegExp] = ['style', /^text-align:(?:center|left|right)$/]

/** What users may write: the policy that a well-known code host has for readmes, without form fields; names stay as they are, comments too (docs/spec/registry.md#readmes). */
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

/** The HTML makes more elements than a page should have. */
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

/** What a node is, without its children. */
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

/** True where the element of this id is in the tree. */
function hasElement(node: Nodes, id: string): boolean {
  return (node.type === 'element' && node.properties['id'] === id) || childrenOf(node).some((child) => hasElement(child, id))
}

/**
 * What the HTML comes to in the body of a page that goes on after it. Undefined where it changes the page round it, or swallows what follows: a tag, a comment or a
 * text that is never closed.
 */
function shownIn(html: string): Nodes | undefined {
  // No text holds its own digest.
  const next = createHash('sha256').update(html).digest('hex')
  const page = fromParse5(parse(`<!doctype html><html><head></head><body>${html}<hr id="${next}">`, { treeAdapter: countingAdapter() }))
  const root = childrenOf(page).find((node): node is Element => node.type === 'element')
  const [head, body] = root?.children.filter((node): node is Element => node.type === 'element') ?? []
  const isUntouched = [root, head, body].every((element) => Object.keys(element?.properties ?? {}).length === 0) && head?.children.length === 0
  const shown: Nodes = { type: 'root', children: body?.children ?? [] }
  return isUntouched && hasElement(shown, next) ? shown : undefined
}

/** What is wrong with a readme, or undefined: the HTML that its Markdown makes must stay as it is when it is sanitized (docs/spec/registry.md#readmes). */
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
