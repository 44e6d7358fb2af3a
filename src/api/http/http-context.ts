import type { ParameterizedContext } from 'koa'
import type { Code } from '../../core/errors.ts'
import type { CallHeaders } from '../call-headers.ts'

/** What every middleware knows of a request. */
export interface HttpState {
  headers: CallHeaders
  signal: AbortSignal
  /** The method's domain, for ErrorInfo; `platform` until a route is found. */
  domain: string
  /** `GroupsService.GetGroup`, or `unknown` until a route is found. */
  method: string
  /** Tells the metrics how the call ended. */
  done: ((code: Code | 0) => void) | undefined
}

/** A Koa context of this API. */
export type HttpContext = ParameterizedContext<HttpState>

/** Sends JSON text under the status that is set. */
export function sendJson(context: HttpContext, text: string): void {
  context.type = 'application/json'
  context.body = text
}

/** A header's text; of a repeated one the first. */
export function headerText(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value[0] : value
}
