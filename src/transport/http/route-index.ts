import { pathPrefix } from '../../base/schema/uid-fields.ts'
import { compileTemplate, decodeSegment } from './template.ts'
import type { Template } from './template.ts'

/** A route: a verb, a path template, and the function that handles its requests. */
export interface HttpRoute<Context> {
  readonly verb: string
  readonly template: string
  handle(context: Context, match: RouteMatch): Promise<void>
}

/** A path that matches a route: the template, and the raw text of each of its variables in order. */
export interface RouteMatch {
  readonly template: Template
  readonly captures: readonly string[]
}

/** Finds the route of a request. The cost does not grow with the number of routes. */
export interface RouteIndex<Context> {
  /** Returns the route for a verb and a raw path. For HEAD, returns the route of GET. */
  find(verb: string, path: string): { readonly route: HttpRoute<Context>; readonly match: RouteMatch } | undefined
  /**
   * Returns the HTTP verbs that are served on a path, with HEAD if there is GET. Empty for an unknown path. A less specific template counts only if the path
   * can name a record by it: `POST /groups/{parent=**}` counts for `/groups` and `/groups/path:demo/history`, and not for `/groups/<uid>/history`.
   */
  verbsOf(path: string): string[]
}

interface CompiledRoute<Context> {
  readonly route: HttpRoute<Context>
  readonly template: Template
}

/** Number of leading literal segments by which routes are grouped. */
const keyLength = 3

/**
 * Creates an index of routes, grouped by their literal prefix. Within a group, a more specific template has precedence. A literal path comes first, then the
 * template with most literal text after its variable. Among equal ones, the template with more segments before its variable comes first. A `{x=**}` at the end
 * also matches an empty text for POST. For other verbs it does so only if no route has the path without it as its literal path (docs/spec/conventions.md#paths).
 */
export function createRouteIndex<Context>(routes: readonly HttpRoute<Context>[]): RouteIndex<Context> {
  const literal = new Set(routes.map((route) => route.template))
  const compiled = routes.map((route) => ({ route, template: compileTemplate(route.template, matchesNothing(route, literal)) }))
  const groups = Map.groupBy(
    compiled.toSorted((a, b) => order(a.template, b.template)),
    ({ template }) => template.prefix.slice(0, keyLength).map(keySegment).join('/'),
  )
  function* matching(path: string): Generator<CompiledRoute<Context>> {
    for (const key of keysOf(path)) for (const candidate of groups.get(key) ?? []) if (candidate.template.regexp.test(path)) yield candidate
  }
  return {
    find(verb, path) {
      const served = verb === 'HEAD' ? 'GET' : verb
      for (const key of keysOf(path)) {
        for (const { route, template } of groups.get(key) ?? []) {
          if (route.verb !== served) continue
          const match = template.regexp.exec(path)
          if (match !== null) return { route, match: { template, captures: template.variables.map((_, index) => match[index + 1] ?? '') } }
        }
      }
      return undefined
    },
    verbsOf(path) {
      const [first, ...rest] = [...matching(path)].toSorted((a, b) => order(a.template, b.template))
      if (first === undefined) return []
      const served = [first, ...rest.filter(({ template }) => order(first.template, template) === 0 || mayNameRecord(template, path))]
      return [...new Set(served.flatMap(({ route }) => (route.verb === 'GET' ? ['HEAD', 'GET'] : [route.verb])))]
    },
  }
}

function matchesNothing(route: { readonly verb: string; readonly template: string }, literal: ReadonlySet<string>): boolean {
  return route.verb === 'POST' || !literal.has(route.template.replace(/\/\{[^/]*\}$/, ''))
}

/** True if the last variable of a template is empty for a path, or a path of names. The rest of a more specific template is no part of a uid. */
function mayNameRecord(template: Template, path: string): boolean {
  const text = decodeSegment(template.regexp.exec(path)?.at(-1) ?? '')
  return text === '' || (text.startsWith(pathPrefix) && !text.slice(pathPrefix.length).includes(':'))
}

function order(a: Template, b: Template): number {
  return a.tailLength === b.tailLength ? b.prefix.length - a.prefix.length : b.tailLength - a.tailLength
}

/** Returns the keys of the groups in which the routes of a path may be, most specific first. A `:verb` belongs to the segment before it. */
function keysOf(path: string): string[] {
  const keys: string[] = []
  let key = ''
  for (let start = 1, depth = 0; depth < keyLength && start > 0; depth++) {
    const slash = path.indexOf('/', start)
    const segment = keySegment(slash < 0 ? path.slice(start) : path.slice(start, slash))
    key = depth === 0 ? segment : `${key}/${segment}`
    keys.push(key)
    start = slash + 1
  }
  return keys.reverse()
}

function keySegment(segment: string): string {
  const end = segment.search(/:|%3A/i)
  return end < 0 ? segment : segment.slice(0, end)
}
