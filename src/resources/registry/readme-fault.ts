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

/** The elements of the page that the HTML would be a part of: it must not change them, and all of it must be in the body. */
function bodyOf(html: string): Element | undefined {
  const page = fromHtml(`<!doctype html><html><head></head><body>${html}`)
  const root = page.children.find((node): node is Element => node.type === 'element')
  const [head, body] = root?.children.filter((node): node is Element => node.type === 'element') ?? []
  const isUntouched = [root, head, body].every((element) => Object.keys(element?.properties ?? {}).length === 0) && head?.children.length === 0
  return isUntouched ? body : undefined
}

/** What is wrong with a readme, or undefined: the HTML that its Markdown makes must stay as it is when it is sanitized (rules 3.1). */
export function readmeFault(content: string): string | undefined {
  try {
    const body = bodyOf(markdown.render(content))
    if (body === undefined) return 'must not change the page that it is shown in'
    const shown: Nodes = { type: 'root', children: body.children }
    return textOf(sanitize(shown, policy)) === textOf(shown)
      ? undefined
      : 'holds HTML that is not allowed: scripts, forms, frames, styles, event handlers, unusual links'
  } catch (error) {
    if (error instanceof RangeError) return 'is nested too deep'
    throw error
  }
}
