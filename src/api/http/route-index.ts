import Router from '@koa/router'
import type { Middleware, ParameterizedContext } from 'koa'
import { compileTemplate } from './template.ts'
import type { Template } from './template.ts'

/** One route: a verb and a path template with what serves it. */
export interface Route<State> {
  readonly verb: string
  readonly template: string
  handle(context: ParameterizedContext<State>, match: RouteMatch): Promise<void>
}

/** How a path matched: its template, and the raw text of each variable in order. */
export interface RouteMatch {
  readonly template: Template
  readonly captures: readonly string[]
}

/** Finds routes; its cost does not grow with their number. */
export interface RouteIndex<State> {
  /** Runs the route that the context's verb and path lead to, else `next`. */
  readonly middleware: Middleware<State>
  /** The verbs that are served on a path, HEAD included where GET is; empty for an unknown path. */
  verbsOf(path: string): string[]
}

/** Routes are grouped by this many leading literal segments. */
const keyLength = 3

/**
 * Groups routes by their literal prefix, one small router each. Within a group more specific templates win: a literal path, then
 * the one with most literal text behind its variable, then the greedy one. A `{x=**}` at the end also matches nothing for POST, and for
 * other verbs where no route has the bare path as its literal path (wire-v1 1.2).
 */
export function createRouteIndex<State>(routes: readonly Route<State>[]): RouteIndex<State> {
  const literal = new Set(routes.map((route) => route.template))
  const compiled = routes.map((route) => ({ route, template: compileTemplate(route.template, matchesNothing(route, literal)) }))
  const groups = new Map<string, Router<State>>()
  for (const { route, template } of compiled.toSorted((a, b) => order(a.template, b.template))) {
    const key = keyOf(template.prefix.slice(0, keyLength))
    const group = groups.get(key) ?? new Router<State>()
    groups.set(key, group)
    group.register(template.regexp, [route.verb], (context) => route.handle(context, { template, captures: capturesOf(template, context.path) }), {
      pathAsRegExp: true,
    })
  }
  const dispatchers = new Map([...groups].map(([key, group]) => [key, group.routes() as Middleware<State>]))
  return {
    middleware: async (context, next) => {
      const run = async (keys: readonly string[]): Promise<void> => {
        const [key, ...rest] = keys
        if (key === undefined) await next()
        else await dispatchers.get(key)?.(context, () => run(rest))
      }
      await run(keysOf(context.path).filter((key) => dispatchers.has(key)))
    },
    verbsOf: (path) => [
      ...new Set(
        keysOf(path).flatMap(
          (key) =>
            groups
              .get(key)
              ?.match(path, '')
              .path.flatMap((layer) => layer.methods) ?? [],
        ),
      ),
    ],
  }
}

function matchesNothing(route: { readonly verb: string; readonly template: string }, literal: ReadonlySet<string>): boolean {
  return route.verb === 'POST' || !literal.has(route.template.replace(/\/\{[^/]*\}$/, ''))
}

function order(a: Template, b: Template): number {
  return a.tailLength === b.tailLength ? 0 : b.tailLength - a.tailLength
}

function capturesOf(template: Template, path: string): string[] {
  const match = template.regexp.exec(path)
  return template.variables.map((_, index) => match?.[index + 1] ?? '')
}

/** The keys under which a path's routes may be, most specific first. A `:verb` belongs to its segment's group. */
function keysOf(path: string): string[] {
  const segments = path.split('/', keyLength + 1).slice(1)
  return segments.map((_, index) => keyOf(segments.slice(0, segments.length - index)))
}

function keyOf(segments: readonly string[]): string {
  return segments.map((segment) => segment.split(/:|%3A/i, 1)[0]).join('/')
}
