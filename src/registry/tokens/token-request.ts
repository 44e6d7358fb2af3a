import type { IncomingMessage } from 'node:http'
import { maxOpenRequestBytes } from '../../base/schema/method.ts'
import { readBody } from '../oci/blobs/request-body.ts'
import { requestTarget } from '../oci/request-target.ts'
import { RegistryError } from '../registry-error.ts'

/** A request for a registry token, in either form of the protocol. */
export interface TokenRequest {
  /** As it would stand in the header of that name. */
  readonly authorization: string | undefined
  /** The `scope` parameters as they are. */
  readonly scopes: readonly string[]
}

/** How long a client may send nothing of its form, in milliseconds. */
const idleMs = 10_000

/** Reads a GET: the credential is in the header, the scopes in the query. `service`, `account`, `client_id` and `offline_token` change nothing. */
export function readQuery(request: IncomingMessage): TokenRequest {
  const query = new URLSearchParams(requestTarget(request).search)
  return { authorization: request.headers.authorization, scopes: query.getAll('scope') }
}

/**
 * Reads a POST in the OAuth2 form: `grant_type=password` with `username` and `password`, or `refresh_token` with an access token or external token as `refresh_token`. Throws
 * RegistryError: 400 for another form, 413 for one over 8 KiB, 408 for one that does not come.
 */
export async function readForm(request: IncomingMessage): Promise<TokenRequest> {
  const type = request.headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase()
  if (type !== 'application/x-www-form-urlencoded') throw badForm('the body must be application/x-www-form-urlencoded')
  const form = new URLSearchParams(Buffer.from(await readBody(request, { idleMs, maxBytes: maxOpenRequestBytes })).toString('utf8'))
  return { authorization: authorizationOf(form), scopes: form.getAll('scope') }
}

/** The header that says the same. */
function authorizationOf(form: URLSearchParams): string {
  const grant = form.get('grant_type')
  if (grant === 'password') return `Basic ${Buffer.from(`${form.get('username') ?? ''}:${form.get('password') ?? ''}`).toString('base64')}`
  if (grant === 'refresh_token' && !/\s/.test(form.get('refresh_token') ?? ' ')) return `Bearer ${form.get('refresh_token') ?? ''}`
  throw badForm('grant_type must be password, or refresh_token with a refresh_token')
}

function badForm(message: string): RegistryError {
  return new RegistryError('UNSUPPORTED', message, { status: 400 })
}
