import { createHash } from 'node:crypto'
import type { Element, Nodes } from 'hast'
import { fromHtml } from 'hast-util-from-html'
import { defaultSchema, sanitize, type Schema } from 'hast-util-sanitize'
import MarkdownIt from 'markdown-it'

const markdown = new MarkdownIt({ html: true })
// Links of any sort become links: the policy below judges them, not the renderer.
markdown.validateLink = () => true

const alignment: [string, RegExp] = ['style', /^text-align:(?:center|left|right)$/]

/** What users may write: the policy that a well-known code host has for readmes, without form fields; names stay as they are, comments too (rules 3.1). */
const policy: Schema = {
  ...defaultSchema,
  tagNames: (defaultSchema.tagNames ?? []).filter((name) => name !== 'input'),
  attributes: { ...defaultSchema.attributes, td: [alignment], th: [alignment] },
  allowComments: true,
  clobber: [],
  required: {},
}

function textOf(tree: Nodes): string {
  // Places in the text are lost by sanitizing, and say nothing.
  return JSON.stringify(tree, (key, value: unknown) => (key === 'position' || key === 'data' ? undefined : value))
}

/**
 * What the HTML comes to in the body of a page that goes on after it. Undefined where it changes the page round it, or swallows what follows: a tag, a comment or a
 * text that is never closed.
 */
function shownIn(html: string): Nodes | undefined {
  // No text holds its own digest.
  const next = createHash('sha256').update(html).digest('hex')
  const page = fromHtml(`<!doctype html><html><head></head><body>${html}<hr id="${next}">`)
  const root = page.children.find((node): node is Element => node.type === 'element')
  const [head, body] = root?.children.filter((node): node is Element => node.type === 'element') ?? []
  const isUntouched = [root, head, body].every((element) => Object.keys(element?.properties ?? {}).length === 0) && head?.children.length === 0
  const shown: Nodes = { type: 'root', children: body?.children ?? [] }
  return isUntouched && textOf(shown).includes(`"properties":{"id":"${next}"}`) ? shown : undefined
}

/** What is wrong with a readme, or undefined: the HTML that its Markdown makes must stay as it is when it is sanitized (rules 3.1). */
export function readmeFault(content: string): string | undefined {
  try {
    const shown = shownIn(markdown.render(content))
    if (shown === undefined) return 'must not change the page that it is shown in: something is never closed, or is of the page itself'
    return textOf(sanitize(shown, policy)) === textOf(shown)
      ? undefined
      : 'holds HTML that is not allowed: scripts, forms, frames, styles, event handlers, unusual links'
  } catch (error) {
    if (error instanceof RangeError) return 'is nested too deep'
    throw error
  }
}
