/** A variable of a path template. */
export interface TemplateVariable {
  /** The proto names of the request field that the variable sets: `{group.uid=**}` -> ['group', 'uid']. */
  readonly path: readonly string[]
}

/** A compiled path template of `google.api.http`. */
export interface Template {
  readonly text: string
  /** Matches a raw path, in which characters are still escaped. It has one capture group per variable, in order. */
  readonly regexp: RegExp
  readonly variables: readonly TemplateVariable[]
  /** The literal segments before the first variable. */
  readonly prefix: readonly string[]
  /** Length of the literal text after the first variable. Longer text has precedence. */
  readonly tailLength: number
}

const variablePattern = /^\{([a-zA-Z0-9_.]+)(?:=(\*\*|\*))?\}$/

/**
 * Compiles a template of literal segments, `{x}`, `{x=*}`, `{x=**}` and a `:verb` after the last segment. With `emptyTail`, a `{x=**}` at the end also matches
 * an empty text, with or without the slash before it. Throws on any other form.
 */
export function compileTemplate(text: string, emptyTail: boolean): Template {
  const { path, verb } = splitVerb(text)
  const segments = path.slice(1).split('/')
  const firstVariable = segments.findIndex((segment) => segment.startsWith('{'))
  const variables: TemplateVariable[] = []
  let source = ''
  segments.forEach((segment, index) => {
    if (!segment.startsWith('{')) {
      source += `/${escape(segment)}`
      return
    }
    const match = variablePattern.exec(segment)
    if (match === null) throw new TypeError(`unsupported path template ${text}`)
    variables.push({ path: (match[1] ?? '').split('.') })
    const isLast = index === segments.length - 1
    if (match[2] !== '**') source += '/([^/]+)'
    else if (isLast && verb === '' && emptyTail) source += '(?:/(.*))?'
    else source += verb === '' ? '/(.+)' : '/(.*)'
  })
  if (verb !== '') source += `(?::|%3[Aa])${escape(verb)}`
  const isLiteral = firstVariable < 0
  return {
    text,
    regexp: new RegExp(`^${source}${isLiteral && verb === '' ? '/?' : ''}$`),
    variables,
    prefix: isLiteral ? segments : segments.slice(0, firstVariable),
    tailLength: isLiteral
      ? Infinity
      : segments
          .slice(firstVariable)
          .filter((segment) => !segment.startsWith('{'))
          .join('/').length + verb.length,
  }
}

/** Escapes literal text for a regular expression. Templates come from the schema and from code, not from requests. */
function escape(literal: string): string {
  return literal.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}

function splitVerb(text: string): { readonly path: string; readonly verb: string } {
  const colon = text.lastIndexOf(':')
  return colon > text.lastIndexOf('/') && colon > text.lastIndexOf('}') ? { path: text.slice(0, colon), verb: text.slice(colon + 1) } : { path: text, verb: '' }
}

/** Decodes percent-escapes, including `%2F`. Returns text with a malformed escape unchanged, so that it is later refused as a malformed uid. */
export function decodeSegment(raw: string): string {
  if (!raw.includes('%')) return raw
  try {
    return decodeURIComponent(raw)
  } catch (error) {
    if (error instanceof URIError) return raw
    throw error
  }
}
